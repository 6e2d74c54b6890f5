"""Who is given the next delivery, how long tasks are expected to run, and how many make a batch."""

from __future__ import annotations

from mqworker.actors.dispatcher.run_times import BATCH_MS, LARGEST_BATCH, LONG_LINE_BATCH_MS, RunTimes
from mqworker.actors.dispatcher.workers import Flight, Workers, WorkerState


def a_flight(expected_ms: float = 1.0, *, is_alone: bool = False, is_async: bool = False) -> Flight:
    return Flight("default", b"", expected_ms, is_alone, is_async)


def some_workers(*names: str) -> Workers:
    workers = Workers()
    for name in names:
        workers.join(name).is_ready = True
    return workers


def chosen(worker: WorkerState | None) -> str | None:
    return None if worker is None else worker.name


def test_nobody_is_chosen_before_a_worker_is_ready() -> None:
    workers = Workers()
    workers.join("worker:0")

    assert workers.choose(1.0, is_async=False) is None
    assert workers.room(10) == 0


def test_the_worker_with_least_work_before_it_is_chosen() -> None:
    workers = some_workers("worker:0", "worker:1")
    workers["worker:0"].take(1, a_flight(5.0))

    assert chosen(workers.choose(1.0, is_async=False)) == "worker:1"


def test_a_worker_is_given_two_batches_ahead_and_no_more() -> None:
    workers = some_workers("worker:0")
    workers["worker:0"].take(1, a_flight(19.5))

    assert chosen(workers.choose(0.5, is_async=False)) == "worker:0"
    assert workers.choose(1.0, is_async=False) is None


def test_nothing_is_put_behind_a_slow_delivery() -> None:
    workers = some_workers("worker:0")
    workers["worker:0"].take(1, a_flight(10.0, is_alone=True))

    assert workers.choose(0.1, is_async=False) is None
    assert workers.room(100) == 0


def test_a_slow_or_unknown_delivery_goes_only_to_an_idle_worker() -> None:
    workers = some_workers("worker:0", "worker:1")
    workers["worker:0"].take(1, a_flight(0.1))

    assert chosen(workers.choose(None, is_async=False)) == "worker:1"
    workers["worker:1"].take(2, a_flight(10.0, is_alone=True))
    assert workers.choose(None, is_async=False) is None


def test_async_deliveries_do_not_count_as_work_of_the_main_thread() -> None:
    workers = some_workers("worker:0")
    workers["worker:0"].concurrency = 2
    workers["worker:0"].take(1, a_flight(10.0, is_async=True))

    assert chosen(workers.choose(None, is_async=True)) == "worker:0"
    assert chosen(workers.choose(None, is_async=False)) == "worker:0"
    workers["worker:0"].take(2, a_flight(10.0, is_async=True))
    assert workers.choose(None, is_async=True) is None


def test_a_worker_that_leaves_is_given_nothing() -> None:
    workers = some_workers("worker:0")
    workers["worker:0"].is_leaving = True

    assert workers.choose(0.1, is_async=False) is None
    assert workers.choose(None, is_async=True) is None
    assert workers.room(100) == 0


def test_a_reported_delivery_makes_room_again() -> None:
    workers = some_workers("worker:0")
    worker = workers["worker:0"]
    worker.take(1, a_flight(10.0, is_alone=True))

    dropped = worker.drop("default", 1)

    assert dropped is not None
    assert worker.drop("default", 1) is None
    assert (worker.busy_ms, worker.alone, worker.flights) == (0.0, 0, {})
    assert chosen(workers.choose(None, is_async=False)) == "worker:0"


def test_a_worker_is_not_given_more_bytes_than_its_pipe_may_hold() -> None:
    workers = some_workers("worker:0")
    long = Flight("default", b"x" * 1_000_000, 0.01, is_alone=False, is_async=False)
    given = 0
    while given < 100 and (worker := workers.choose(0.01, is_async=False)) is not None:
        given += 1
        worker.take(given, long)
    in_all = [workers.choose(None, is_async=False), workers.choose(0.01, is_async=True)]
    for fence in range(1, given + 1):
        workers["worker:0"].drop("default", fence)

    assert given == 34, "32 MiB and one more; the mailbox gives a peer up at 64"
    assert in_all == [None, None]
    assert workers["worker:0"].busy_bytes == 0
    assert workers.choose(0.01, is_async=False) is not None


def test_who_waits_for_an_idle_worker_keeps_the_one_that_is_idle_soonest() -> None:
    workers = some_workers("worker:0", "worker:1", "worker:2")
    workers["worker:0"].take(1, a_flight(10.0))
    workers["worker:1"].take(2, a_flight(5.0))
    workers["worker:2"].take(3, a_flight(50.0, is_alone=True))

    first, second = workers.keep_one(), workers.keep_one()
    kept = [worker.name for worker in workers if worker.is_kept]
    quick = workers.choose(0.1, is_async=False)
    workers.end_keeping()

    assert (first, kept) == (True, ["worker:1"])
    assert not second, "half of the workers at the most are kept"
    assert chosen(quick) == "worker:0"
    assert chosen(workers.choose(0.1, is_async=False)) == "worker:1"


def test_what_runs_alone_takes_as_long_as_it_takes_and_is_not_waited_for() -> None:
    workers = some_workers("worker:0")
    workers["worker:0"].take(1, a_flight(50.0, is_alone=True))

    assert not workers.keep_one()


def test_the_only_worker_may_be_kept() -> None:
    workers = some_workers("worker:0")
    workers["worker:0"].take(1, a_flight(5.0))

    assert workers.keep_one()
    assert workers.choose(0.1, is_async=False) is None


def mixed_workers() -> Workers:
    workers = some_workers("worker:0", "worker:1")
    workers["worker:0"].tasks = {"pay": {"version": "v1"}}
    workers["worker:1"].tasks = {"pay": {"version": "v2"}, "mail": {"version": "v1"}}
    workers.compare()
    return workers


def test_of_workers_with_different_code_only_those_that_know_a_task_are_given_it() -> None:
    workers = mixed_workers()

    assert workers.is_mixed
    assert {chosen(workers.choose(1.0, is_async=False, task=b"mail")) for _ in range(5)} == {"worker:1"}
    assert workers.choose(1.0, is_async=False, task=b"unknown") is None


def test_what_a_node_knows_is_what_its_workers_know_that_take_work() -> None:
    workers = mixed_workers()

    assert workers.known_versions() == {"pay": "-", "mail": "v1"}, "of several versions, any call may fit one"
    assert (workers.knows(b"mail"), workers.knows(b"unknown")) == (True, False)

    workers.retire("worker:1")
    assert (workers.knows(b"mail"), workers.known_versions()) == (False, {"pay": "v1"})

    workers.leave("worker:0")
    assert workers.knows(b"mail"), "nobody is there to be asked"


def test_who_wants_to_leave_is_kept_while_nobody_could_take_its_place() -> None:
    workers = Workers()
    worker = workers.join("worker:0")
    worker.is_ready = True
    workers.keep(are_kept=True)

    workers.retire("worker:0")
    is_kept = worker.has_room_alone()
    workers.keep(are_kept=False)

    assert is_kept
    assert worker.is_leaving


def test_who_does_not_want_to_leave_stays_when_all_may_go_again() -> None:
    workers = Workers()
    workers.join("worker:0")

    workers.keep(are_kept=True)
    workers.keep(are_kept=False)

    assert not workers["worker:0"].is_leaving


def test_a_task_that_was_never_seen_has_no_expectation_and_travels_alone() -> None:
    times = RunTimes()

    assert times.of(b"shop.resize") is None
    assert times.batch_size() == 1


def test_a_batch_holds_about_ten_milliseconds_of_work() -> None:
    times = RunTimes()

    times.note({"shop.price": (100, 50.0)})

    assert times.of(b"shop.price") == 0.5
    assert times.batch_size() == 20


def test_a_batch_has_an_upper_bound_however_quick_the_task_is() -> None:
    times = RunTimes()

    times.note({"shop.noop": (1_000, 0.0)})

    assert times.batch_size() == LARGEST_BATCH


def test_a_slow_task_is_travelling_alone_after_its_first_run() -> None:
    times = RunTimes()

    times.note({"shop.report": (1, 5_000.0)})

    assert times.batch_size() == 1


def test_an_expectation_rises_at_once_and_falls_slowly() -> None:
    times = RunTimes()

    times.note({"shop.price": (1, 1.0)})
    times.note({"shop.price": (1, 100.0)})
    risen = times.of(b"shop.price")
    times.note({"shop.price": (1, 0.0)})
    fallen = times.of(b"shop.price")

    assert risen == 100.0
    assert fallen == 80.0


def test_a_batch_holds_more_work_while_a_line_is_long_but_not_more_tasks() -> None:
    slow, quick = RunTimes(), RunTimes()
    slow.note({"task": (10, 100.0)})
    quick.note({"task": (100, 1.0)})

    assert slow.batch_ms(is_line_long=False) == BATCH_MS
    assert slow.batch_ms(is_line_long=True) == LONG_LINE_BATCH_MS
    assert quick.batch_ms(is_line_long=True) == BATCH_MS
    assert RunTimes().batch_ms(is_line_long=True) == BATCH_MS
    assert slow.batch_size(batch_ms=LONG_LINE_BATCH_MS) == 4
