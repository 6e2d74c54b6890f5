"""A worker's report: outcomes gathered into mail that holds ready-made arguments for settle.lua."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mqworker.actors.actor import Post
from mqworker.actors.mail import DeliveriesFinished
from mqworker.model.delivery import Delivery
from mqworker.model.names import QueueName
from mqworker.model.settlement import Ack, Bury, Retry, Settlement
from mqworker.queues.work_calls import WorkQueueCalls

_DISPATCHER = "dispatcher"


class Report:
    """Gathers settlements by queue until they are posted."""

    def __init__(self, calls_of: Callable[[QueueName], WorkQueueCalls], results_ms: int) -> None:
        self._calls_of = calls_of
        self._results_ms = results_ms
        self._calls_by_queue: dict[str, WorkQueueCalls] = {}
        self._settlements: dict[str, list[Settlement]] = {}
        self.count = 0

    def add(self, queue: str, settlement: Settlement) -> None:
        """Note what became of a delivery."""
        self._settlements.setdefault(queue, []).append(settlement)
        self.count += 1

    def posts(self) -> Sequence[Post]:
        """The mail for the dispatcher; the report is empty afterwards."""
        if not self._settlements:
            return ()
        gathered, self._settlements = self._settlements, {}
        return [Post(_DISPATCHER, self._mail(queue, settlements)) for queue, settlements in gathered.items()]

    def _mail(self, queue: str, settlements: list[Settlement]) -> DeliveriesFinished:
        calls = self._calls_by_queue.get(queue)
        if calls is None:
            calls = self._calls_by_queue[queue] = self._calls_of(QueueName(queue))
        return DeliveriesFinished(
            queue,
            [settlement.delivery.fence for settlement in settlements],
            list(calls.settle(settlements, None, self._results_ms).arguments),
            _run_ms_by_task(settlements),
        )


def _run_ms_by_task(settlements: Sequence[Settlement]) -> dict[str, tuple[int, float]]:
    totals: dict[str, tuple[int, float]] = {}
    for settlement in settlements:
        run = settlement.run if isinstance(settlement, Ack | Retry | Bury) else None
        if run is not None and isinstance(settlement.delivery, Delivery):
            task = settlement.delivery.task
            count, total_ms = totals.get(task, (0, 0.0))
            totals[task] = (count + 1, total_ms + run.run_ms)
    return totals
