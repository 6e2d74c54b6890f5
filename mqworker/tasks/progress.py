"""Progress and cancellation of running tasks, kept on the server and asked for sparingly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mqworker.errors import StoreFull, StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.clock import Clock
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId
from mqworker.queues.work import WorkQueue
from mqworker.store.script import Call, script

KEPT_MS = 3_600_000
REPORT_EVERY_MS = 200
ASK_EVERY_MS = 500
MOST_REMEMBERED = 10_000

_STOP_REQUESTED = b"X"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come, in whatever unit the task counts."""

    done: float
    total: float | None
    fence: int

    @property
    def share(self) -> float | None:
        """From 0 to 1, where the total is known."""
        return None if not self.total else min(1.0, self.done / self.total)


class StoreDesk:
    """The desk of a worker that has a connection: a report may be lost, work may not."""

    def __init__(self, queue_of: Callable[[str], WorkQueue], clock: Clock) -> None:
        self._queue_of = queue_of
        self._clock = clock
        self._reported_ms: dict[int, int] = {}
        self._asked_ms: dict[int, int] = {}
        self._log = get_logger(part="progress")

    def report_progress(self, queue: str, delivery: Delivery, done: float, total: float | None) -> None:
        """Send it when the last report is a while ago, or when it is the end."""
        is_over = total is not None and done >= total
        if not is_over and not self._is_time(self._reported_ms, delivery.fence, REPORT_EVERY_MS):
            return
        work = self._queue_of(queue)
        try:
            # Once, not again and again: a task must not stand still because nobody hears how far it is.
            work.store.attempt(work.store.begin([progress_call(work, delivery, done, total)]))
        except (StoreUnavailable, StoreFull) as error:
            self._log.warning("progress_lost", task_id=delivery.id, problem=str(error))

    def is_cancelled(self, queue: str, delivery: Delivery) -> bool:
        """Ask the server, unless it was asked a moment ago."""
        if not self._is_time(self._asked_ms, delivery.fence, ASK_EVERY_MS):
            return False
        keys = self._queue_of(queue).calls.keys
        try:
            replies = self._queue_of(queue).store.connection.execute(
                [("HGET", keys.named(each), delivery.id) for each in ("results", "results:old")], keys.meta
            )
        except StoreUnavailable:
            return False
        return _STOP_REQUESTED in replies

    def _is_time(self, last_ms: dict[int, int], fence: int, every_ms: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        if fence in last_ms and now_ms - last_ms[fence] < every_ms:
            return False
        if len(last_ms) >= MOST_REMEMBERED:
            last_ms.clear()  # forgetting costs one report too many
        last_ms[fence] = now_ms
        return True


def progress_call(queue: WorkQueue, delivery: Delivery, done: float, total: float | None) -> Call[int]:
    """The script that keeps the progress of a delivery."""
    arguments = (delivery.fence, f"{done:.15g}", "" if total is None else f"{total:.15g}", KEPT_MS)
    return Call(script("progress"), (progress_key(queue, delivery.id),), arguments, int)


def progress_key(queue: WorkQueue, message: MessageId) -> str:
    """string: 'fence done total' of one message, with a time to live."""
    return queue.calls.keys.named(f"progress:{message}")


def decode_progress(text: bytes) -> Progress:
    """What progress.lua wrote."""
    fence, done, total = text.decode().split(" ")
    return Progress(float(done), float(total) if total else None, int(fence))
