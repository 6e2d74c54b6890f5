"""What a worker promises beside running tasks: how long results live, the log, the hooks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mqworker import App
from mqworker.errors import TaskFailed
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.shop_node import shop_app, shop_node

APP = """
import logging, os, pathlib
from mqworker import App, Context

app = App("shop")
HERE = pathlib.Path(__file__).parent
HOARD = []

@app.hooks.on_failure
def note(ctx, error):
    with (HERE / "failures").open("a") as failures:
        failures.write(f"{ctx.id} {ctx.task} {type(error).__name__} {getattr(error, 'reason', '-')}\\n")

@app.task(max_crashes=1)
def crash() -> None:
    os._exit(7)

@app.task(retry=0)
def fail() -> None:
    raise ValueError("no such order: 4711")

@app.task
def say(word: str) -> None:
    logging.getLogger("shop.mail").info("said %s", word, extra={"size": 3})
    logging.getLogger("shop.mail").debug("not to be seen")

@app.task
async def asay(word: str) -> None:
    logging.getLogger("shop.mail").warning("said %s", word)

@app.task
def usual() -> int:
    return 1

@app.task(result_ttl=1)
def brief() -> int:
    return 2

@app.task
def hoard(megabytes: int) -> int:
    HOARD.append(b'x' * (megabytes * 1024 * 1024))
    return os.getpid()
"""


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    with shop_app(server) as made:
        yield made


def a_node(server: RealServer, **settings: str) -> RealNode:
    usual = {"MQWORKER_WORKERS": "1", "MQWORKER_LOG_FORMAT": "json"}
    return shop_node(server, APP, usual | settings)


def enqueue(app: App, name: str, *args: object) -> Any:  # noqa: ANN401 - a job of any of the tasks above
    task = app.task(name=f"shop.{name}")(lambda *_args: None)
    return task.enqueue(*args)


def lines(node: RealNode, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def failures(node: RealNode) -> list[str]:
    path = node.directory / "failures"
    return path.read_text().splitlines() if path.exists() else []


def test_hooks_and_log_tell_of_every_message_that_is_given_up(server: RealServer, app: App) -> None:
    with a_node(server) as node:
        jobs = [enqueue(app, "crash"), enqueue(app, "fail")]
        app.work_queue().enqueue(Message(MessageId("m-foreign"), b"\x00", TaskName("shop.say")))
        for job in jobs:
            with pytest.raises(TaskFailed):
                job.result(timeout=30)
        wait_until(lambda: len(failures(node)) == 3, "all hooks were called", 30)
        told, buried = sorted(failures(node)), lines(node, "delivery_buried")

    crash, fail = jobs[0].id, jobs[1].id
    assert told == sorted(
        [
            f"{crash} shop.crash TaskFailed crashed",
            f"{fail} shop.fail ValueError -",
            "m-foreign shop.say InvalidMessage -",
        ]
    )
    by_id = {line["task_id"]: line for line in buried}
    assert by_id[crash]["task"] == "shop.crash"
    assert "status 7" in by_id[crash]["cause"] or "7" in by_id[crash]["cause"]
    assert by_id[fail]["error_msg"] == "no such order: 4711"
    assert "in fail" in by_id[fail]["exception"]
    assert by_id["m-foreign"]["reason"] == "undecodable"


def test_what_a_task_says_by_logging_names_the_task(server: RealServer, app: App) -> None:
    with a_node(server) as node:
        sync, on_loop = enqueue(app, "say", "hello"), enqueue(app, "asay", "ahoy")
        sync.result(timeout=30)
        on_loop.result(timeout=30)
        wait_until(lambda: lines(node, "said hello") and lines(node, "said ahoy"), "both are logged")
        (hello,), (ahoy,) = lines(node, "said hello"), lines(node, "said ahoy")
        hidden = "not to be seen" in node.log()

    assert (hello["task"], hello["task_id"], hello["level"]) == ("shop.say", sync.id, "info")
    assert (hello["logger"], hello["worker"], hello["size"]) == ("shop.mail", "worker:0", 3)
    assert (ahoy["task"], ahoy["task_id"], ahoy["level"]) == ("shop.asay", on_loop.id, "warning")
    assert not hidden


def test_results_live_as_long_as_their_task_says(server: RealServer, app: App) -> None:
    with a_node(server, MQWORKER_RESULT_TTL_S="123"), server.client() as client:
        usual, brief = enqueue(app, "usual"), enqueue(app, "brief")
        assert (usual.result(timeout=30), brief.result(timeout=30)) == (1, 2)
        kept_ms = client.hget("mqw:{default}:meta", "results_ms")

        def is_kept(job: Any) -> bool:  # noqa: ANN401 - as above
            hashes = ("mqw:{default}:results", "mqw:{default}:results:old")
            return any(client.hexists(name, job.id) for name in hashes)

        wait_until(lambda: not is_kept(brief), "the brief one is dropped", 30)
        is_usual_kept = is_kept(usual)

    assert kept_ms == b"123000"
    assert is_usual_kept


def test_a_worker_that_grew_too_large_is_replaced_soon(server: RealServer, app: App) -> None:
    with a_node(server, MQWORKER_MAX_MEMORY_BYTES=str(150 * 1024 * 1024)) as node:
        first = enqueue(app, "hoard", 1).result(timeout=30)
        assert enqueue(app, "hoard", 200).result(timeout=30) == first
        began_s = time.monotonic()
        wait_until(lambda: node.child("worker:0")["generation"] > 1, "another worker is there", 10)
        waited_s = time.monotonic() - began_s
        later = enqueue(app, "hoard", 1).result(timeout=30)
        (leaving,) = lines(node, "worker_leaving")[:1]

    assert waited_s < 5
    assert later != first
    assert "bytes" in leaving["reason"]
