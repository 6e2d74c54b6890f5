"""Celery's own producers, workers and results, with nodes of ours on the same queue."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from mqworker.queues.celery.queue import CeleryTaskQueue
from tests.interop.celery_node import CeleryNode
from tests.interop.real_celery import CannotInstall, RealCelery
from tests.support.messages import open_store
from tests.support.real_server import RealServer

StartNode = Callable[[], CeleryNode]
IS_FULL = os.environ.get("DRILL_SIZE") == "full"
EVERY_OPTION = 10_000 if IS_FULL else 400
FLEET = 1_500 if IS_FULL else 240


@pytest.fixture
def celery(server: RealServer, raw: redis.Redis, tmp_path: Path) -> RealCelery:  # noqa: ARG001 - the flush comes first
    try:
        return RealCelery(server.socket_path, tmp_path)
    except CannotInstall as reason:
        pytest.skip(f"no Celery from PyPI: {reason}")


@pytest.fixture
def start(server: RealServer, celery: RealCelery, tmp_path: Path) -> Iterator[StartNode]:  # noqa: ARG001 - as above
    with ExitStack() as nodes:
        yield lambda: nodes.enter_context(CeleryNode(tmp_path, server.url))


@pytest.fixture
def queue(server: RealServer) -> Iterator[CeleryTaskQueue]:
    store = open_store(server.url)
    yield CeleryTaskQueue("celery", store)
    store.close()


def test_calls_of_every_option_run_under_kills_none_lost_and_none_twice(
    celery: RealCelery, start: StartNode, queue: CeleryTaskQueue
) -> None:
    kinds = celery.run("produce", EVERY_OPTION)
    node = start()

    for share, child in (
        (0.1, "worker:0"),
        (0.2, "dispatcher"),
        (0.3, "worker:1"),
        (0.4, "all"),
        (0.6, "dispatcher"),
    ):
        node.wait_until(
            lambda share=share: len(node.begun()) >= share * len(kinds), f"{share:.0%} have begun"
        )
        if child == "all":
            node.kill_all()
            node.start()
        else:
            node.kill(child)

    wanted = {number for number, kind in enumerate(kinds) if kind != "expired"}
    node.wait_until(lambda: node.ended().keys() >= wanted, "all ran")
    node.wait_until(
        lambda: {**queue.counts(), "dead": 0} == dict.fromkeys(queue.counts(), 0), "nothing is left"
    )
    assert node.ended().keys() == wanted
    assert queue.burials() == []
    again = {number: runs for number, runs in node.begun().items() if len(runs) > 1}
    explained = {number for number, runs in again.items() if {pid for pid, _ in runs[:-1]} <= node.killed}
    assert again.keys() == explained, "only what a killed process had begun was begun again"


def test_options_arrive_as_they_were_sent(celery: RealCelery, start: StartNode) -> None:
    kinds = celery.run("produce", 20)
    node = start()

    node.wait_until(lambda: len(node.ended()) == 19, "all ran")
    told = {kinds[int(words[0])]: words[3:] for words in node.words("begun")}
    assert told["retries"][0] == "3"  # two tries before this one
    assert told["headers"][1] == '{"tenant":"acme","level":"3"}'
    assert told["plain"] == ("1", "{}", "0")
    assert told["types"][2] == "5"
    assert "expired" not in told


def test_a_mixed_fleet_runs_each_message_once(
    celery: RealCelery, start: StartNode, queue: CeleryTaskQueue, raw: redis.Redis
) -> None:
    node = start()
    with celery.worker():
        celery.run("fleet", FLEET)

        node.wait_until(lambda: len(node.ended()) == FLEET, "all ran")
        node.wait_until(lambda: not any(queue.counts().values()), "nothing is left")

    begun = node.begun()
    assert {number: runs for number, runs in begun.items() if len(runs) > 1} == {}
    by = {number: runs[0][1] for number, runs in begun.items()}
    assert {by[number] for number in range(0, FLEET, 2)} == {"ours", "celery"}, "both took part"
    assert {by[number] for number in range(1, FLEET, 2)} == {"celery"}
    assert raw.hlen("unacked") == 0


def test_a_node_that_is_stopped_longer_than_its_lease_overwrites_nothing(
    celery: RealCelery, server: RealServer, queue: CeleryTaskQueue, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    celery.run("slow", 4)
    with CeleryNode(tmp_path, server.url) as first:
        first.wait_until(lambda: len(first.begun()) >= 2, "both workers have one")
        held = set(first.begun())
        with first.stopped(), CeleryNode(tmp_path / "other", server.url) as second:
            second.wait_until(lambda: held <= second.ended().keys(), "another node has run them, too")
            second.wait_until(lambda: not any(queue.counts().values()), "nothing is left")

        first.wait_until(lambda: held <= first.ended().keys(), "the late ones have come to their end")
        first.wait_until(lambda: re.search("delivery_lost|lease_lost", first.log()), "they were refused")
    assert all(len(runs) == 1 for runs in second.ended().values())


def test_celerys_async_result_reads_what_our_node_says(
    celery: RealCelery, start: StartNode, queue: CeleryTaskQueue
) -> None:
    node = start()

    told = celery.run("results")

    assert told["sum"] == 5
    assert told["types"] == ["2026-02-03 04:05:06+00:00", "1.5"]
    assert told["error"] == ["ValueError", "no such order"]
    assert told["state"] == "FAILURE"
    assert told["has_traceback"]
    assert (told["chain"], told["parents"]) == (10, [6, 3])
    assert told["broken"] == "first"
    assert told["group"] == [1, 2, 3]
    assert told["retried"] == 3
    assert told["expired"] == ["TaskRevokedError", "REVOKED"]
    assert told["linked"] == 2
    assert "pickle" in told["pickle"]
    assert all("chord" in each for each in told["chord"])
    reasons = sorted(each.reason for each in queue.burials())
    node.wait_until(lambda: node.words("told"), "the error link was told")
    assert reasons[-3:] == ["refused"] * 3
