"""D24: poison among others in one worker, or that takes its node down: nobody else is buried for it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mqworker.model.dead_letter import DeadLetter
from tests.drills.conftest import Report, Sized
from tests.drills.node import PATIENT, DrillNode
from tests.drills.scene import Scene
from tests.support.deadline import wait_until

DEADLINE_S = 120.0
MAX_CRASHES = 3
MAX_LOSSES = 3


def letters_of(scene: Scene) -> list[DeadLetter]:
    return scene.queue().dead_letters(0, 1_000)


def runs_of(scene: Scene, task: str) -> Counter[str]:
    account = scene.account()
    return Counter(run.key for run in account.executions if run.key.startswith(f"{task}-"))


def tasks_of(letters: list[DeadLetter]) -> list[str]:
    return sorted(letter.message.task for letter in letters if letter.message is not None)


@pytest.mark.parametrize(("workers", "poisons", "neighbours"), [(1, 1, 20), (2, 1, 20), (2, 2, 50)])
def test_d24_poison_on_an_event_loop_buries_nobody_but_itself(
    scene: Scene, report: Report, workers: int, poisons: int, neighbours: int
) -> None:
    node = scene.add_node(workers=workers)
    node.wait_complete()
    scene.publish("hold_async", neighbours // 2, 0.3)
    scene.publish("die_async", poisons, 0.1)
    scene.publish("hold_async", neighbours - neighbours // 2, 0.3)
    scene.wait_drained(DEADLINE_S)

    account, letters = scene.account(), letters_of(scene)
    deadly = runs_of(scene, "die_async")
    report(f"{account.summary()}; runs of the poison {dict(deadly)}")
    account.check()
    assert tasks_of(letters) == ["die_async"] * poisons
    assert {(letter.reason, letter.message.crashes) for letter in letters if letter.message} == {
        ("crashed", MAX_CRASHES)
    }
    assert all("exit code 7" in letter.evidence["cause"] for letter in letters)
    # Once or a few times beside others, which only makes it a suspect; then alone.
    assert all(MAX_CRASHES <= count <= MAX_CRASHES + poisons for count in deadly.values())
    assert account.ending_counts["crashed"] == poisons * (MAX_CRASHES - 1)
    assert node.stop() == 0


def test_d24_poison_in_a_thread_buries_nobody_but_itself(scene: Scene, report: Report) -> None:
    node = scene.add_node(workers=1, settings={"threads": 24})
    node.wait_complete()
    scene.publish("hold", 10, 0.3)
    scene.publish("die_of_exit", 1)
    scene.publish("hold", 10, 0.3)
    scene.wait_drained(DEADLINE_S)

    account, letters = scene.account(), letters_of(scene)
    report(f"{account.summary()}; runs of the poison {dict(runs_of(scene, 'die_of_exit'))}")
    account.check()
    assert tasks_of(letters) == ["die_of_exit"]
    assert account.ending_counts["crashed"] == MAX_CRASHES - 1
    assert node.stop() == 0


def test_d24_poison_as_the_first_message_ever_is_buried_alone(scene: Scene, report: Report) -> None:
    node = scene.add_node(workers=1)
    scene.publish("die_async", 1, 0.0)
    scene.publish("work", 300)
    scene.publish("hold_async", 10, 0.1)
    node.wait_complete()
    scene.wait_drained(DEADLINE_S)

    account, letters = scene.account(), letters_of(scene)
    report(f"{account.summary()}; runs of the poison {dict(runs_of(scene, 'die_async'))}")
    account.check()
    assert tasks_of(letters) == ["die_async"]
    assert node.stop() == 0


def test_d24_what_only_dies_in_company_ends_when_it_runs_alone(scene: Scene, report: Report) -> None:
    node = scene.add_node(workers=1)
    node.wait_complete()
    scene.publish("die_in_company", 2, 0.2)
    scene.publish("hold_async", 5, 0.3)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(f"{account.summary()}; runs {dict(runs_of(scene, 'die_in_company'))}")
    account.check()
    assert letters_of(scene) == []
    assert account.ending_counts["crashed"] == 0
    assert node.stop() == 0


def test_d24_suspects_and_ordinary_work_do_not_starve_each_other(scene: Scene, report: Report) -> None:
    node = scene.add_node(workers=1, settings={"concurrency": 200})
    node.wait_complete()
    scene.publish("hold_async", 199, 0.05)
    scene.publish("die_async", 1, 0.02)
    scene.publish("work", 6_000)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    suspects = [
        run.at_ms for run in account.executions if run.key.startswith("hold_async-") and run.attempt > 1
    ]
    ordinary = [run.at_ms for run in account.executions if run.key.startswith("work-")]
    report(f"{account.summary()}; {len(suspects)} ran again")
    account.check()
    assert tasks_of(letters_of(scene)) == ["die_async"]
    if len(suspects) > 20:  # how many had begun when the poison struck is a matter of luck
        assert min(suspects) < max(ordinary), "suspects wait for the end of the line"
        assert min(ordinary) < max(suspects), "the line waits for the last suspect"
    assert node.stop() == 0


def test_d24_an_only_worker_that_is_never_idle_is_emptied_for_suspects(scene: Scene, report: Report) -> None:
    node = scene.add_node(workers=1)
    node.wait_complete()
    scene.publish("hold_async", 3, 0.6)
    scene.publish("die_async", 1, 0.3)
    publishing = scene.publish_beside("hold_async", 200, 0.6, per_s=10)
    publishing.join()
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    last_of_poison = max(run.at_ms for run in account.executions if run.key.startswith("die_async-"))
    last_of_all = max(run.at_ms for run in account.executions)
    report(f"{account.summary()}; the poison ended {last_of_all - last_of_poison} ms before the others")
    account.check()
    assert tasks_of(letters_of(scene)) == ["die_async"]
    assert last_of_poison < last_of_all
    assert node.stop() == 0


@pytest.mark.parametrize("kind", ["spoil_and_end", "spoil"])
def test_d24_garbage_in_the_pipe_is_a_crash_of_who_wrote_it(scene: Scene, report: Report, kind: str) -> None:
    node = scene.add_node(workers=2)
    node.wait_complete()
    scene.publish("work", 200)
    scene.publish(kind, 1, *(["dispatcher"] if kind == "spoil" else []))
    scene.publish("work", 200)
    scene.wait_drained(DEADLINE_S)

    account, letters = scene.account(), letters_of(scene)
    runs = runs_of(scene, kind)
    report(f"{account.summary()}; runs of the poison {dict(runs)}")
    account.check()
    assert tasks_of(letters) == [kind]
    assert letters[0].reason == "crashed"
    assert "its pipe broke" in letters[0].evidence["cause"]
    assert all(MAX_CRASHES <= count <= MAX_CRASHES + 1 for count in runs.values())
    assert node.stop() == 0


@contextmanager
def kept_alive(*nodes: DrillNode) -> Iterator[None]:
    """Whoever ends is started again, as by systemd."""
    is_over = threading.Event()

    def look_after() -> None:
        while not is_over.wait(0.05):
            for node in nodes:
                if node.process.poll() is not None:
                    node.start()

    keeper = threading.Thread(target=look_after, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        is_over.set()
        keeper.join()


@pytest.mark.parametrize("count", [1, 2])
def test_d24_what_takes_its_node_down_is_given_up_and_nobody_else_is(
    scene: Scene, report: Report, count: int
) -> None:
    nodes = [scene.add_node(workers=2, settings={"max_losses": MAX_LOSSES}) for _ in range(count)]
    for node in nodes:
        node.wait_complete()
    with kept_alive(*nodes):
        scene.publish("hold_async", 10, 0.5)
        scene.publish("hold", 6, 0.3)
        scene.publish("kill_node", 1)
        scene.publish("work", 100)
        wait_until(lambda: scene.counts().dead == 1, "the poison is buried", DEADLINE_S)
        scene.wait_drained(DEADLINE_S)

    account, letters = scene.account(), letters_of(scene)
    runs = runs_of(scene, "kill_node")
    report(f"{account.summary()}; runs of the poison {dict(runs)}")
    assert tasks_of(letters) == ["kill_node"]
    assert (letters[0].reason, letters[0].message.losses if letters[0].message else 0) == (
        "lost",
        MAX_LOSSES + 1,
    )
    assert set(runs.values()) == {MAX_LOSSES + 1}
    for node in nodes:
        node.wait_complete()
        assert node.stop() == 0


def test_d24_workers_killed_at_random_cost_no_innocent_message(
    scene: Scene, sized: Sized, report: Report
) -> None:
    tasks, kills = sized(500, 2_000), sized(8, 40)
    node = scene.add_node(program=PATIENT, workers=2)
    node.wait_complete()
    chance = random.Random(7)  # noqa: S311 - the same moments each time
    publishing = scene.publish_beside("hold_async", tasks, 0.05, per_s=200)
    struck = 0
    while struck < kills:
        time.sleep(chance.uniform(0.2, 0.6))
        struck += node.kill(f"worker:{chance.randrange(2)}")
    publishing.join()
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(f"{account.summary()}; {struck} workers killed")
    account.check()
    assert letters_of(scene) == []
    assert account.ending_counts["succeeded"] == tasks
    assert node.stop() == 0
