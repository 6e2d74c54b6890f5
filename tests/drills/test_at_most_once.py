"""D11: at most once. Workers are killed; nothing runs twice, and each takes one message with it at most."""

from __future__ import annotations

import itertools
import time

from tests.drills.conftest import Report, Sized
from tests.drills.drill_app import ONCE_QUEUE
from tests.drills.node import PATIENT
from tests.drills.scene import Scene
from tests.support.deadline import wait_until

DEADLINE_S = 90.0


def test_d11_what_may_run_once_at_most_never_runs_twice(scene: Scene, sized: Sized, report: Report) -> None:
    kills, count = sized(6, 20), sized(1_200, 6_000)
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("once", count)
    killed = 0
    for name in itertools.cycle(("worker:0", "worker:1")):
        if killed == kills:
            break
        killed += node.kill(name)
        time.sleep(0.1)
    scene.wait_drained(DEADLINE_S, queues=(ONCE_QUEUE,))
    node.wait_complete()
    scene.publish("once", 100)
    scene.wait_drained(DEADLINE_S, queues=(ONCE_QUEUE,))
    assert node.stop() == 0  # workers end with empty hands

    account = scene.account(queues=(ONCE_QUEUE,))
    ended = {run.key for run in account.finished}
    unfinished = [run for run in account.executions if run.key not in ended]
    report(
        f"{account.summary()}; begun and not ended {len(unfinished)}, "
        f"in hand and not begun {len(account.lost)}"
    )
    assert account.duplicates == 0
    assert len(account.executions) == len({run.key for run in account.executions})
    assert not account.acked_twice
    assert not account.unsettled
    assert account.kills["worker"] == kills
    assert len(unfinished) + len(account.lost) > 0
    assert len(unfinished) + len(account.lost) <= kills  # one for each worker that died
    assert {run.pid for run in unfinished} <= account.struck_pids


def test_d11_a_killed_dispatcher_costs_nothing_of_what_may_run_once_at_most(
    scene: Scene, sized: Sized, report: Report
) -> None:
    kills, count = sized(8, 60), sized(3_000, 30_000)
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    publishing = scene.publish_beside("once", count, per_s=count / sized(6, 60))
    killed = 0
    while killed < kills:
        before = scene.ledger_bytes()
        wait_until(lambda before=before: scene.ledger_bytes() > before, "it is at work", DEADLINE_S)
        killed += node.kill("dispatcher")
        time.sleep(0.2)
    publishing.join()
    scene.wait_drained(DEADLINE_S, queues=(ONCE_QUEUE,))
    assert node.stop() == 0

    account = scene.account(queues=(ONCE_QUEUE,))
    report(account.summary())
    assert account.duplicates == 0
    assert not account.acked_twice
    assert not account.unsettled
    assert not account.lost
    assert not account.acked_unrun
    ended = {run.key for run in account.finished}
    assert all(run.key in ended for run in account.executions), "workers outlive it, with what they run"
