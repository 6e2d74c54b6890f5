"""Waiting for many jobs at once, in a thread or on an event loop. No job has a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from mqworker.errors import ResultTimeout
from mqworker.model.clock import Clock, SystemClock
from mqworker.tasks.job import Job
from mqworker.tasks.outcome import Outcome

JobT = TypeVar("JobT", bound="Job[Any]")


def as_completed(
    jobs: Iterable[JobT], timeout: float | None = None, *, clock: Clock | None = None
) -> Iterator[JobT]:
    """The jobs in the order in which they end; all are waited for at once. `job.result()` is then there.

    Raises `ResultTimeout` when some did not end in the time given.
    """
    clock = clock or SystemClock()
    ends_at_ms = None if timeout is None else clock.monotonic_ms() + timeout * 1000
    job_by_future = {job.begin_wait(): job for job in jobs}
    ended: SimpleQueue[Future[Outcome]] = SimpleQueue()
    for future in job_by_future:
        future.add_done_callback(ended.put)
    try:
        for left in range(len(job_by_future), 0, -1):
            left_s = None if ends_at_ms is None else max(0.0, (ends_at_ms - clock.monotonic_ms()) / 1000)
            try:
                future = ended.get(timeout=left_s)
            except Empty as error:
                raise _not_in_time(left, len(job_by_future), timeout) from error
            future.result()  # raises what kept us from learning the outcome
            yield job_by_future[future]
    finally:
        _abandon(job_by_future)


async def aas_completed(
    jobs: Iterable[JobT],
    timeout: float | None = None,  # noqa: ASYNC109 - the same as `as_completed`
) -> AsyncIterator[JobT]:
    """`as_completed` for asyncio, to be used with `async for`."""
    loop = asyncio.get_running_loop()
    ends_at_s = None if timeout is None else loop.time() + timeout
    job_by_future = {job.begin_wait(): job for job in jobs}
    ended: asyncio.Queue[Future[Outcome]] = asyncio.Queue()
    for future in job_by_future:
        future.add_done_callback(lambda each: loop.call_soon_threadsafe(ended.put_nowait, each))
    try:
        for left in range(len(job_by_future), 0, -1):
            try:
                async with asyncio.timeout_at(ends_at_s):
                    future = await ended.get()
            except TimeoutError as error:
                raise _not_in_time(left, len(job_by_future), timeout) from error
            future.result()
            yield job_by_future[future]
    finally:
        _abandon(job_by_future)


def wait_all(jobs: Iterable[Job[Any]], timeout: float | None = None) -> None:
    """Wait until all jobs have ended, however; afterwards `result()` of each is there at once."""
    for _ in as_completed(jobs, timeout):
        pass


async def await_all(
    jobs: Iterable[Job[Any]],
    timeout: float | None = None,  # noqa: ASYNC109 - the same as `wait_all`
) -> None:
    """`wait_all` for asyncio."""
    async for _ in aas_completed(jobs, timeout):
        pass


def _abandon(futures: Iterable[Future[Outcome]]) -> None:
    """Stop waiting for those that are left: the server need not be asked about them."""
    for future in futures:
        future.cancel()


def _not_in_time(left: int, total: int, timeout: float | None) -> ResultTimeout:
    return ResultTimeout(f"{left} of {total} jobs did not end in {timeout:g} s")
