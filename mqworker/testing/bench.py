"""Bench: an app without a server and without workers. A test enqueues, lets time pass, says what runs when.

There is no eager mode: what runs here went through the same scripts and the same states as in production,
only in memory and one at a time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.clock import ManualClock, SystemClock
from mqworker.model.dead_letter import DeadLetter
from mqworker.model.delivery import Delivery
from mqworker.model.names import TaskName, whole_number
from mqworker.queues.work.queue import WorkQueue
from mqworker.tasks.app import App
from mqworker.tasks.job import Job
from mqworker.tasks.running.loop_thread import is_loop_running
from mqworker.tasks.task import Task
from mqworker.testing.bench_broker import BenchBroker
from mqworker.testing.bench_worker import BenchWorker, CrashMoment
from mqworker.testing.enqueued_calls import EnqueuedCall, EnqueuedCalls
from mqworker.testing.memory_app import MemoryApp
from mqworker.testing.summary import Summary, Tally

MOST_RUNS = 10_000
MOST_RUNS_TO_END = 1_000
_MOST_LETTERS = 1_000_000

AnyTask = Task[..., Any] | str
"""A task, or its name."""


class Bench:
    """`with Bench(app) as bench:` - from here to the end of the block the app has no other server.

    Its clock stands still until `advance`; it begins at the real time, unless `now` is given.
    """

    def __init__(self, app: App, *, now: datetime | None = None) -> None:
        self.app = app
        self.clock = ManualClock(SystemClock().now_ms() if now is None else _epoch_ms(now))
        self._enqueued = EnqueuedCalls(lambda: app.connections.payloads)
        self._memory_app = MemoryApp(app, self.clock, self._enqueued)
        self._broker = BenchBroker(app, self._memory_app.store, self.clock)
        self._worker = BenchWorker(app, self._memory_app.store, self.clock, self._broker)
        self._broker.announce()

    @property
    def now(self) -> datetime:
        """What the clock of the bench shows, in UTC."""
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let time pass. Schedules tick meanwhile; what becomes due runs at the next `run_all`, not now."""
        self._broker.pass_time(_ms(seconds, minutes, hours, days))

    def pass_over(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let time pass as while all nodes are down: ticks of schedules are missed.

        What their `catch_up` makes up for is enqueued by the next run.
        """
        self._broker.announce()
        self.clock.advance(ms=_ms(seconds, minutes, hours, days))

    def run_one(self) -> Summary:
        """Run the next delivery that is due; a summary of nothing when there is none."""
        tally = Tally()
        self._worker.tend(tally)
        taken = self._worker.take()
        if taken is not None:
            self._run(*taken, tally)
        return tally.summary()

    def run_all(self, *, limit: int = MOST_RUNS) -> Summary:
        """Run all that is due by the clock, and what it enqueues in turn, until nothing is left.

        Queues take their turn by name. Raises `MqworkerError` after `limit` runs: a task that enqueues itself
        would never end.
        """
        tally = Tally()
        self._run_due(tally, limit)
        return tally.summary()

    def run_to_end(self, *, limit: int = MOST_RUNS_TO_END) -> Summary:
        """As `run_all`, and then advance to whatever is due next, until nothing waits for any time.

        Raises `MqworkerError` after `limit` runs: a task without a limit of retries would never end.
        """
        tally = Tally()
        self._run_due(tally, limit)
        while (next_in_ms := self._worker.tend(tally)) is not None:
            self.clock.advance(ms=max(1, next_in_ms))
            self._run_due(tally, limit)
        return tally.summary()

    async def arun_one(self) -> Summary:
        """`run_one` on the event loop of the test."""
        tally = Tally()
        self._worker.tend(tally)
        taken = self._worker.take()
        if taken is not None:
            await self._worker.arun(*taken, tally)
        return tally.summary()

    async def arun_all(self, *, limit: int = MOST_RUNS) -> Summary:
        """`run_all` on the event loop of the test."""
        tally = Tally()
        self._worker.tend(tally)
        while (taken := self._next(tally)) is not None:
            self._check_limit(taken, tally, limit)
            await self._worker.arun(*taken, tally)
        return tally.summary()

    def crash_next(self, task: AnyTask, *, when: CrashMoment = "before") -> None:
        """Let the worker of the task's next delivery die, as by `kill -9`.

        "before": before the first line of the task. "after": the task ran, but its end was not reported, to
        test that it may run twice.
        """
        if when not in ("before", "after"):
            raise InvalidArgument(f'when is {when!r}; accepted are "before" and "after"')
        self._worker.plan_crash(self._known(task), when)

    def lose_next(self, task: AnyTask) -> None:
        """Let the task's next delivery lose its lease as it begins, as on a node that was cut off.

        `ctx.is_mine()` is False then, `ctx.stop_if_lost()` raises `LeaseLost`, what the run returns is
        refused, and the message is delivered again.
        """
        self._worker.plan_loss(self._known(task))

    @property
    def jobs(self) -> list[Job[Any]]:  # Any: each returns what its own task does
        """All jobs that were enqueued on this bench, in order, by tests and by tasks."""
        return [
            Job(
                message.id,
                self.app.connections.sender(queue),
                self.app.registry.get(message.task),
                is_new=True,
            )
            for queue, message in self._enqueued.notes
        ]

    def enqueued(self, task: AnyTask | None = None) -> list[EnqueuedCall]:
        """All calls of a task that were stored on this bench, in order, whatever became of them since."""
        name = None if task is None else self._known(task)
        return self._enqueued.calls(self.app.registry, name)

    def dead_letters(self, task: AnyTask | None = None) -> list[DeadLetter]:
        """What was given up, with the reason, queue by queue, the oldest first."""
        name = None if task is None else self._known(task)
        letters = [
            letter for queue in self._worker.queues() for letter in queue.dead_letters(0, _MOST_LETTERS)
        ]
        return [
            letter
            for letter in letters
            if name is None or (letter.message is not None and letter.message.task == name)
        ]

    def close(self) -> None:
        """End what the app opened, and give it its own connections back."""
        try:
            self._worker.close()
        finally:
            self._memory_app.leave()

    async def aclose(self) -> None:
        """`close` on the event loop of the test."""
        try:
            await self._worker.aclose()
        finally:
            self._memory_app.leave()

    async def __aenter__(self) -> Self:
        """The bench itself: for tests on an event loop whose app holds something async open."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.aclose()

    def __enter__(self) -> Self:
        """The bench itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _run_due(self, tally: Tally, limit: int) -> None:
        self._worker.tend(tally)
        while (taken := self._next(tally)) is not None:
            self._check_limit(taken, tally, limit)
            self._run(*taken, tally)

    def _next(self, tally: Tally) -> tuple[WorkQueue, Delivery] | None:
        """What is ready first; only when nothing is, look for what became due."""
        taken = self._worker.take()
        if taken is None:
            self._worker.tend(tally)
            taken = self._worker.take()
        return taken

    def _run(self, queue: WorkQueue, delivery: Delivery, tally: Tally) -> None:
        if self._worker.is_async(delivery.task) and is_loop_running():
            self._worker.give_back(queue, delivery)
            raise MqworkerError(
                f"{delivery.task} is async and an event loop runs here already; use `await bench.arun_all()`"
            )
        self._worker.run(queue, delivery, tally)

    def _check_limit(self, taken: tuple[WorkQueue, Delivery], tally: Tally, limit: int) -> None:
        if tally.counts.get("ran", 0) < limit:
            return
        self._worker.give_back(*taken)
        raise MqworkerError(
            f"{limit:,} deliveries ran and more are due; a task that enqueues itself never ends. "
            "Run some with run_one(), or give a higher limit=..."
        )

    def _known(self, task: AnyTask) -> TaskName:
        return self.app.registry.named(task if isinstance(task, str) else task.name).name


def _ms(seconds: float, minutes: float, hours: float, days: float) -> int:
    passed = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
    return round(passed / timedelta(milliseconds=1))


def _epoch_ms(instant: datetime) -> int:
    if instant.tzinfo is None:
        raise InvalidArgument(f"now is {instant!r}, without a time zone; accepted is an aware datetime")
    return whole_number("now", round(instant.timestamp() * 1000), least=10**12, most=10**13 - 1)
