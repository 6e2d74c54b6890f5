"""D9: broken and full pipes. The peer is ended and replaced; supervisor and dispatcher keep their pace."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.drills.conftest import Report, Sized
from tests.drills.scene import Scene
from tests.support.deadline import wait_until

DEADLINE_S = 60.0


@pytest.mark.parametrize("pipe", ["control", "dispatcher"])
def test_d9_a_worker_that_writes_garbage_is_replaced(
    scene: Scene, sized: Sized, report: Report, pipe: str
) -> None:
    rounds = sized(1, 6)
    node = scene.add_node()
    node.wait_complete()
    for number in range(rounds):
        scene.publish("work", 100)
        scene.publish("spoil", 1, pipe)
        wait_until(lambda number=number: _restarts(scene) > number, f"worker {number} is replaced")
    # Poison, in its way: it is buried after three workers.
    scene.wait_drained(DEADLINE_S)
    node.wait_complete()
    scene.publish("work", 200)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(f"{account.summary()}; workers replaced {_restarts(scene)}")
    account.check()
    assert _restarts(scene) >= rounds
    assert _others_restarted(scene) == 0
    assert node.stop() == 0


def test_d9_a_stopped_worker_with_a_full_pipe_holds_nobody_back(
    scene: Scene, sized: Sized, report: Report
) -> None:
    rounds = sized(2, 5)
    node = scene.add_node()
    node.wait_complete()
    scene.publish("work", 200)
    scene.wait_drained()
    slowest_answer_s, done_meanwhile = 0.0, 0
    for _ in range(rounds):
        stopped = node.live_children()["worker:0"]
        os.kill(stopped, signal.SIGSTOP)
        scene.ledger.note("S", stopped, "worker")
        before, ends_at = scene.executed(), time.monotonic() + 1.5
        scene.publish("work", 400, "x" * 8_192)
        while time.monotonic() < ends_at:
            asked = time.monotonic()
            assert node.snapshot()
            slowest_answer_s = max(slowest_answer_s, time.monotonic() - asked)
        done_meanwhile += scene.executed() - before
        os.kill(stopped, signal.SIGCONT)
        scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(
        f"{account.summary()}; {done_meanwhile} done beside a stopped worker, "
        f"slowest answer of the supervisor {slowest_answer_s * 1000:.0f} ms"
    )
    account.check()
    assert account.duplicates == 0
    assert done_meanwhile > rounds * 200
    assert slowest_answer_s < 2.0
    assert _restarts(scene) + _others_restarted(scene) == 0
    assert node.stop() == 0


def _restarts(scene: Scene) -> int:
    children = scene.nodes[0].snapshot().get("children", [])
    return sum(child["restarts"] for child in children if child["role"] == "worker")


def _others_restarted(scene: Scene) -> int:
    children = scene.nodes[0].snapshot().get("children", [])
    return sum(child["restarts"] for child in children if child["role"] != "worker")
