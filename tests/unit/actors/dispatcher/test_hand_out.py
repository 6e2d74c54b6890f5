"""Who gets what: batches, and what must run alone, for which nobody starves."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.give_back import LONGEST_PAUSE_MS
from mqworker.actors.dispatcher.hand_out import LONGEST_WAIT_ALONE_MS, MOST_WAITING_ALONE
from mqworker.actors.dispatcher.lost_workers import EVIDENCE_WAIT_MS
from mqworker.actors.dispatcher.queue import Claimed
from mqworker.actors.dispatcher.workers import SHORTEST_PATIENCE_MS, Flight
from mqworker.actors.mail import (
    DeliveriesFinished,
    DeliveriesReturned,
    Drain,
    PeerAttached,
    PeerLost,
    RunDeliveries,
    WorkerExited,
    WorkerReady,
)
from mqworker.errors import StoreUnavailable
from tests.support.dispatcher_stage import Stage, a_record

SUSPECT = b"0S"
CRASHED = b"01"
LOST = b"20"
"""As often as the tasks of this stage may be lost."""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def hire(stage: Stage, *workers: str, concurrency: int = 100, threads: int = 1) -> None:
    usual = {"queue": "default", "once": False, "limited": False, "retries": 3, "max_losses": 2}
    tasks = {name: {**usual, "async": name == "atask"} for name in ("task", "atask")}
    tasks["once"] = {**usual, "async": False, "once": True}
    for worker in workers:
        stage.mail(PeerAttached(worker))
        stage.mail(WorkerReady(tasks, {"default": {"weight": 1}}, threads, concurrency), worker)
    stage.set_appetite(1_000)


def marked(number: int, marks: bytes = SUSPECT, task: str = "task") -> bytes:
    return b"17000000000000--3000000%bid%d %b body" % (marks, number, task.encode())


def ordinary(*numbers: int, task: str = "task") -> list[bytes]:
    return [marked(number, b"00", task) for number in numbers]


def given(posts: list[Post]) -> dict[str, list[str]]:
    """The ids that each worker was handed."""
    ids: dict[str, list[str]] = {}
    for post in posts:
        if isinstance(post.mail, RunDeliveries):
            ids.setdefault(post.to, []).extend(
                record[25:].split(b" ")[0].decode() for record in post.mail.records
            )
    return ids


def others_of(stage: Stage) -> list[tuple[Any, ...]]:
    """All 'again' and 'bury' of what was settled: verdict, fence, due, failures, crashes."""
    found = []
    for arguments in stage.store.settled:
        for at, argument in enumerate(arguments):
            if argument in ("again", "bury"):
                found.append(tuple(arguments[at : at + 5]))
    return found


def arrive(stage: Stage, *records: bytes) -> None:
    """Messages come, and the dispatcher is woken."""
    stage.store.line += records
    stage.dispatcher._queues["default"].may_have_messages = True


def teach(stage: Stage, run_ms: float = 0.01) -> None:
    """It is known from now on how quick the task is."""
    arrive(stage, a_record(900))
    (post,) = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]
    stage.finish(post.to, post, run_ms)
    stage.turn()


@pytest.mark.parametrize("task", ["task", "atask"])
@pytest.mark.parametrize("marks", [SUSPECT, CRASHED])
def test_a_suspect_is_handed_out_alone_and_nothing_is_added_until_it_has_ended(
    stage: Stage, task: str, marks: bytes
) -> None:
    hire(stage, "worker:0", threads=4)
    teach(stage)
    arrive(stage, marked(1, marks, task))
    alone = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]
    arrive(stage, *ordinary(2, 3), *ordinary(4, 5, task="atask"))

    while_it_runs = given(stage.turn(50))
    stage.finish("worker:0", alone[0])
    afterwards = given(stage.turn())

    assert given(alone) == {"worker:0": ["id1"]}
    assert while_it_runs == {}
    assert afterwards == {"worker:0": ["id2", "id3", "id4", "id5"]}


def test_an_idle_node_gives_each_suspect_a_worker_of_its_own(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1", "worker:2")
    arrive(stage, marked(1), marked(2), marked(3, task="atask"))

    handed = given(stage.turn())

    assert sorted(handed.values()) == [["id1"], ["id2"], ["id3"]]


def test_while_a_suspect_runs_its_worker_gets_nothing_else_and_others_get_all(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    teach(stage)
    arrive(stage, marked(1))
    (alone,) = given(stage.turn())
    arrive(stage, *ordinary(*range(10, 30)), *ordinary(*range(30, 40), task="atask"))

    handed = given(stage.turn(1_000))

    assert alone not in handed
    assert handed


def test_a_worker_is_emptied_for_a_suspect_while_the_others_go_on(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    arrive(stage, *ordinary(*range(10, 20), task="atask"))
    before = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]
    arrive(stage, marked(1))
    nobody = given(stage.turn())
    reserved = [worker.name for worker in stage.dispatcher._workers if worker.is_reserved]
    arrive(stage, *ordinary(*range(20, 30), task="atask"))
    meanwhile = given(stage.turn())
    for post in before:
        if post.to == reserved[0]:
            stage.finish(post.to, post)

    emptied = given(stage.turn())

    assert nobody == {}
    assert len(reserved) == 1
    assert reserved[0] not in meanwhile
    assert len(meanwhile) == 1
    assert emptied == {reserved[0]: ["id1"]}


def test_the_only_worker_is_shared_by_turns(stage: Stage) -> None:
    hire(stage, "worker:0")
    teach(stage, run_ms=1.0)
    arrive(stage, *(marked(number) for number in range(1, 6)), *ordinary(*range(100, 900)))
    order: list[str] = []
    running: list[Post] = []
    for _ in range(100):
        for post in running:
            stage.finish("worker:0", post, run_ms=1.0)
        running = [post for post in stage.turn(20) if isinstance(post.mail, RunDeliveries)]
        order += given(running).get("worker:0", [])

    suspects = [order.index(f"id{number}") for number in range(1, 6)]

    assert len(order) == len(set(order))
    assert max(suspects) < 600, "suspects wait for the end of the line"
    assert all(later - former > 1 for former, later in pairwise(suspects)), "the line waits for all suspects"


def test_half_of_the_workers_at_the_most_are_kept_from_others(stage: Stage) -> None:
    workers = [f"worker:{number}" for number in range(6)]
    hire(stage, *workers)
    arrive(stage, *ordinary(*range(10, 70), task="atask"))
    stage.turn()
    arrive(stage, *(marked(number) for number in range(100, 120)))

    stage.turn()

    assert sum(worker.is_reserved for worker in stage.dispatcher._workers) == 3


def test_a_worker_is_not_kept_for_nothing(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    arrive(stage, *ordinary(*range(10, 20), task="atask"))
    running = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]
    arrive(stage, marked(1))
    stage.turn()
    (kept_free,) = [worker.name for worker in stage.dispatcher._workers if worker.is_reserved]
    for post in running:
        if post.to != kept_free:
            stage.finish(post.to, post)

    handed = given(stage.turn())  # another was empty first
    stage.turn()

    assert list(handed.values()) == [["id1"]]
    assert kept_free not in handed
    assert not stage.dispatcher._workers[kept_free].is_reserved


def test_a_suspect_waits_for_a_worker_that_is_being_emptied_and_the_others_step_back(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    arrive(stage, *ordinary(*range(10, 20), task="atask"))
    running = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]
    arrive(stage, marked(1), marked(2))
    stage.turn()
    (kept_free,) = [worker.name for worker in stage.dispatcher._workers if worker.is_reserved]

    stage.turn(LONGEST_WAIT_ALONE_MS + 1)
    stage.turn()
    for post in running:
        if post.to == kept_free:
            stage.finish(post.to, post)
    emptied = given(stage.turn())

    assert others_of(stage) == [("again", 12, f"+{LONGEST_WAIT_ALONE_MS + 1}", 0, 0)]
    assert emptied == {kept_free: ["id1"]}


def test_a_worker_that_does_not_get_empty_is_shared_half_and_half(stage: Stage) -> None:
    hire(stage, "worker:0")
    arrive(stage, *ordinary(10, task="atask"))  # which runs for hours
    stage.turn()
    worker = stage.dispatcher._workers["worker:0"]
    was_reserved, longest, so_far = [], 0, 0
    for number in range(1_200):
        arrive(stage, *([marked(number)] if not stage.dispatcher._hand_out.waiting_alone else []))
        stage.turn(100)
        was_reserved.append(worker.is_reserved)
        so_far = so_far + 1 if worker.is_reserved else 0
        longest = max(longest, so_far)

    assert 0.3 < sum(was_reserved) / len(was_reserved) < 0.7
    assert longest * 100 > 10 * SHORTEST_PATIENCE_MS


def test_hundreds_of_suspects_step_back_behind_the_others(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    teach(stage)
    arrive(stage, *(marked(number) for number in range(1, 301)), *ordinary(*range(1_000, 1_010)))
    handed: list[str] = []
    for _ in range(20):
        for ids in given(stage.turn()).values():
            handed += ids

    parked = [fence for verdict, fence, due, _, _ in others_of(stage) if verdict == "again" and due]

    assert stage.dispatcher._hand_out.waiting_alone <= MOST_WAITING_ALONE
    assert len(parked) >= 300 - MOST_WAITING_ALONE - 2
    assert {f"id{number}" for number in range(1_000, 1_010)} <= set(handed)


def test_the_longer_one_runs_alone_the_longer_the_others_step_back(stage: Stage) -> None:
    hire(stage, "worker:0")
    arrive(stage, marked(1), marked(2))
    stage.turn()

    stage.turn(10 * LONGEST_PAUSE_MS)
    stage.turn()

    assert others_of(stage) == [("again", 2, f"+{LONGEST_PAUSE_MS}", 0, 0)]


def test_a_drain_gives_suspects_back_uncounted(stage: Stage) -> None:
    hire(stage, "worker:0")
    arrive(stage, *ordinary(*range(10, 12), task="atask"))
    stage.turn()
    arrive(stage, marked(1))
    stage.turn()

    stage.mail(Drain(5_000))
    stage.turn()
    stage.turn()

    assert ("again", 3, "", 0, 0) in others_of(stage)


def test_a_suspect_that_is_returned_unbegun_waits_for_an_empty_worker_again(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    arrive(stage, marked(1))
    (worker,) = given(stage.turn())

    stage.mail(DeliveriesReturned("default", [1]), worker)

    assert list(given(stage.turn()).values()) == [["id1"]]


def test_suspects_are_known_by_the_reconciliation(stage: Stage) -> None:
    hire(stage, "worker:0")
    arrive(stage, *ordinary(10, task="atask"))
    stage.turn()
    arrive(stage, marked(1))
    stage.turn()

    assert stage.dispatcher._hand_out.fences_of(stage.dispatcher._queues["default"]) == {2}


def on_probation(stage: Stage) -> list[int]:
    return [int(call.arguments[0]) for call in stage.store.ran if call.script.name == "begin_probation"]


def test_what_was_lost_too_often_runs_on_probation_one_at_a_time(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    arrive(stage, marked(1, LOST), marked(2, LOST), marked(3, b"10"))

    first = given(stage.turn())
    later = given(stage.turn(20))

    assert on_probation(stage) == [1]
    assert sorted(first.values()) == [["id1"], ["id3"]]
    assert later == {}


def test_the_next_one_begins_its_probation_when_the_first_has_ended(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    arrive(stage, marked(1, LOST), marked(2, LOST))
    (post,) = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]
    stage.finish(post.to, post)

    stage.turn()

    assert on_probation(stage) == [1, 2]


def test_without_the_server_nobody_begins_a_probation(stage: Stage) -> None:
    hire(stage, "worker:0")
    arrive(stage, marked(1, LOST))
    stage.store.run_trouble = StoreUnavailable("away")
    before = given(stage.turn())
    stage.store.run_trouble = None

    after = given(stage.turn(300))

    assert (before, after) == ({}, {"worker:0": ["id1"]})


def test_a_delivery_whose_lease_was_lost_begins_no_probation(stage: Stage) -> None:
    hire(stage, "worker:0")
    arrive(stage, marked(1, LOST))
    stage.store.is_lease_lost = True

    assert given(stage.turn()) == {}
    assert given(stage.turn(LONGEST_WAIT_ALONE_MS + 1)) == {}
    assert stage.dispatcher._hand_out.waiting_alone == 0


def test_below_the_limit_a_loss_changes_nothing(stage: Stage) -> None:
    hire(stage, "worker:0")
    teach(stage)
    arrive(stage, marked(1, b"10"), *ordinary(2, 3))

    handed = given(stage.turn())

    assert handed == {"worker:0": ["id1", "id2", "id3"]}


def test_a_lone_run_that_kills_its_worker_is_a_crash(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1")
    arrive(stage, marked(1, task="atask"))
    (worker,) = given(stage.turn())
    table = stage.slots.beside(int(worker[-1]), 10)
    table.begin("default", 1)

    stage.mail(WorkerExited(worker, "SIGSEGV", 0))
    stage.mail(PeerLost(worker))
    stage.turn(EVIDENCE_WAIT_MS)

    assert ("again", 1, "", 0, 1) in others_of(stage)


def test_what_ran_beside_others_in_a_worker_that_died_comes_back_as_a_suspect(stage: Stage) -> None:
    hire(stage, "worker:0")
    arrive(stage, *ordinary(1, 2, 3, task="atask"))
    stage.turn()
    table = stage.slots.beside(0, 10)
    table.begin("default", 1)
    table.begin("default", 3)

    stage.mail(PeerLost("worker:0"))
    stage.mail(WorkerExited("worker:0", "SIGKILL", 0))
    stage.turn()

    assert others_of(stage) == [
        ("again", 1, "", 0, "S"),
        ("again", 2, "", 0, 0),
        ("again", 3, "", 0, "S"),
    ]


def test_an_unknown_task_goes_out_one_at_a_time(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    stage.store.line = [a_record(number) for number in range(5)]

    posts = stage.turn()

    assert sorted(post.to for post in posts) == ["worker:0", "worker:1"]
    assert [len(cast(RunDeliveries, post.mail).fences) for post in posts] == [1, 1]
    assert len(stage.store.line) == 3


def test_quick_tasks_travel_in_batches_once_their_time_is_known(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(number) for number in range(2_000)]
    sizes: list[int] = []
    stage.set_appetite(1)

    while stage.store.line:
        post = stage.turn()[0]
        sizes.append(len(cast(RunDeliveries, post.mail).fences))
        stage.finish("worker:0", post)

    assert sizes[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 250]


def test_a_worker_with_free_threads_is_not_left_out(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={})
    worker = stage.dispatcher._workers["worker:0"]
    worker.threads = 4
    stage.store.line = [a_record(number).replace(b" task ", b" slow ") for number in range(2)]

    stage.turn()
    stage.turn()

    assert len(worker.flights) == 2
    assert worker.has_room_alone()


def test_what_a_worker_returns_goes_to_another_and_it_is_given_nothing_quick_meanwhile(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(number) for number in range(200)]
    stage.finish("worker:0", stage.turn()[0])
    batch = cast(RunDeliveries, stage.turn()[0].mail)

    stage.hire("worker:1")
    stage.mail(DeliveriesReturned("default", batch.fences[1:]), "worker:0")
    posts = stage.turn()
    is_slow = stage.dispatcher._workers["worker:0"].is_slow
    stage.mail(DeliveriesFinished("default", batch.fences[:1], ["done"], {}), "worker:0")

    given = [cast(RunDeliveries, post.mail).fences for post in posts]
    assert given == [batch.fences[1:]]
    assert [post.to for post in posts] == ["worker:1"]
    assert is_slow
    assert not stage.dispatcher._workers["worker:0"].is_slow


def test_what_must_run_alone_is_not_starved_by_quick_ones_on_an_overloaded_node(stage: Stage) -> None:
    """Each report makes room for more of the quick ones, so that no worker is ever idle by itself."""
    stage.hire("worker:0", "worker:1", task={}, slow={})
    slow = a_record(7).replace(b" task ", b" slow ")
    stage.store.line = [a_record(number) for number in range(600)]
    held: dict[str, list[int]] = {"worker:0": [], "worker:1": []}
    waits_since_ms, claims, was_claimed = 0, 0, False
    for turn in range(400):
        if turn == 40:
            stage.store.line = [slow, *stage.store.line]
            waits_since_ms = stage.now_ms
        for post in stage.turn(passed_ms=10):
            if not isinstance(post.mail, RunDeliveries):
                continue  # a report was accepted
            if slow in post.mail.records:
                break
            held[post.to] += post.mail.fences
        else:
            stage.store.line += [a_record(number) for number in range(600 - len(stage.store.line))]
            claims += was_claimed is False and turn > 40 and slow not in stage.store.line
            was_claimed = slow not in stage.store.line
            for worker, fences in held.items():
                done, held[worker] = fences[:5], fences[5:]  # half a millisecond of work in ten: overloaded
                if done:
                    stage.mail(
                        DeliveriesFinished("default", done, ["done"], {"task": (len(done), 0.05)}), worker
                    )
            if any("again" in call for call in stage.store.settled):
                stage.store.line = [slow, *stage.store.line]
            stage.store.settled.clear()
            continue
        break
    waited_ms = stage.now_ms - waits_since_ms
    assert waited_ms <= 1_000, f"it waited {waited_ms} ms and was claimed {claims} times"
    assert claims <= 2


def test_what_crashed_before_runs_with_nothing_beside_it(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(0)]
    stage.finish("worker:0", stage.turn()[0])
    stage.store.line = [a_record(1), a_record(2, crashes=1), a_record(3)]

    stage.turn(passed_ms=1_000)
    first = stage.dispatcher.facts()["in_flight"]

    assert first == 2, "the suspect waits until the worker is empty"


def test_what_nobody_began_takes_its_place_again_whoever_returns_it_first(stage: Stage) -> None:
    hire(stage, "worker:0")
    queue, hand_out = stage.dispatcher._queues["default"], stage.dispatcher._hand_out
    claimed = [Claimed(fence, record, 0) for fence, record in enumerate(ordinary(1, 2, 3, 4, 5))]

    hand_out.put(queue, claimed[3:])
    hand_out.put_back(queue, *claimed[:2])
    hand_out.put_back(queue, claimed[2])

    assert hand_out.take_all() == {queue: claimed}


def hand_out_of_ten_ms_each(stage: Stage, *workers: str, most: int) -> list[Post]:
    """Turns until each worker has what it may have, with the reports on the first ones."""
    hire(stage, *workers)
    arrive(stage, *ordinary(*range(most)))
    for _ in range(4):
        for post in [each for each in stage.turn(10) if isinstance(each.mail, RunDeliveries)]:
            stage.finish(post.to, post, run_ms=10.0)
    return [post for post in stage.turn(10) if isinstance(post.mail, RunDeliveries)]


def test_while_a_line_is_long_workers_get_more_work_and_report_less_often(stage: Stage) -> None:
    posts = hand_out_of_ten_ms_each(stage, "worker:0", "worker:1", most=1_000)

    batches = [cast(RunDeliveries, post.mail) for post in posts]

    assert [len(batch.fences) for batch in batches] == [5, 5]
    assert [batch.stint_ms for batch in batches] == [40, 40]
    assert all(worker.busy_ms <= 50.0 for worker in stage.dispatcher._workers)


def test_when_the_line_ends_nothing_waits_behind_others_while_a_worker_has_less(stage: Stage) -> None:
    hire(stage, "worker:0", "worker:1", "worker:2")
    teach(stage, run_ms=10.0)
    stage.dispatcher._workers.batch_ms = 40.0
    arrive(stage, *ordinary(*range(100, 106)))

    handed = given(stage.turn())

    assert sorted(map(len, handed.values())) == [2, 2, 2]


def test_once_the_line_has_ended_batches_are_small_again(stage: Stage) -> None:
    running = hand_out_of_ten_ms_each(stage, "worker:0", most=30)
    while running:
        for post in running:
            stage.finish(post.to, post, run_ms=10.0)
        running = [post for post in stage.turn(10) if isinstance(post.mail, RunDeliveries)]
    arrive(stage, *ordinary(500))

    (post,) = [each for each in stage.turn(1_000) if isinstance(each.mail, RunDeliveries)]

    assert cast(RunDeliveries, post.mail).stint_ms == 10


def test_what_has_a_permit_never_waits_for_a_long_batch(stage: Stage) -> None:
    hire(stage, "worker:0")
    worker, workers = stage.dispatcher._workers["worker:0"], stage.dispatcher._workers
    workers.batch_ms = 40.0
    for fence in (1, 2):
        worker.take(fence, Flight("default", b"", 10.0, is_alone=False, is_async=False))

    assert workers.choose(10.0, is_async=False) is worker
    assert workers.choose(10.0, is_async=False, has_permit=True) is None
