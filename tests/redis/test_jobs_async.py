"""Jobs on an event loop: every verb has an awaited twin, and none of them blocks the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from mqworker import App, Context, Job, JobStatus, aas_completed, await_all
from mqworker.errors import ResultTimeout, StillRunning, TaskCancelled, TaskFailed
from mqworker.model.settlement import Ack, Release, Settlement
from mqworker.settings import Settings
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    """An app on the shared server."""
    made = App("shop", settings=Settings(redis_url=server.url, read_timeout_s=60))
    yield made
    made.close()


@pytest.fixture
def worker(app: App) -> HandWorker:
    """Runs what the app enqueues."""
    return HandWorker(app)


async def asked_to_stop(job: Job[object]) -> bool:
    """Cancel a job that somebody holds, and do not wait for what he does."""
    with pytest.raises(StillRunning):
        await job.acancel(timeout=0)
    return True


async def run_all_here(worker: HandWorker) -> None:
    """Run async tasks on this event loop, which is then done with the app."""
    queue = worker.app.work_queue()
    while delivered := queue.claim(1):
        assert queue.settle(await worker.runner.arun(delivered[0], queue.name)) == []
    await worker.app.aclose()


def test_a_job_is_looked_at_and_ended_without_leaving_the_loop(app: App, worker: HandWorker) -> None:
    @app.task
    def report(ctx: Context) -> int:
        ctx.progress(3, 3)
        return 7

    async def use() -> tuple[JobStatus, JobStatus, float | None, int]:
        job = await report.aenqueue()
        before = await job.astatus()
        await asyncio.to_thread(worker.run_all)
        progress = await job.aprogress()
        seen = before, await job.astatus(), progress and progress.share, await job.aresult(timeout=0)
        await app.aclose()
        return seen

    assert asyncio.run(use()) == (JobStatus.WAITING, JobStatus.SUCCEEDED, 1.0, 7)


def test_looking_for_a_result_that_is_not_there_yet_ends_at_once(app: App) -> None:
    async def use() -> None:
        job = await app.task(name="t")(lambda: 1).aenqueue()
        try:
            await job.aresult(timeout=0)
        finally:
            await app.aclose()

    with pytest.raises(ResultTimeout):
        asyncio.run(use())


def test_a_waiting_job_is_cancelled_and_a_running_one_asked_to_stop(app: App) -> None:
    queue, task = app.work_queue(), app.task(name="t")(lambda: 1)

    async def use() -> tuple[bool, bool, bool]:
        running, waiting = await task.aenqueue(), await task.aenqueue()
        (delivery,) = queue.claim(1)
        verdicts = await waiting.acancel(), await waiting.acancel(), await asked_to_stop(running)
        queue.settle(Release(delivery))  # it was asked to stop: it does not come back
        for job in (waiting, running):
            with pytest.raises(TaskCancelled):
                await job.aresult(timeout=30)
        await app.aclose()
        return verdicts

    assert asyncio.run(use()) == (True, False, True)


def test_a_failed_job_is_put_back_in_line(app: App, worker: HandWorker) -> None:
    broken = [True]

    @app.task(retry=0)
    def fragile() -> str:
        if broken:
            raise ValueError(broken.pop())
        return "mended"

    async def use() -> str:
        job = await fragile.aenqueue()
        worker.run_all()
        with pytest.raises(TaskFailed):
            await job.aresult(timeout=30)
        assert await job.aretry()
        worker.run_all()
        mended = await job.aresult(timeout=30)
        await app.aclose()
        return mended

    assert asyncio.run(use()) == "mended"


def test_many_jobs_are_awaited_together_in_the_order_in_which_they_end(app: App, worker: HandWorker) -> None:
    task = app.task(name="t")(lambda: 1)

    async def use() -> list[Job[int]]:
        late, early = task.using(queue="late").enqueue(), task.enqueue()
        worker.run_all()
        order: list[Job[int]] = []
        async for job in aas_completed([late, early], timeout=30):
            order.append(job)
            await asyncio.to_thread(worker.run_all, "late")
        await await_all(order, timeout=30)  # those that ended are there at once
        assert order == [early, late]
        return order

    assert [job.result(timeout=0) for job in asyncio.run(use())] == [1, 1]


def test_a_joint_wait_ends_in_time_and_the_loop_turns_meanwhile(app: App) -> None:
    jobs = app.task(name="t")(lambda number: number).map(range(50))

    async def use() -> int:
        turns = 0
        waiting = asyncio.create_task(await_all(jobs, timeout=0.2))
        while not waiting.done():
            await asyncio.sleep(0.001)
            turns += 1
        with pytest.raises(ResultTimeout, match=r"50 of 50 jobs did not end in 0\.2 s"):
            await waiting
        return turns

    assert asyncio.run(use()) > 5


def test_progress_and_a_wish_to_stop_pass_between_job_and_async_task(app: App, worker: HandWorker) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.aprogress(1, 10)
        assert (await job.aprogress()) is not None
        assert not await ctx.ais_cancelled()
        app.work_queue().store.run(app.work_queue().calls.request_cancel(job.id))
        ctx.progress(10, 10)  # goes out beside the task
        while not ctx.is_cancelled:  # noqa: ASYNC110 - each look lets the link ask again
            await asyncio.sleep(0.01)
        await ctx.astop_if_cancelled()

    job = work.enqueue()
    asyncio.run(run_all_here(worker))

    with pytest.raises(TaskCancelled):
        job.result(timeout=30)
    progress = job.progress()
    assert progress is not None
    assert progress.share == 1.0


def test_a_silent_server_stops_no_event_loop(app: App, worker: HandWorker, server: RealServer) -> None:
    @app.task
    async def work(ctx: Context) -> int:
        await ctx.aprogress(0, 100)
        server.pause()
        for done in range(1, 101):
            ctx.progress(done, 100)
            assert not ctx.is_cancelled
            await asyncio.sleep(0)
        return done

    work.enqueue()

    async def use() -> Settlement:
        (delivery,) = app.work_queue().claim(1)
        try:
            return await worker.runner.arun(delivery, "default")  # to its end, though nobody answers
        finally:
            server.resume()
            await app.aclose()

    assert isinstance(asyncio.run(use()), Ack)
