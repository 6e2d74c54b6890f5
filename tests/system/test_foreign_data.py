"""Foreign data in a live node: it is skipped, and named by `status` and `doctor`; nobody dies of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.support.command_line import CommandLine
from tests.support.deadline import wait_until
from tests.support.node_process import ROOT
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.resp_client import RespClient
from tests.system.foreign_app import QUEUE, app, echo

ANSWER_S = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture(scope="module")
def node(server: RealServer) -> Iterator[RealNode]:
    settings = {
        "MQWORKER_GATEWAYS": "redismq=127.0.0.1:0",
        "MQWORKER_WORKERS": "2",
        "MQWORKER_HEARTBEAT_INTERVAL_S": "0.2",
        "MQWORKER_HEARTBEAT_TIMEOUT_S": "1",
        "PYTHONPATH": str(ROOT),
    }
    with RealNode(server.url, "tests.system.foreign_app:app", settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def raw(server: RealServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture(autouse=True)
def _the_app_speaks_to_the_server(server: RealServer) -> None:
    app._redis_url = server.url


@pytest.fixture(autouse=True)
def _nobody_dies(node: RealNode) -> Iterator[None]:
    """After each test the same processes serve the next call."""
    before = generations(node)
    yield
    assert echo.enqueue("after").result(timeout=ANSWER_S) == "after"
    assert generations(node) == before, node.log()[-4_000:]


def generations(node: RealNode) -> dict[str, int]:
    return {child["name"]: child["generation"] for child in node.snapshot()["children"]}


def quarantined(node: RealNode) -> list[dict[str, Any]]:
    """What the actors of the node skip at the moment."""
    return [
        entry
        for child in node.snapshot()["children"]
        for entry in child["facts"].get("quarantine", {}).get("entries", [])
    ]


def wait_quarantined(node: RealNode, kind: str, where: str) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        return [each for each in quarantined(node) if each["kind"] == kind and where in each["where"]]

    wait_until(found, f"{kind} at {where} is quarantined: {quarantined(node)}", ANSWER_S)
    return found()[0]


def a_record(id_: str, extras: str = "-", fields: str = "") -> bytes:
    """A record of the task `echo` by another program."""
    now_ms = int(time.time() * 1000)
    return f"{now_ms:013}0-{extras}300000000{id_} echo {fields}".encode() + b"body"


def test_a_blocking_pop_at_an_impossible_name_is_refused(node: RealNode) -> None:
    port = int(node.facts("gateway:redismq")["listens"].rpartition(":")[2])
    with RespClient(port) as client:
        answer = client.say("MQ.POP", "a\x01b", "1", "BLOCK", "500")
        other_order = client.say("MQ.POP", "1", "BLOCK", "500", "a\x01b")

    assert isinstance(answer, Exception)
    assert isinstance(other_order, Exception)


def test_a_record_with_a_deadline_of_5000_digits_is_buried(raw: redis.Redis) -> None:
    raw.rpush(f"mqw:{{{QUEUE}}}:ready", a_record("longdeadline", "d", "9" * 5_000 + " "))
    echo.enqueue("behind it").result(timeout=ANSWER_S)

    wait_until(lambda: raw.llen(f"mqw:{{{QUEUE}}}:ready") == 0, "the line is empty")
    wait_until(lambda: raw.hlen(f"mqw:{{{QUEUE}}}:letters") >= 1, "it is buried")


def test_a_queue_name_that_is_no_text_is_skipped(node: RealNode, raw: redis.Redis) -> None:
    raw.sadd("mqw:queues", b"\xff")

    entry = wait_quarantined(node, "queue name", "mqw:queues")

    assert entry["entry"] == "b'\\xff'"
    assert entry["count"] >= 1
    raw.srem("mqw:queues", b"\xff")


def test_a_consumer_whose_name_is_no_text_is_skipped(node: RealNode, raw: redis.Redis) -> None:
    raw.zadd(f"mqw:{{{QUEUE}}}:consumers", {b"\xff\xfe": 1})

    wait_quarantined(node, "consumer", f"mqw:{{{QUEUE}}}:consumers")

    raw.zrem(f"mqw:{{{QUEUE}}}:consumers", b"\xff\xfe")


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"version": 1, "schedules": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"version": 1, "schedules": [{"name": "x", "every_ms": 1' + b"0" * 5_000 + b"}]}",
        b'{"version": 1, "schedules": [7]}',
        b"\xff\xfe",
    ],
    ids=["deep", "deep inside", "long number", "no object", "no text"],
)
def test_a_schedule_that_cannot_be_read_is_skipped(node: RealNode, raw: redis.Redis, text: bytes) -> None:
    raw.hset("mqw:schedules", "stranger", text)

    wait_quarantined(node, "schedule", "mqw:schedules")

    raw.hdel("mqw:schedules", "stranger")


def held_channel(raw: redis.Redis) -> str:
    (consumer,) = [
        name.decode() for name in raw.zrange(f"mqw:{{{QUEUE}}}:consumers", 0, -1) if b"redismq" not in name
    ]
    return f"mqw:{{{QUEUE}}}:held:{consumer}"


@pytest.mark.parametrize(
    "text",
    [
        b"9" * 400 + b" 0:1 " + b"rubbish",
        b"9" * 5_000 + b" - rubbish",
        b"1 " + b"9" * 400 + b":1 rubbish",
        b"1 0:" + b"9" * 400 + b" rubbish",
        b"-5 -1:-1 rubbish",
        b"\xff\xff",
        b"cancel \xff",
    ],
    ids=lambda text: text[:12].hex(),
)
def test_a_wake_up_that_cannot_be_read_is_skipped(node: RealNode, raw: redis.Redis, text: bytes) -> None:
    channel = held_channel(raw)
    raw.execute_command("SPUBLISH", channel, text)

    wait_quarantined(node, "wake-up", channel)


def test_what_a_worker_cannot_begin_is_skipped_and_named(node: RealNode, raw: redis.Redis) -> None:
    """A worker listens where messages are handed over to it, for early starts."""
    for worker in (0, 1):
        channel = held_channel(raw).replace(":held:", ":begin:") + f":{worker}"
        wait_until(
            lambda channel=channel: raw.execute_command("SPUBLISH", channel, b"\xff\xff") == 1,
            f"worker {worker} listens",
        )
        raw.execute_command("SPUBLISH", channel, b"9" * 400 + b" 0:1 rubbish")

        wait_quarantined(node, "wake-up", channel)


def test_a_fence_that_is_no_number_is_skipped(node: RealNode, raw: redis.Redis) -> None:
    key = held_channel(raw)
    raw.hset(key, b"\xffnot a fence", b"rubbish")
    raw.hset(key, b"9" * 5_000, b"rubbish")

    wait_quarantined(node, "fence", key)

    raw.hdel(key, b"\xffnot a fence", b"9" * 5_000)


FOREIGN: dict[str, Callable[[redis.Redis], object]] = {
    "outbox without a node": lambda raw: raw.hset(f"mqw:{{{QUEUE}}}:outbox", b"\xff\xff", b"S"),
    "outbox of a workflow of another type": lambda raw: (
        raw.set("mqw:{flow:strange}:state", "text"),
        raw.hset(f"mqw:{{{QUEUE}}}:outbox", "strange~1", b"S"),
    ),
    "outbox of a workflow that counts in words": lambda raw: (
        raw.hset("mqw:{flow:wordy}:state", mapping={"kept_ms": "many", "end": "\x00"}),
        raw.hset(f"mqw:{{{QUEUE}}}:outbox", "wordy~1", b"S"),
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_an_end_of_a_workflow_that_cannot_be_read_does_not_stop_the_queue(
    node: RealNode, raw: redis.Redis, what: str
) -> None:
    FOREIGN[what](raw)
    broker = node.facts("broker")["rounds"]

    wait_until(lambda: node.facts("broker")["rounds"] > broker + 2, "the broker goes on")
    raw.delete(f"mqw:{{{QUEUE}}}:outbox", "mqw:{flow:strange}:state", "mqw:{flow:wordy}:state")


def test_a_node_snapshot_of_a_stranger_does_not_stop_status(raw: redis.Redis, server: RealServer) -> None:
    raw.sadd("mqw:nodes", b"\xff", "stranger")
    raw.set("mqw:node:stranger", json.dumps({"children": [{"facts": {"queues": 7}}], "pid": 1e400}), ex=5)

    shown = CommandLine(server).type("status")

    assert "stranger" in shown.output
