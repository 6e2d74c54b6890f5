"""What a worker has begun stays readable after its death, and until its report was accepted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mqworker.actors.run_slot import Begun, RunSlots, mark_of

HERE, THERE = mark_of("here"), mark_of("there")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "slots")


def test_what_ended_is_not_running_but_known_to_have_begun(path: str) -> None:
    slots = RunSlots(path)
    slots.begin(3, "here", 7, 0)
    while_it_ran = slots.begun(3)

    slots.end(3)

    assert while_it_ran == Begun(frozenset({(HERE, 7)}), frozenset(), (HERE, 7))
    assert slots.running(3) is None
    assert slots.begun(3) == Begun(frozenset(), frozenset({(HERE, 7)}), (HERE, 7))


def test_all_that_runs_beside_is_seen_by_another_process_of_the_node(path: str) -> None:
    table = RunSlots(path).beside(2, 100)
    places = [table.begin("here", fence) for fence in range(1, 101)]
    table.begin("there", 1)

    for place in places[:99]:
        table.end(place)

    assert RunSlots(path).begun(2) == Begun(
        frozenset({(HERE, 100), (THERE, 1)}), frozenset((HERE, fence) for fence in range(1, 100))
    )


def test_a_worker_that_never_ran_anything_has_begun_nothing(path: str) -> None:
    RunSlots(path).beside(5, 10).begin("here", 1)

    assert RunSlots(path).begun(4) == Begun()
    assert RunSlots(path).begun(1_023) == Begun()


def test_tables_of_workers_do_not_touch_one_another_whoever_grows_the_file_first(path: str) -> None:
    slots = RunSlots(path)
    later, first = slots.beside(9, 10), slots.beside(0, 10)
    later.begin("here", 9)
    first.begin("here", 1)

    again = RunSlots(path)  # as a process that is started meanwhile

    assert again.begun(9).running == {(HERE, 9)}
    assert again.begun(0).running == {(HERE, 1)}


def test_the_tables_of_workers_that_do_not_use_theirs_take_no_room_on_the_disk(path: str) -> None:
    RunSlots(path).beside(63, 100).begin("here", 1)

    assert Path(path).stat().st_blocks * 512 < 1024 * 1024


def test_traces_of_what_has_ended_outlive_as_many_new_ones_as_may_run(path: str) -> None:
    slots = RunSlots(path)
    table = slots.beside(0, 4)
    table.end(table.begin("here", 1))
    for fence in range(2, 6):
        table.begin("here", fence)

    assert (HERE, 1) in slots.begun(0).ended


def test_many_threads_note_what_they_begin(path: str) -> None:
    slots = RunSlots(path)
    table = slots.beside(0, 64)

    def work(first: int) -> None:
        for fence in range(first, first + 500):
            place = table.begin("here", fence)
            assert (HERE, fence) in slots.begun(0).running
            table.end(place)

    threads = [threading.Thread(target=work, args=(1 + 1_000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert slots.begun(0).running == frozenset()


def test_the_main_thread_began_all_before_the_last_one_in_the_order_of_its_mail() -> None:
    begun = Begun(frozenset({(HERE, 3)}), frozenset(), (HERE, 3))

    running, ended = begun.of(
        [(("here", 1), True), (("there", 9), False), (("here", 3), True), (("here", 4), True)]
    )

    assert (running, ended) == ({("here", 3)}, {("here", 1)})
