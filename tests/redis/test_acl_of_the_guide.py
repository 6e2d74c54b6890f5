"""The user that docs/operate/redis.md makes is enough for a node and the commands, and for nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from mqworker import App, Rate, chain
from mqworker.cli.main import mqworker
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "redis.md"
APP = """
from mqworker import App, Rate

app = App("shop")


@app.task
def double(number: int) -> int:
    return 2 * number


@app.task(rate=Rate("1000/s"), retry=0)
def fail(number: int) -> None:
    raise ValueError(number)


@app.schedule(every=0.5)
def tick() -> None: ...


@app.subscribe("orders.placed")
def invoice(order: int) -> None: ...
"""


@pytest.fixture
def server() -> Iterator[RealServer]:
    """A server with the user of the page, whose password is `secret`."""
    with RealServer() as running:
        text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
        command = re.search(r"\$ redis-cli (ACL SETUSER .*)", text)
        assert command is not None
        with running.client() as client:
            client.execute_command(*shlex.split(command[1]))
        yield running


@pytest.fixture
def url(server: RealServer) -> str:
    return f"redis://mqworker:secret@127.0.0.1:{server.port}"


def test_a_node_and_the_commands_need_no_more_than_the_guide_says(server: RealServer, url: str) -> None:
    app = App("shop", settings=Settings(redis_url=url))
    double = app.task(name="shop.double")(lambda number: number)
    fail = app.task(name="shop.fail", rate=Rate("1000/s"), retry=0)(lambda number: number)
    with server.client() as admin:
        admin.execute_command("ACL", "LOG", "RESET")
    node = RealNode(url, "shop:app", settings={"MQWORKER_WORKERS": "1"})
    (node.directory / "shop.py").write_text(APP)

    with node:
        assert chain(double.s(2), double.s()).enqueue().result(timeout=60) == 8
        failed = fail.enqueue(7)
        wait_until(lambda: failed.status() == "failed", "a dead letter", 60)
        cancelled = double.using(delay=60).enqueue(1)
        assert cancelled.cancel()
        app.publish("orders.placed", 7)
        wait_until(lambda: app.work_queue("default").counts().totals.get("succeeded", 0) >= 4, "ticks", 60)
        for words in (
            "doctor",
            "queue list",
            "queue pause default",
            "queue resume default",
            "job list",
            f"job show {cancelled.id}",
            f"dead retry {failed.id}",
            "dead causes",
            "audit",
        ):
            result = CliRunner().invoke(mqworker, [*words.split(), "--redis-url", url])
            assert result.exit_code == 0, (words, result.output)
        status = CliRunner().invoke(mqworker, ["status", "--redis-url", url])
        assert "quarantined" not in status.output  # degraded it is, for the dead letter
    app.close()

    with server.client() as admin:
        denied = admin.execute_command("ACL", "LOG")
    assert denied == [], denied


def test_the_user_of_the_guide_may_not_touch_what_is_not_ours(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        for command in (("SET", "theirs", "1"), ("FLUSHALL",), ("CONFIG", "GET", "*"), ("ACL", "LIST")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
