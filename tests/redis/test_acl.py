"""What an ACL user must be allowed, as docs/redis-keys.md says it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker import App
from mqworker.errors import StoreRefused
from mqworker.settings import Settings
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

ALLOWED = ("on", ">secret", "~mqw:*", "&mqw:*", "+@all")


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    """An app that comes as a user with few rights."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "shop", "reset", *ALLOWED)
    url = f"redis://shop:secret@127.0.0.1:{server.port}"
    made = App("shop", settings=Settings(redis_url=url))
    yield made
    made.close()
    with server.client() as client:
        client.execute_command("ACL", "DELUSER", "shop")


def test_tasks_need_the_namespace_and_nothing_else(app: App) -> None:
    job = app.task(name="t", unique=True)(lambda: 7).enqueue()

    HandWorker(app).run_all()

    assert job.result(timeout=30) == 7


def test_the_verbs_of_redismq_also_need_the_bare_name_of_their_queue(app: App, server: RealServer) -> None:
    queue = app.work_queue("orders")

    with pytest.raises(StoreRefused, match="NOPERM"):
        queue.push(b"one")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "shop", "~orders")
    (pushed,) = queue.push(b"one")

    assert queue.pop(1) == [(pushed, b"one")]
