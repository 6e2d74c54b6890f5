"""D15: workers outlive their dispatcher, and no actor's death costs running work."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tests.drills.conftest import Report, Sized
from tests.drills.drill_app import ONCE_QUEUE, QUEUE
from tests.drills.ledger import Account
from tests.drills.node import PATIENT, DrillNode
from tests.drills.scene import Scene
from tests.support.deadline import wait_until

OTHERS = ("broker", "heartbeat_reaper", "recovery_scanner", "rate_limiter")
DEADLINE_S = 120.0
LONG_S, VERY_LONG_S = 6, 20
CHANCE = random.Random()  # noqa: S311 - moments, no secrets


def _check_nothing_ran_twice(account: Account) -> None:
    account.check()
    assert account.duplicates == 0
    assert len(account.executions) == len(account.published)


@pytest.mark.parametrize(
    ("task", "settings"),
    [("hold", {}), ("ahold", {}), ("hold", {"threads": 4})],
    ids=["sync", "async", "threads"],
)
def test_d15_a_long_task_outlives_its_dispatchers(
    scene: Scene, sized: Sized, report: Report, task: str, settings: dict[str, object]
) -> None:
    seconds = sized(LONG_S, VERY_LONG_S)
    node = scene.add_node(program=PATIENT, settings=settings)
    node.wait_complete()
    workers = {name: pid for name, pid in node.live_children().items() if name.startswith("worker")}
    scene.publish(task, 2, seconds)
    scene.wait_executed(2)

    ends_at, kills = time.monotonic() + seconds - 1.5, 0
    while time.monotonic() < ends_at:
        kills += node.kill("dispatcher")
        scene.publish("work", 5)  # others come and go meanwhile
        time.sleep(CHANCE.uniform(0.0, 0.6))
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(f"{task} of {seconds} s; {account.summary()}")
    _check_nothing_ran_twice(account)
    assert len(account.finished) == 2
    assert kills >= 3
    assert workers.items() <= node.live_children().items()
    assert node.stop() == 0


def test_d15_no_other_actors_death_costs_running_work(scene: Scene, sized: Sized, report: Report) -> None:
    seconds = sized(LONG_S, VERY_LONG_S)
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    workers = {name: pid for name, pid in node.live_children().items() if name.startswith("worker")}
    scene.publish("hold", 2, seconds)
    scene.wait_executed(2)

    ends_at = time.monotonic() + seconds - 1.0
    while time.monotonic() < ends_at:
        node.kill(CHANCE.choice(OTHERS))
        time.sleep(0.1)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(account.summary())
    _check_nothing_ran_twice(account)
    assert len(account.finished) == 2
    assert set(account.kills) == set(OTHERS)
    assert workers.items() <= node.live_children().items()


def test_d15_quick_tasks_run_once_though_dispatchers_die_all_the_time(
    scene: Scene, sized: Sized, report: Report
) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("echo", sized(5_000, 20_000))

    while scene.counts().waiting + scene.counts().leased:
        node.kill("dispatcher")
        time.sleep(0.15)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(account.summary())
    _check_nothing_ran_twice(account)
    assert account.kills["dispatcher"] > 5
    for key, message in account.published.items():
        assert scene.app.job(message, queue=QUEUE).result(timeout=5) == key


def test_d15_a_node_goes_on_though_its_dispatcher_is_killed_twenty_times(
    scene: Scene, report: Report
) -> None:
    node = scene.add_node()  # with the limits that users have
    node.wait_complete()
    scene.publish("hold", 2, 4.0)
    scene.wait_executed(2)
    began, kills = time.monotonic(), 0
    while kills < 20:
        kills += node.kill("dispatcher")
        time.sleep(0.01)
    took_s = time.monotonic() - began
    scene.publish("work", 100)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(f"20 kills in {took_s:.1f} s; {account.summary()}")
    _check_nothing_ran_twice(account)
    assert node.stop() == 0


def test_d15_what_a_worker_ran_that_died_with_the_dispatcher_counts_as_a_crash(
    scene: Scene, report: Report
) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("hold", 2, 3.0)
    scene.wait_executed(2)
    children = node.live_children()
    for name in ("dispatcher", "worker:0"):  # the notes first: the two deaths are then a moment apart
        scene.ledger.note("K", children[name], name)
    for name in ("dispatcher", "worker:0"):
        os.kill(children[name], signal.SIGKILL)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(account.summary())
    account.check()
    assert len(account.executions) == 3
    assert account.ending_counts["crashed"] == 1


def test_d15_what_a_worker_runs_that_cannot_speak_is_its_own(scene: Scene, report: Report) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("deaf_hold", 1, 5.0)
    scene.wait_executed(1)

    for _ in range(8):
        _strike(node, "dispatcher")
        scene.publish("work", 50)
        time.sleep(CHANCE.uniform(0.1, 0.7))
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(account.summary())
    _check_nothing_ran_twice(account)
    assert len(account.finished) == 1


def test_d15_a_worker_that_stands_still_loses_nothing_with_its_dispatcher(
    scene: Scene, report: Report
) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("work", 300)
    scene.publish("hold", 1, 0.5)
    scene.publish("work", 300)
    scene.wait_executed(50)
    stopped = node.live_children()["worker:1"]
    scene.ledger.note("S", stopped, "worker")
    os.kill(stopped, signal.SIGSTOP)
    for _ in range(3):
        _strike(node, "dispatcher")
        time.sleep(0.5)
    os.kill(stopped, signal.SIGCONT)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(account.summary())
    _check_nothing_ran_twice(account)
    assert node.live_children()["worker:1"] == stopped


def test_d15_a_hard_time_out_is_kept_though_no_dispatcher_saw_it_pass(scene: Scene, report: Report) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("overrun", 2)
    scene.wait_executed(2)

    for _ in range(6):
        _strike(node, "dispatcher")
        time.sleep(CHANCE.uniform(0.0, 0.3))
    scene.wait_drained(DEADLINE_S)
    node.wait_complete()

    account = scene.account()
    report(account.summary())
    assert account.ending_counts["buried"] == 2
    assert len(account.executions) == 2 + account.ending_counts["retried"] + account.ending_counts["crashed"]


def test_d15_a_stopped_dispatcher_is_dead_before_the_next_one_begins(scene: Scene, report: Report) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("hold", 2, 10.0)
    scene.publish("work", 500)
    scene.wait_executed(2)
    stopped = node.live_children()["dispatcher"]
    scene.ledger.note("K", stopped, "dispatcher")
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: node.live_children().get("dispatcher", stopped) != stopped, "a new one", 30.0)
    assert stopped not in node.descendants()
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(account.summary())
    _check_nothing_ran_twice(account)


def test_d15_a_dispatcher_killed_in_a_drain_costs_no_running_work(scene: Scene, report: Report) -> None:
    node = scene.add_node(program=PATIENT, settings={"drain_s": 20})
    node.wait_complete()
    scene.publish("hold", 2, 3.0)
    scene.wait_executed(2)
    node.process.terminate()
    for _ in range(3):
        _strike(node, "dispatcher")
        time.sleep(CHANCE.uniform(0.1, 0.5))
    exit_code = node.wait_exit()

    account = scene.account()
    report(f"exit code {exit_code}; {account.summary()}")
    _check_nothing_ran_twice(account)
    assert exit_code == 0
    assert scene.counts().leased == 0


def test_d15_what_runs_at_most_once_is_run_by_the_worker_that_has_it(
    scene: Scene, sized: Sized, report: Report
) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("once", sized(1_500, 6_000))
    while scene.counts(ONCE_QUEUE).waiting:
        node.kill("dispatcher")
        time.sleep(0.15)
    scene.wait_drained(DEADLINE_S, queues=[ONCE_QUEUE])
    wait_until(lambda: not scene.account((ONCE_QUEUE,)).without_ending, "all have ended", 10.0)

    account = scene.account((ONCE_QUEUE,))
    report(account.summary())
    assert not account.acked_twice
    assert account.duplicates == 0
    assert len(account.finished) == len(account.executions)
    # Lost is what was acknowledged, and not handed out before the kill: one for each idle worker.
    assert len(account.lost) == len(account.acked_unrun) <= 2 * account.kills["dispatcher"]


def _strike(node: DrillNode, name: str) -> None:
    wait_until(lambda: node.kill(name), f"{name} is there", DEADLINE_S)
