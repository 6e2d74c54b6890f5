"""What no worker here can run soon goes back, or is parked."""

from pathlib import Path

import pytest

from mqworker.actors.dispatcher.give_back import MOST_ASKED_FOR
from mqworker.actors.dispatcher.hand_out import LONGEST_WAIT_MS
from mqworker.actors.dispatcher.queue import LARGEST_CLAIM
from mqworker.actors.mail import PeerAttached, RunDeliveries, WorkerReady
from mqworker.model.record import LARGEST_RECORD_BYTES
from tests.support.dispatcher_stage import Stage, a_record


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_what_finds_no_worker_is_given_back_in_order_and_fewer_are_claimed(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={})
    stage.store.line = [a_record(0)]
    stage.finish("worker:0", stage.turn()[0])
    stage.store.line = [a_record(number).replace(b" task ", b" slow ") for number in range(64)]

    stage.turn(passed_ms=1_000)  # one of them runs, for long
    stage.store.settled.clear()
    stage.turn(passed_ms=LONGEST_WAIT_MS + 1)
    stage.turn()

    (released,) = stage.store.settled
    fences = [int(released[at + 1]) for at, part in enumerate(released) if part == "again"]
    assert len(fences) == 63
    assert fences == sorted(fences), "settle.lua puts the first of them to the very front"
    assert stage.dispatcher._queues["default"]._appetite == 1


def test_what_is_given_back_is_given_back_together_so_that_nothing_overtakes_it(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={}, web={"async": True})
    tasks = stage.dispatcher._workers["worker:0"].tasks
    stage.mail(WorkerReady(tasks, {"default": {"weight": 1}}, 1, 50), "worker:0")
    slow = [a_record(number).replace(b" task ", b" slow ") for number in range(4)]
    for number in range(4):  # the first runs; the others come one by one, while the event loop has room
        queue = stage.dispatcher._queues["default"]
        queue._left_over, queue.may_have_messages = 0, True
        stage.store.line = [slow[number]]
        stage.turn(passed_ms=20)
    stage.store.settled.clear()

    stage.turn(passed_ms=LONGEST_WAIT_MS - 30)  # only the oldest is overdue
    stage.turn()

    (released,) = stage.store.settled
    fences = [int(released[at + 1]) for at, part in enumerate(released) if part == "again"]
    assert fences == [2, 3, 4]


def test_what_waits_too_long_is_given_back_though_others_came_after_it(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={}, web={"async": True})
    stage.mail(
        WorkerReady(stage.dispatcher._workers["worker:0"].tasks, {"default": {"weight": 1}}, 1, 50),
        "worker:0",
    )
    stage.set_appetite(LARGEST_CLAIM)
    stage.store.line = [a_record(number).replace(b" task ", b" slow ") for number in range(3)]
    stage.turn()  # one runs, two wait

    for number in range(4):  # work for the event loop comes all the time
        stage.store.line = [a_record(10 + number).replace(b" task ", b" web ")]
        stage.turn(passed_ms=1_000)

    released = [settled for settled in stage.store.settled if "again" in settled]
    assert sum(settled.count("again") for settled in released) >= 2


def test_a_busy_node_with_a_free_event_loop_does_not_hoard_what_it_cannot_run(stage: Stage) -> None:
    stage.hire("worker:0", slow={}, web={"async": True})
    tasks = stage.dispatcher._workers["worker:0"].tasks
    stage.mail(WorkerReady(tasks, {"default": {"weight": 1}}, 1, 100), "worker:0")
    stage.set_appetite(1)
    stage.store.line = [a_record(number).replace(b" task ", b" slow ") for number in range(500)]
    most_held = released = 0

    for _ in range(300):  # three seconds in which one of them runs
        stage.turn(passed_ms=10)
        released = sum(settled.count("again") for settled in stage.store.settled)
        most_held = max(most_held, 500 - len(stage.store.line) - released)

    assert most_held <= 3, "one runs, and one or two are looked at"
    assert released <= 6, "about one a second"
    assert stage.dispatcher.next_turn_in_ms(stage.now_ms) > 0, "and the loop is at rest meanwhile"


def test_what_no_worker_knows_is_parked_without_asking_one(stage: Stage) -> None:
    stage.hire("worker:0", task={})
    stage.store.line = [a_record(1).replace(b" task ", b" gone "), a_record(2)]

    posts = [*stage.turn(), *stage.turn()]

    handed = [post.mail.records for post in posts if isinstance(post.mail, RunDeliveries)]
    assert handed == [[a_record(2)]]
    (parked,) = [settled for settled in stage.store.settled if "park" in settled]
    at = parked.index("park")
    assert parked[at + 3] == "-", "the mark of an unknown task"


def asked_for(stage: Stage) -> dict[str, set[str]]:
    """By queue, the tasks whose parked messages the claims since the last time asked for."""
    asked: dict[str, set[str]] = {}
    for call in [call for calls in stage.store.attempts for call in calls if call.script.name == "claim"]:
        asked.setdefault(call.keys[0], set()).update(map(str, call.arguments[6::2]))
    stage.store.attempts.clear()
    return asked


def test_with_thousands_of_tasks_and_queues_each_queue_is_asked_for_its_own_and_by_turns_for_all(
    stage: Stage,
) -> None:
    size = 200
    usual = {"async": False, "once": False, "limited": False, "retries": 3}
    tasks = {f"task{number}": {**usual, "queue": f"queue{number}"} for number in range(size)}
    stage.mail(PeerAttached("worker:0"))
    stage.mail(WorkerReady(tasks, {f"queue{number}": {} for number in range(size)}, 1, 1), "worker:0")
    in_full: set[str] = set()
    for _ in range(size * size // MOST_ASKED_FOR + 1):
        stage.turn(1_000)
        while stage.dispatcher.next_turn_in_ms(stage.now_ms) == 0:
            stage.turn()
        asked = asked_for(stage)
        assert len(asked) == size
        assert all(f"task{key.split('queue')[1].split('}')[0]}" in names for key, names in asked.items())
        assert sum(map(len, asked.values())) <= 2 * (MOST_ASKED_FOR + size)
        in_full |= {key for key, names in asked.items() if len(names) == size}

    assert len(in_full) == size


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_no_pipe_can_carry_is_buried_and_the_others_run(stage: Stage, place: int) -> None:
    stage.hire("worker:0", task={})
    records = [a_record(number) for number in range(3)]
    records[place] += b"x" * LARGEST_RECORD_BYTES
    stage.store.line = records

    handed_out: list[bytes] = []
    for _ in range(4):
        for post in stage.turn():
            if isinstance(post.mail, RunDeliveries):
                handed_out += post.mail.records
                stage.finish("worker:0", post)

    assert [each[:100] for each in handed_out] == [a_record(number) for number in range(3) if number != place]
    assert "bury" in [part for each in stage.store.settled for part in each]
