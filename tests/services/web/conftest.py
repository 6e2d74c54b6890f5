"""A server, a system on it, and consoles asked without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from mqworker.model.envelope import encode_call
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Bury, Failure
from mqworker.operate.system import System
from mqworker_services.web.access import read_tokens
from mqworker_services.web.asgi import console
from tests.support.messages import a_message
from tests.support.real_server import RealServer
from tests.support.systems import empty_system

Open = Callable[..., TestClient]
TOKENS = {role: f"{role}-token-0123456789" for role in ("view", "operate", "admin")}


@pytest.fixture(scope="session")
def web_server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def system(web_server: RealServer) -> Iterator[System]:
    with empty_system(web_server) as found:
        yield found


@pytest.fixture
def page(system: System) -> Iterator[TestClient]:
    """The console of a loopback address: nobody logs in."""
    app = console(system.settings, hosts={"testserver"})
    with TestClient(app, follow_redirects=False) as client:
        yield client


@pytest.fixture
def locked(system: System, tmp_path: Path) -> Iterator[TestClient]:
    """The console with tokens of all three roles."""
    file = tmp_path / "tokens"
    file.write_text("# who\n" + "".join(f"{role} {role}-person {token}\n" for role, token in TOKENS.items()))
    with TestClient(console(system.settings, access=read_tokens(file)), follow_redirects=False) as client:
        yield client


def bury(
    system: System, count: int = 1, *, message: str = "no", queue: str = "mail", **kwargs: object
) -> list[MessageId]:
    """Make `count` dead letters."""
    work = system.open_queue(queue)
    body = encode_call([], kwargs or {"tenant": "acme", "password": "hunter2"})  # type: ignore[arg-type]
    work.enqueue(*[a_message(body, task=TaskName("shop.send")) for _ in range(count)])
    deliveries = work.claim(count)
    failure = Failure("ValueError", message, 'File "/app/shop/mail.py", line 7, in send')
    work.settle(*[Bury(each, "retries", failure) for each in deliveries])
    return [each.id for each in deliveries]
