"""What runs beside a worker's main thread: async tasks on an event loop, sync ones in threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from mqworker.actors.run_slot import Beside
from mqworker.actors.waker import Waker
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId
from mqworker.model.settlement import Release, Settlement
from mqworker.tasks.running.run import TaskRunner

_LOOKS = 3
"""A coroutine begins a step or two after it was handed to its loop."""


class TaskPool:
    """Runs deliveries beside the main thread and gathers what became of them."""

    def __init__(self, runner: TaskRunner, *, threads: int, open_table: Callable[[], Beside]) -> None:
        """`open_table` is called with the first delivery: where to note what has begun."""
        self.waker = Waker()
        self.running: dict[tuple[str, int], Delivery] = {}
        """By queue and fence: what was begun here, until its outcome was collected."""
        self._runner = runner
        self._threads = threads
        self._open_table = open_table
        self._table: Beside | None = None
        self._async_runs: dict[tuple[str, int], Future[None]] = {}
        self._finished: deque[tuple[str, Settlement]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of the runner's resources, once an async task came."""
        self._executor: ThreadPoolExecutor | None = None
        self._tasks: dict[MessageId, asyncio.Task[None]] = {}  # only the loop's thread touches it
        self._wanted: dict[MessageId, set[MessageId]] = {}
        """Of those that run together on the loop: who is not cancelled. As above."""
        self._first_by_key: dict[tuple[str, int], int] = {}

    @property
    def busy(self) -> int:
        """How many run beside, or wait for a thread."""
        return len(self.running)

    @property
    def is_busy(self) -> bool:
        """Whether anything runs beside."""
        return bool(self.running)

    def run_async(self, queue: str, delivery: Delivery) -> None:
        """Run on the event loop, which is started with the first one."""
        if self._loop is None:
            self._loop = self._runner.resources.loop_thread.loop()
        table = self._noting()
        self.running[queue, delivery.fence] = delivery
        run = asyncio.run_coroutine_threadsafe(self._arun(queue, delivery, table), self._loop)
        self._async_runs[queue, delivery.fence] = run

    def abandon(self, queue: str, fence: int) -> None:
        """End a run on the event loop, as `asyncio.Task.cancel` does; the others cannot be ended."""
        run = self._async_runs.get((queue, fence))
        if run is not None:
            run.cancel()

    def run_in_thread(self, queue: str, delivery: Delivery) -> None:
        """Run in a thread of the pool."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="task")
        table = self._noting()
        self.running[queue, delivery.fence] = delivery
        self._executor.submit(self._run, queue, delivery, table)

    def run_together_async(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """Run a batch on the event loop."""
        if self._loop is None:
            self._loop = self._runner.resources.loop_thread.loop()
        run = self._arun_together(queue, deliveries, self._note_together(queue, deliveries))
        asyncio.run_coroutine_threadsafe(run, self._loop)

    def run_together_in_thread(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """Run a batch in a thread of the pool."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="task")
        self._executor.submit(self._run_together, queue, deliveries, self._note_together(queue, deliveries))

    def first_of(self, queue: str, fence: int) -> int:
        """By which fence the batch of a delivery is called; 0 for what runs by itself."""
        return self._first_by_key.get((queue, fence), 0)

    def _note_together(self, queue: str, deliveries: Sequence[Delivery]) -> Beside:
        self.running.update({(queue, each.fence): each for each in deliveries})
        self._first_by_key.update({(queue, each.fence): deliveries[0].fence for each in deliveries})
        return self._noting()

    def cancel(self, message: MessageId) -> None:
        """Cancel the coroutine that runs this message, if there is one. Threads cannot be interrupted."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_on_loop, self._loop, message, _LOOKS)

    def finished(self) -> Iterator[tuple[str, Settlement]]:
        """What was finished since the last time."""
        if self._loop is None and self._executor is None:
            return  # nothing ever ran beside: a system call less for each batch
        self.waker.clear()
        while self._finished:
            queue, settlement = self._finished.popleft()
            self.running.pop((queue, settlement.delivery.fence), None)
            if self._first_by_key:
                self._first_by_key.pop((queue, settlement.delivery.fence), None)
            self._async_runs.pop((queue, settlement.delivery.fence), None)
            yield queue, settlement

    def close(self) -> None:
        """Let go; what still runs is not waited for."""
        self._runner.resources.loop_thread.close()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _noting(self) -> Beside:
        if self._table is None:
            self._table = self._open_table()
        return self._table

    def _cancel_on_loop(self, loop: asyncio.AbstractEventLoop, message: MessageId, looks: int) -> None:
        # Taken off: asked twice, the task is cancelled once, or tidying up would be cancelled too.
        task = self._tasks.pop(message, None)
        wanted = self._wanted.pop(message, None)
        if task is not None:
            self._runner.cancel(message)
            if wanted is not None:
                wanted.discard(message)
            if not wanted:
                task.cancel()
        elif looks > 0:
            loop.call_soon(self._cancel_on_loop, loop, message, looks - 1)

    async def _arun(self, queue: str, delivery: Delivery, table: Beside) -> None:
        place = table.begin(queue, delivery.fence)
        task = asyncio.current_task()
        if task is not None:
            self._tasks[delivery.id] = task
        try:
            settlement = await self._runner.arun(delivery, queue)
        except asyncio.CancelledError:
            settlement = Release(delivery)  # refused: it was cancelled because somebody else has it
        finally:
            self._tasks.pop(delivery.id, None)
        table.end(place)
        self._done(queue, settlement)

    async def _arun_together(self, queue: str, deliveries: Sequence[Delivery], table: Beside) -> None:
        place = table.begin_together(queue, deliveries[0].fence)
        ids, task = {each.id for each in deliveries}, asyncio.current_task()
        if task is not None:
            self._tasks.update(dict.fromkeys(ids, task))
            wanted = set(ids)
            self._wanted.update(dict.fromkeys(ids, wanted))
        settlements: Sequence[Settlement]
        try:
            settlements = await self._runner.arun_together(deliveries, queue)
        except asyncio.CancelledError:
            settlements = [
                Release(each) for each in deliveries
            ]  # the queue knows which of them are cancelled
        finally:
            for message in ids:
                self._tasks.pop(message, None)
                self._wanted.pop(message, None)
        table.end(place)
        self._done(queue, *settlements)

    def _run_together(self, queue: str, deliveries: Sequence[Delivery], table: Beside) -> None:
        place = table.begin_together(queue, deliveries[0].fence)
        settlements = self._runner.run_together(deliveries, queue)
        table.end(place)
        self._done(queue, *settlements)

    def _run(self, queue: str, delivery: Delivery, table: Beside) -> None:
        place = table.begin(queue, delivery.fence)
        settlement = self._runner.run(delivery, queue)
        table.end(place)
        self._done(queue, settlement)

    def _done(self, queue: str, *settlements: Settlement) -> None:
        self._finished.extend([(queue, each) for each in settlements])
        self.waker.wake()
