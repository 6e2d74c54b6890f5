"""Jobs: every wait ends, with the value or with a named reason; cancel, retry and progress."""

from __future__ import annotations

import asyncio
import threading

import pytest

import mqworker.tasks.job as jobs
from mqworker import App, Context, JobStatus, as_completed, wait_all
from mqworker.errors import (
    InvalidArgument,
    ResultNotKept,
    ResultTimeout,
    StoreUnavailable,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
)
from mqworker.tasks.running.progress import Progress
from tests.support.deadline import wait_until
from tests.support.hand_worker import HandWorker


@pytest.fixture
def worker(app: App) -> HandWorker:
    """Runs what the app enqueues."""
    return HandWorker(app)


def in_background(work: object) -> threading.Thread:
    assert callable(work)
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def waiters(app: App) -> int:
    """How many jobs somebody waits for, as the server knows it."""
    keys = app.work_queue().calls.keys
    reply = app.work_queue().store.send([("SCARD", keys.done)], keys.meta)[0]
    assert isinstance(reply, int)
    return reply


def test_a_result_that_comes_later_is_announced_and_not_polled_for(
    app: App, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_MS", 60_000)
    task = app.task(name="t")(lambda: 7)
    job = task.enqueue()
    results: list[int] = []
    thread = in_background(lambda: results.append(job.result(timeout=15)))
    wait_until(lambda: waiters(app) == 1, "the wait is known to the server")

    worker.run_all()
    thread.join(15)

    assert results == [7]


def test_a_lost_announcement_costs_a_moment_and_not_the_result(
    app: App, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_MS", 20)
    job = app.task(name="t")(lambda: 7).enqueue()
    results: list[int] = []
    thread = in_background(lambda: results.append(job.result(timeout=15)))
    wait_until(lambda: waiters(app) == 1, "the wait is known to the server")
    keys = app.work_queue().calls.keys
    app.work_queue().store.send([("DEL", keys.done)], keys.meta)  # nobody is told any more

    worker.run_all()
    thread.join(15)

    assert results == [7]


def test_a_failure_comes_back_as_data(app: App, worker: HandWorker) -> None:
    @app.task(retry=0)
    def fail() -> None:
        raise ValueError("no such order")

    job = fail.enqueue()
    worker.run_all()

    with pytest.raises(TaskFailed, match=r"failed \(failed\): ValueError: no such order") as failed:
        job.result(timeout=5)
    assert (failed.value.error, failed.value.message, failed.value.reason) == (
        "ValueError",
        "no such order",
        "failed",
    )
    assert 'raise ValueError("no such order")' in failed.value.traceback
    assert job.status() is JobStatus.FAILED


def test_a_failed_job_may_be_put_back_in_line(app: App, worker: HandWorker) -> None:
    broken = [True]

    @app.task(retry=0)
    def fragile() -> str:
        if broken:
            raise ValueError(broken.pop())
        return "mended"

    job = fragile.enqueue()
    worker.run_all()
    with pytest.raises(TaskFailed):
        job.result(timeout=5)

    assert job.retry()
    worker.run_all()

    assert job.result(timeout=5) == "mended"
    assert not job.retry()


def test_a_waiting_job_is_cancelled_at_once(app: App, worker: HandWorker) -> None:
    job, delayed = (task := app.task(name="t")(lambda: 1)).enqueue(), task.using(delay=60).enqueue()

    assert job.cancel()
    assert delayed.cancel()

    assert worker.run_all() == []
    assert job.status() is JobStatus.CANCELLED
    for each in (job, delayed):
        with pytest.raises(TaskCancelled):
            each.result(timeout=5)
    assert not job.cancel()


def test_a_job_whose_deadline_passed_has_expired(app: App, worker: HandWorker) -> None:
    job = app.task(name="t")(lambda: 1).using(deadline=0.001).enqueue()
    wait_until(lambda: job.status() is JobStatus.EXPIRED, "the deadline passes")

    assert worker.run_all() == []

    with pytest.raises(TaskExpired):
        job.result(timeout=5)


def test_an_expired_job_that_no_worker_reported_yet_ends_the_wait_too(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_MS", 20)
    monkeypatch.setattr(jobs, "FIRST_SEARCH_MS", 20)
    job = app.task(name="t")(lambda: 1).using(deadline=0.001).enqueue()

    with pytest.raises(TaskExpired):
        job.result(timeout=15)


def test_a_wait_ends_in_time_and_the_job_goes_on(app: App, worker: HandWorker) -> None:
    job = app.task(name="t")(lambda: 1).enqueue()

    with pytest.raises(ResultTimeout, match=r"did not end within 0\.01 s"):
        job.result(timeout=0.01)

    worker.run_all()
    assert job.result(timeout=5) == 1


def test_a_wait_of_no_time_at_all_looks_whether_the_job_has_ended(app: App, worker: HandWorker) -> None:
    job = app.task(name="t")(lambda: 1).enqueue()

    with pytest.raises(ResultTimeout):
        job.result(timeout=0)
    worker.run_all()

    assert job.result(timeout=0) == 1


def test_a_job_without_a_kept_result_ends_the_wait(app: App, worker: HandWorker) -> None:
    job = app.task(name="t", result_ttl=0)(lambda: 1).enqueue()
    problems: list[Exception] = []

    def wait() -> None:
        try:
            job.result(timeout=15)
        except ResultNotKept as error:
            problems.append(error)

    thread = in_background(wait)
    wait_until(lambda: waiters(app) == 1, "the wait is known to the server")
    worker.run_all()
    thread.join(15)

    assert len(problems) == 1
    assert job.status() is JobStatus.UNKNOWN


def test_a_job_that_never_was_ends_the_wait_at_once(app: App) -> None:
    with pytest.raises(ResultNotKept, match="there never was such a job"):
        app.job("nobody", "nowhere").result()


def test_a_job_is_found_by_its_id(app: App, worker: HandWorker) -> None:
    known = app.task(name="t", queue="q")(lambda: [1, 2]).enqueue()
    worker.run_all("q")

    assert app.job(known.id, "q").result(timeout=5) == [1, 2]
    with pytest.raises(InvalidArgument, match="id is"):
        app.job("a b")


def test_many_jobs_are_awaited_together(app: App, worker: HandWorker) -> None:
    @app.task(retry=0)
    def invert(number: int) -> float:
        return 1 / number

    jobs = invert.map(range(300))
    thread = in_background(worker.run_all)
    wait_all(jobs, timeout=15)
    thread.join(15)

    assert [job.result() for job in jobs[1:]] == [1 / number for number in range(1, 300)]
    with pytest.raises(TaskFailed):
        jobs[0].result()


def test_jobs_are_given_in_the_order_in_which_they_end(app: App, worker: HandWorker) -> None:
    task = app.task(name="t")(lambda: 1)
    late, early = task.using(queue="late").enqueue(), task.enqueue()
    worker.run_all()
    completed = as_completed([late, early], timeout=15)

    assert next(completed) is early
    worker.run_all("late")
    assert next(completed) is late
    with pytest.raises(ResultTimeout, match="1 of 1 jobs did not end"):
        wait_all([task.enqueue()], timeout=0.01)


def test_asyncio_waits_for_many_without_a_thread_each(app: App, worker: HandWorker) -> None:
    task = app.task(name="t")(lambda number: number)
    jobs = task.map(range(50))

    async def use() -> list[int]:
        waiting = asyncio.gather(*(job.aresult(timeout=15) for job in jobs))
        await asyncio.to_thread(worker.run_all)
        return await waiting

    assert asyncio.run(use()) == list(range(50))


def test_asyncio_waits_end_in_time(app: App) -> None:
    job = app.task(name="t")(lambda: 1).enqueue()

    with pytest.raises(ResultTimeout):
        asyncio.run(job.aresult(timeout=0.01))


def test_a_closed_app_ends_the_waits_of_others(app: App) -> None:
    job = app.task(name="t")(lambda: 1).enqueue()
    problems: list[Exception] = []

    def wait() -> None:
        try:
            job.result()
        except StoreUnavailable as error:
            problems.append(error)

    thread = in_background(wait)
    wait_until(lambda: waiters(app) == 1, "the wait is known to the server")
    app.close()
    thread.join(15)

    assert "the app was closed" in str(problems[0])


def test_progress_is_shown_while_the_task_runs(app: App, worker: HandWorker) -> None:
    seen: list[Progress | None] = []

    @app.task
    def count(ctx: Context) -> None:
        for number in range(1, 1001):
            ctx.progress(number, 1000)
            if number == 1:
                seen.append(job.progress())

    job = count.enqueue()
    assert job.progress() is None
    worker.run_all()

    first, last = seen[0], job.progress()
    assert first is not None
    assert (first.done, first.share) == (1, 0.001)
    assert last is not None
    assert (last.done, last.total, last.share) == (1000, 1000, 1.0)


def test_an_overtaken_delivery_no_longer_reports_progress(app: App, worker: HandWorker) -> None:
    @app.task
    def work(ctx: Context, done: int) -> None:
        ctx.progress(done, 10)

    job = work.enqueue(3)
    (delivery,) = app.work_queue().claim()
    worker.runner.run(delivery, "default")
    overtaken = type(delivery)(
        0, delivery.id, delivery.task, work.message((9,), {}, app.connections.sender(work.plan.queue)).body, 0
    )
    worker.runner.run(overtaken, "default")

    progress = job.progress()
    assert progress is not None
    assert (progress.done, progress.fence) == (3, delivery.fence)


@pytest.mark.parametrize("done", [-1, float("nan"), True, "half", 2**60])
def test_progress_is_a_number(app: App, worker: HandWorker, done: float) -> None:
    refused: list[str] = []

    @app.task
    def report(ctx: Context) -> None:
        with pytest.raises(InvalidArgument, match="done is") as error:
            ctx.progress(done)
        refused.append(str(error.value))

    report.enqueue()
    worker.run_all()

    assert len(refused) == 1
