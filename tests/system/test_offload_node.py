"""A live node with large payloads elsewhere: whoever is killed, nothing is lost and nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker import App
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

WAIT_S = 90.0
KILLS = 500 if os.environ.get("DRILL_SIZE") == "full" else 12
"""Of a producer, and as many of workers."""
ABOVE = 1_000
APP = """
from mqworker import App

app = App("films")


@app.task(name="size", max_crashes=35)
def size(data: bytes) -> int:
    return len(data)
"""
PRODUCER = """
import sys

from mqworker import App
from mqworker.settings import load_settings

app = App("films", settings=load_settings())
size = app.task(name="size", max_crashes=35)(len)
while True:
    job = size.enqueue(b"x" * 50_000)
    print(job.id, flush=True)
"""


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def settings(server: RealServer, tmp_path: Path) -> dict[str, str]:
    return {
        "MQWORKER_REDIS_URL": server.url,
        "MQWORKER_OFFLOAD": str(tmp_path / "payloads"),
        "MQWORKER_OFFLOAD_ABOVE_BYTES": str(ABOVE),
        "MQWORKER_OFFLOAD_GRACE_S": "1",
        "MQWORKER_WORKERS": "2",
    }


@pytest.fixture(autouse=True)
def node(server: RealServer, settings: dict[str, str]) -> Iterator[RealNode]:
    made = RealNode(server.url, "films:app", settings=settings)
    (made.directory / "films.py").write_text(APP)
    with made:
        yield made


def blobs(settings: dict[str, str]) -> list[Path]:
    return list(Path(settings["MQWORKER_OFFLOAD"]).glob("*/*/*"))


def test_ten_megabytes_go_through_a_node_and_are_removed(
    server: RealServer, settings: dict[str, str]
) -> None:
    app = App(
        "films",
        settings=Settings(
            redis_url=server.url, offload=settings["MQWORKER_OFFLOAD"], offload_above_bytes=ABOVE
        ),
    )

    job = app.named("size").using(queue="default").enqueue(os.urandom(10 * 1024 * 1024))

    assert job.result(timeout=WAIT_S) == 10 * 1024 * 1024
    wait_until(lambda: not blobs(settings), "its payload is removed", WAIT_S)
    app.close()


def test_after_kills_nothing_is_lost_and_no_payload_is_left(
    node: RealNode, server: RealServer, settings: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "producer.py"
    script.write_text(PRODUCER)
    stored: list[str] = []
    for kill in range(KILLS):
        with subprocess.Popen(
            [sys.executable, str(script)], env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True
        ) as producer:
            assert producer.stdout is not None
            stored += [producer.stdout.readline().strip() for _ in range(3)]
            time.sleep(0.002 * (kill % 5))
            producer.kill()
            stored += producer.stdout.read().split("\n")[:-1]
        node.kill(f"worker:{kill % 2}")
        wait_until(node.is_complete, "the worker is replaced", WAIT_S)
    app = App("films", settings=Settings(redis_url=server.url))

    for message in stored:
        assert app.job(message).result(timeout=WAIT_S) == 50_000
    wait_until(lambda: app.work_queue().counts().waiting == 0, "all are run", WAIT_S)
    wait_until(lambda: not blobs(settings), "what was left is swept", WAIT_S)
    assert app.work_queue().counts().dead == 0
    app.close()
