"""D1: kill -9 of every kind of process, one after the other, under load."""

from __future__ import annotations

import itertools
import time

from tests.drills.conftest import Report, Sized
from tests.drills.node import PATIENT
from tests.drills.scene import Scene

KINDS = ("broker", "heartbeat_reaper", "recovery_scanner", "rate_limiter", "dispatcher", "worker")
KILL_EVERY_S = 0.15
DEADLINE_S = 120.0


def test_d1_nothing_is_lost_whoever_is_killed(scene: Scene, sized: Sized, report: Report) -> None:
    kills_each = sized(3, 10)
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    for task, count in (("work", sized(4_000, 17_000)), ("limited", sized(600, 2_000)), ("fail_once", 300)):
        scene.publish(task, count)
    scene.publish("work", 500)
    most_waiting = scene.counts().waiting

    strikes = 0
    workers = itertools.cycle(("worker:0", "worker:1"))
    executed_before = scene.ledger_bytes()
    for kind in itertools.chain.from_iterable(itertools.repeat(KINDS, kills_each)):
        name = next(workers) if kind == "worker" else kind
        _strike(scene, name)
        strikes += 1
        time.sleep(KILL_EVERY_S)
    executed_meanwhile = scene.ledger_bytes() - executed_before
    scene.wait_drained(DEADLINE_S)
    node.wait_complete()
    exit_code = node.stop()

    account = scene.account()
    report(f"{account.summary()}; most waiting {most_waiting:,}")
    account.check()
    assert exit_code == 0
    assert all(account.kills[kind] >= kills_each for kind in KINDS)
    assert most_waiting > 0
    assert executed_meanwhile > 0
    assert strikes == sum(account.kills.values())


def _strike(scene: Scene, name: str) -> None:
    """Kill it as soon as it is there to be killed: it may be coming back from the last time."""
    ends_at = time.monotonic() + DEADLINE_S
    while not scene.nodes[0].kill(name):
        assert time.monotonic() < ends_at, f"{name} did not come back"
        time.sleep(0.01)
