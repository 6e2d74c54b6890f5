"""D2: tasks that take their worker with them. They are buried with evidence; their neighbours live."""

from __future__ import annotations

from collections import Counter

from tests.drills.conftest import Report, Sized
from tests.drills.node import PATIENT
from tests.drills.scene import Scene

MAX_CRASHES = 3
EVIDENCE = {
    "die_killed": "SIGKILL",
    "die_of_segfault": "SIGSEGV",
    "die_of_exit": "exit code 7",
    "die_of_memory": "SIGABRT",
}
DEADLINE_S = 240.0


def test_d2_poison_is_buried_with_evidence_and_harms_nobody(
    scene: Scene, sized: Sized, report: Report
) -> None:
    each, neighbours = sized(2, 20), sized(600, 4_000)
    node = scene.add_node(settings={"max_crashes": MAX_CRASHES})
    node.wait_complete()
    for _ in range(each):
        for task in EVIDENCE:
            scene.publish("work", neighbours // each // len(EVIDENCE))
            scene.publish(task, 1)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    letters = scene.queue().dead_letters(0, 1_000)
    runs = Counter(run.key for run in account.executions if run.key.startswith("die_"))
    tasks_that_crashed = {
        key.rpartition("-")[0]
        for key, message in account.published.items()
        for ending in account.endings
        if ending.message == message and ending.event == "crashed"
    }
    report(f"{account.summary()}; dead letters {len(letters)}")
    account.check()
    assert len(letters) == each * len(EVIDENCE)
    assert set(runs.values()) == {MAX_CRASHES}
    assert tasks_that_crashed == set(EVIDENCE)
    for letter in letters:
        assert letter.message is not None
        assert (letter.reason, letter.message.failures) == ("crashed", 0)
        assert EVIDENCE[letter.message.task] in letter.evidence["cause"]
    assert node.stop() == 0


def test_d2_a_hard_time_out_is_a_failure_of_the_task_not_a_crash(scene: Scene, report: Report) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    scene.publish("overrun", 2)
    scene.publish("work", 200)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    letters = scene.queue().dead_letters(0, 10)
    runs = Counter(run.key for run in account.executions if run.key.startswith("overrun"))
    report(f"{account.summary()}; dead letters {len(letters)}")
    account.check()
    assert set(runs.values()) == {2}
    assert account.ending_counts["crashed"] == 0
    assert [letter.reason for letter in letters] == ["timed out"] * 2
    assert {letter.message.failures for letter in letters if letter.message} == {2}
    assert node.stop() == 0
