"""Spans under kill -9: each delivery that began is one span at the collector, whoever was killed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.drills.conftest import Report, Sized
from tests.drills.node import PATIENT, DrillNode
from tests.drills.scene import Scene
from tests.support.deadline import wait_until
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan

DEADLINE_S = 1_500.0
ENDS = {"succeeded", "retried", "crashed", "buried"}
"""Events that end a run which began; `released` may end one that did not."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as listening:
        for name, value in listening.environment.items():
            monkeypatch.setenv(name, value)
        yield listening


@pytest.mark.parametrize("victims", [("worker:0", "worker:1"), ("worker:0", "dispatcher", "worker:1")])
def test_spans_are_deliveries_though_workers_run_one_task_each_and_are_killed(
    scene: Scene, receiver: OtlpReceiver, sized: Sized, report: Report, victims: tuple[str, ...]
) -> None:
    node = scene.add_node(program=PATIENT, settings={"otel": "link", "max_tasks": 1, "drain_s": 10})
    node.wait_complete()
    count = sized(150, 10_000)
    scene.publish("work", count * 8 // 10)
    scene.publish("fail_once", count // 10)
    scene.publish("hold", count // 10, 0.05)

    _strike_while_it_works(scene, node, victims)
    exit_code = node.stop()

    account, spans = scene.account(), receiver.spans("process")
    report(f"{account.summary()}; {len(spans):,} spans")
    account.check()
    assert exit_code == 0
    assert account.kills["worker"] > 0
    _compare(scene, spans)


def _strike_while_it_works(scene: Scene, node: DrillNode, victims: tuple[str, ...]) -> None:
    chance = random.Random(42)  # noqa: S311 - no secret
    ends_at = time.monotonic() + DEADLINE_S
    turn = 0
    while (counts := scene.counts()).waiting + counts.leased:
        assert time.monotonic() < ends_at, f"not drained: {counts}"
        node.kill(victims[turn % len(victims)])
        turn += 1
        time.sleep(chance.uniform(0.05, 0.4))
    scene.wait_drained()
    wait_until(lambda: node.child("dispatcher").get("state") == "live", "a dispatcher", 60)


def _compare(scene: Scene, spans: list[ReceivedSpan]) -> None:
    account = scene.account()
    keys = Counter(_delivery(span) for span in spans)
    began = {(run.message, run.fence) for run in account.executions}
    ended = {(each.message, each.attempt, each.event) for each in account.endings if each.event in ENDS}
    released = {(each.message, each.attempt) for each in account.endings if each.event == "released"}
    told = {_ending(span) for span in spans}
    # What did not note that it began was killed between the mark in its slot and its first line.
    unnoted = [span for span in spans if _delivery(span) not in began]

    assert [key for key, times in keys.items() if times > 1] == []
    assert began - keys.keys() == set()
    assert ended - told == set()
    # What ran to its end, and whose worker and dispatcher were killed before that was stored, runs again.
    assert {(message, attempt) for message, attempt, _ in told - ended} <= released
    assert {span.attributes["error.type"] for span in unnoted} <= {"WorkerCrashed"}
    assert len({span.span_id for span in spans}) == len(spans)


def _delivery(span: ReceivedSpan) -> tuple[str, int]:
    return span.attributes["messaging.message.id"], span.attributes["mqworker.fence"]


def _ending(span: ReceivedSpan) -> tuple[str, int, str]:
    facts = span.attributes
    return facts["messaging.message.id"], facts["mqworker.attempt"], facts["mqworker.outcome"]
