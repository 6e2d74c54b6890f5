"""Ends that are easily missed: a stop that outlives its delivery, a purge, a duplicate at a full queue."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from mqworker import App, Context, Job, JobStatus, Unique, chain
from mqworker.errors import QueueFull, StillRunning, TaskCancelled
from mqworker.model.clock import SystemClock
from mqworker.model.instant import At
from mqworker.model.message import Message
from mqworker.model.names import MessageId
from mqworker.queues.work.queue import WorkQueue
from tests.support.deadline import wait_until
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.messages import a_message
from tests.support.raw_queue import RawQueue


@pytest.fixture
def queue(app: App) -> WorkQueue:
    """The queue of its tasks."""
    return app.work_queue()


def awaited(job: Job[object], raw: RawQueue) -> Future[object]:
    """What a waiter gets; he waits already."""
    future: Future[object] = Future()

    def wait() -> None:
        try:
            future.set_result(job.result(timeout=60))
        except Exception as error:  # noqa: BLE001 - told to the test
            future.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    wait_until(lambda: raw.client.sismember(raw.key("waiters"), job.id), "the wait is known to the server")
    return future


def ask_to_stop(job: Job[object]) -> None:
    """Cancel a job that somebody holds, and do not wait for what he does."""
    with pytest.raises(StillRunning):
        job.cancel(timeout=0)


def end_leases(raw: RawQueue) -> None:
    for fence in raw.client.zrange(raw.key("leases"), 0, -1):
        raw.client.zadd(raw.key("leases"), {fence: 1})


@pytest.mark.parametrize("way", ["reclaim", "reap"])
def test_a_job_that_was_asked_to_stop_does_not_come_back_when_its_worker_is_lost(
    app: App, queue: WorkQueue, raw: RawQueue, way: str
) -> None:
    ran: list[int] = []

    @app.task(name="t", unique="{number}")
    def task(number: int) -> None:
        ran.append(number)

    stopped, other = task.enqueue(1), task.enqueue(2)
    queue.claim(2, consumer="lost" if way == "reap" else None)
    waiting = awaited(stopped, raw)

    ask_to_stop(stopped)
    if way == "reap":
        assert queue.reap("lost", silent_ms=0) == 2
    else:
        end_leases(raw)
        assert queue.reclaim() == (2, 0)
    HandWorker(app).run_all()

    with pytest.raises(TaskCancelled):
        waiting.result(60)
    assert ran == [2]
    assert (stopped.status(), other.status()) == (JobStatus.CANCELLED, JobStatus.SUCCEEDED)
    assert task.enqueue(1).is_new
    assert queue.counts().totals["cancelled"] == 1


def test_a_lost_member_that_was_asked_to_stop_ends_its_workflow(app: App, queue: WorkQueue) -> None:
    task, broker = app.task(name="t")(lambda number: number), HandBroker(app)
    job = chain(task.s(1), task.s()).enqueue()
    broker.round()
    queue.claim(1, consumer="lost")

    ask_to_stop(app.job(f"{job.id}~0"))
    queue.reap("lost", silent_ms=0)
    broker.round()

    with pytest.raises(TaskCancelled):
        job.result(timeout=60)


def test_a_job_that_went_back_to_its_line_while_it_was_cancelled_is_taken_out_there(
    app: App, queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = app.task(name="t")(lambda: 1).enqueue()
    queue.claim(1, consumer="lost")
    request = queue.calls.request_cancel

    def lose_it_first(message: MessageId) -> object:
        queue.reap("lost", silent_ms=0)
        return request(message)

    monkeypatch.setattr(queue.calls, "request_cancel", lose_it_first)

    assert job.cancel()
    assert job.status() is JobStatus.CANCELLED
    assert HandWorker(app).run_all() == []


def test_the_next_delivery_of_a_job_sees_a_stop_that_was_asked_of_the_one_before(
    app: App, queue: WorkQueue
) -> None:
    seen: list[bool] = []

    @app.task
    def look(ctx: Context) -> None:
        seen.append(ctx.is_cancelled)
        ctx.stop_if_cancelled()

    job = look.enqueue()
    queue.store.run(queue.calls.request_cancel(job.id))  # too late for the one before, too early for this one
    HandWorker(app).run_all()

    assert seen == [True]
    with pytest.raises(TaskCancelled):
        job.result(timeout=60)


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"priority": 5}, {"unique": True}])
def test_whoever_waits_for_a_purged_job_is_told_at_once(
    app: App, queue: WorkQueue, raw: RawQueue, options: dict[str, object]
) -> None:
    task = app.task(name="t")(lambda number: number).using(**options)  # type: ignore[arg-type] # as given above
    jobs = [task.enqueue(number) for number in range(5)]
    waiting = awaited(jobs[2], raw)

    assert queue.purge_waiting() == 5

    with pytest.raises(TaskCancelled):
        waiting.result(60)
    assert jobs[2].status() is JobStatus.CANCELLED
    assert jobs[1].status() is JobStatus.UNKNOWN  # nobody waited, so nothing is kept of it
    assert queue.counts().waiting == 0


def test_a_purge_leaves_those_alone_who_wait_for_a_job_in_hand(
    app: App, queue: WorkQueue, raw: RawQueue
) -> None:
    job = app.task(name="t")(lambda: 7).enqueue()
    (delivery,) = queue.claim(1)
    waiting = awaited(job, raw)

    assert queue.purge_waiting() == 0
    queue.settle(HandWorker(app).runner.run(delivery, "default"))

    assert waiting.result(60) == 7


def test_a_full_queue_still_gives_the_job_that_is_there(app: App, queue: WorkQueue) -> None:
    app.queue("default", limit=2)
    queue.limit(2)
    task = app.task(name="t")(lambda number: number)
    unique, debounced = task.using(unique=True), task.using(unique=Unique(keep="last", delay=60))
    first, last = unique.enqueue(1), debounced.enqueue(2)

    again, later, chosen = unique.enqueue(1), debounced.enqueue(2), task.using(id="order-7")

    assert (again.id, again.is_new, later.id, later.is_new) == (first.id, False, last.id, False)
    for refused in (lambda: unique.enqueue(3), lambda: chosen.enqueue(4), lambda: task.enqueue(5)):
        with pytest.raises(QueueFull):
            refused()
    assert queue.counts().waiting == 2


def test_of_a_batch_only_what_would_be_stored_needs_room(app: App, queue: WorkQueue) -> None:
    task = app.task(name="t", unique=True)(lambda number: number)
    task.enqueue(1)
    queue.limit(2)

    jobs = task.enqueue_many([(1,), (2,), (2,), (1,)])

    assert [job.is_new for job in jobs] == [False, True, False, False]
    with pytest.raises(QueueFull):
        task.enqueue_many([(1,), (3,)])
    assert queue.counts().waiting == 2


def test_an_expired_job_in_the_line_holds_no_key_however_long_it_lies_there(
    app: App, queue: WorkQueue, raw: RawQueue
) -> None:
    task = app.task(name="t", unique=True)(lambda: 1)
    first = task.using(deadline=0.001).enqueue()
    wait_until(lambda: queue.expire() == 1, "its deadline passes")

    for _ in range(2):  # its result is rotated away
        raw.client.hset(raw.key("meta"), "rotated_at_ms", 0)
        queue.rotate_results()
    second, third = task.enqueue(), task.enqueue()

    assert (second.is_new, third.is_new, third.id) == (True, False, second.id)
    assert len(HandWorker(app).run_all()) == 1
    assert task.enqueue().is_new
    assert first.status() is JobStatus.UNKNOWN
    assert raw.client.exists(raw.key("over")) == 0


def test_a_deadline_of_a_message_that_never_was_does_no_lasting_harm(queue: WorkQueue, raw: RawQueue) -> None:
    raw.client.zadd(raw.key("deadlines"), {"nobody": 1})

    assert queue.expire() == 1
    assert queue.counts().ready == 0
    assert queue.repair() == 1

    queue.enqueue(a_message())
    assert (queue.counts().ready, queue.repair()) == (1, 0)


def test_holes_of_the_line_are_no_reason_to_repair(queue: WorkQueue) -> None:
    now_ms = SystemClock().now_ms()
    message: Message = a_message(deadline=At(now_ms - 1))
    queue.enqueue(message)
    queue.expire()

    assert (queue.counts().ready, queue.repair(), queue.claim(1)) == (0, 0, [])
    assert queue.repair() == 0
