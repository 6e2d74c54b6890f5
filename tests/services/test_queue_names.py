"""Queues with the names that Redis users give them: at the gateway, in Python, in a node, at every reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker import App
from mqworker.queues.work.queue import WorkQueue
from mqworker.settings import Settings
from tests.support.messages import open_store
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.resp_client import RespClient

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
NAMES = ["jobs:sms", "queue:{user1000}.mails", "two words", "a/../b", "*", "ü", 'say "hi"', "a%20b", "-x"]
APP = """
from mqworker import App

app = App("shop")


@app.task(queue="jobs:mail")
def double(number: int) -> int:
    return 2 * number


@app.task(queue="odd {name}/*")
def triple(number: int) -> int:
    return 3 * number
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture(scope="module")
def node(server: RealServer) -> Iterator[RealNode]:
    """A node with tasks on such queues, the gateway, metrics, and few queues allowed."""
    settings = {
        "MQWORKER_GATEWAYS": "redismq=127.0.0.1:0",
        "MQWORKER_WORKERS": "1",
        "MQWORKER_QUEUES": "jobs:mail,odd {name}/*",
        "MQWORKER_GATEWAY_MAX_QUEUES": "30",
    }
    running = RealNode(server.url, "shop:app", settings=settings)
    (running.directory / "shop.py").write_text(APP)
    with running:
        yield running


@pytest.fixture
def client(node: RealNode) -> Iterator[RespClient]:
    with RespClient(int(node.facts("gateway:redismq")["listens"].rpartition(":")[2])) as connected:
        yield connected


@pytest.mark.parametrize("name", NAMES)
def test_the_gateway_and_python_mean_the_same_queue(
    client: RespClient, server: RealServer, name: str
) -> None:
    first = client.say("MQ.PUSH", name, "x", "y")
    store = open_store(server.url)
    queue = WorkQueue(name, store)

    popped = queue.pop(1)
    rest = client.say("MQ.POP", 5, name)
    acked = client.say("MQ.ACK", name, *first)
    store.close()

    assert [element for _, element in popped or []] == [b"x"]
    assert rest == [[first[1], b"y"]]
    assert acked == first


def test_who_waits_is_woken_whatever_the_name(node: RealNode, client: RespClient) -> None:
    port = int(node.facts("gateway:redismq")["listens"].rpartition(":")[2])
    with RespClient(port) as waiting:
        waiting.send("MQ.POP", 1, "BLOCK", 20_000, "wait for: {me}")
        client.say("MQ.PUSH", "wait for: {me}", "now")

        assert waiting.hear()[0][1] == b"now"


@pytest.mark.parametrize("name", [b"a\nb", b"a\0b", b"\xff\xfe", b"", b"x" * 129])
def test_what_is_no_name_is_refused(client: RespClient, name: bytes) -> None:
    assert str(client.say("MQ.PUSH", name, "x")).startswith("ERR queue is")


@pytest.mark.usefixtures("node")
def test_tasks_run_on_such_queues_and_everybody_tells_of_them(server: RealServer) -> None:
    app = App("shop", settings=Settings(redis_url=server.url))
    double = app.task(name="shop.double", queue="jobs:mail")(lambda number: number)
    triple = app.task(name="shop.triple", queue="odd {name}/*")(lambda number: number)

    assert double.enqueue(2).result(timeout=DEADLINE_S) == 4
    job = triple.enqueue(2)
    assert job.result(timeout=DEADLINE_S) == 6
    app.close()
    status = typed(server, "status", "--json")
    shown = typed(server, "queue", "show", "odd {name}/*")
    found = typed(server, "job", "show", job.id, "--queue", "odd {name}/*")

    names = {queue["name"] for queue in json.loads(status)["queues"]}
    assert {"jobs:mail", "odd%20%7Bname%7D%2F%2A"} <= names
    assert "odd%20%7Bname%7D%2F%2A" in shown
    assert "succeeded" in found


def test_a_client_makes_so_many_queues_and_no_more(client: RespClient, server: RealServer) -> None:
    with server.client() as raw:
        before = raw.scard("mqw:queues")
        replies = [client.say("MQ.PUSH", f"flood:{number}", "x") for number in range(40)]
        after = raw.scard("mqw:queues")
    known = client.say("MQ.PUSH", "flood:0", "still")

    assert before < 30
    assert after == 30
    assert str(replies[-1]).startswith("OOM queue 'flood:39' would be one more than gateway_max_queues")
    assert isinstance(known, list)


def typed(server: RealServer, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mqworker", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "MQWORKER_REDIS_URL": server.url},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode in {0, 1}, (words, done.stdout, done.stderr)
    return done.stdout
