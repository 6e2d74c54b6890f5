"""A worker's report: outcomes gathered into mail that holds ready-made arguments for settle.lua.

A report is kept until the dispatcher has accepted it, which it does when the outcomes are stored. If the
dispatcher dies before that, its successor is given the same report again; what had been stored after all is
refused by its fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mqworker.actors.actor import Post
from mqworker.actors.mail import DeliveriesFinished, RunsCounted
from mqworker.model.delivery import Delivery
from mqworker.model.figures import Figures, Ran
from mqworker.model.names import QueueName
from mqworker.model.settlement import Ack, Bury, RetryAt, Settlement
from mqworker.model.settlement_parts import parts_of
from mqworker.queues.work.calls import WorkQueueCalls

LARGEST_MAIL_BYTES = 8 * 1024 * 1024
MOST_PER_MAIL = 1_000
"""As many as are claimed at once: settling them takes the server about two milliseconds."""
_OTHER_BYTES = 16_384  # about what a traceback takes at the most
_DISPATCHER = "dispatcher"
_COUNTED_EVERY_MS = 1_000

TakeTelemetry = Callable[[str, Sequence[Settlement], Mapping[str, Sequence[float]]], list[Any]]
"""By queue, what became of its deliveries, and how long each run of a task took."""


class Report:
    """Gathers settlements by queue until they are posted."""

    def __init__(
        self,
        calls_of: Callable[[QueueName], WorkQueueCalls],
        result_ms_by_task: Mapping[str, int],
        other_models: Collection[str] = (),
        telemetry: TakeTelemetry | None = None,
        on_accepted: Callable[[str, Settlement], object] | None = None,
    ) -> None:
        """For how long results are kept: those of a task that keeps none, as long as any (workflows ask so).

        `other_models` are queues that are not work queues: settlements in them are reported as they are.
        `telemetry` gives what goes along with the report. `on_accepted` hears of each settlement that was
        stored, or refused for good.
        """
        self._other_models = other_models
        self._telemetry = telemetry
        self._on_accepted = on_accepted
        self._calls_of = calls_of
        self._result_ms_by_task = result_ms_by_task
        self._longest_ms = max(result_ms_by_task.values(), default=0)
        self._is_uniform = len({ms for ms in result_ms_by_task.values() if ms}) <= 1
        self._calls_by_queue: dict[str, WorkQueueCalls] = {}
        self._settlements: dict[str, list[Settlement]] = {}
        self._unaccepted: dict[int, tuple[DeliveriesFinished, list[Settlement]]] = {}
        self._number = 0
        self.count = 0
        self._figures = Figures()
        self._counted_at_ms = 0

    def add(self, queue: str, settlement: Settlement) -> None:
        """Note what became of a delivery."""
        self._settlements.setdefault(queue, []).append(settlement)
        self.count += 1

    def posts(self) -> Sequence[Post]:
        """The mail for the dispatcher; the report is empty afterwards."""
        if not self._settlements:
            return ()
        gathered, self._settlements = self._settlements, {}
        return [
            Post(_DISPATCHER, self._mail(queue, part))
            for queue, settlements in gathered.items()
            for alike in self._alike(settlements)
            for part in _parts(alike)
        ]

    def figures(self, now_ms: int) -> Iterator[Post]:
        """What was counted, if none was sent for a while. Reports are repeated; figures are sent once."""
        if self._figures and now_ms - self._counted_at_ms >= _COUNTED_EVERY_MS:
            self._counted_at_ms = now_ms
            yield Post(_DISPATCHER, RunsCounted(self._figures.take()))

    @property
    def is_accepted(self) -> bool:
        """Whether everything that was added is stored."""
        return not self._settlements and not self._unaccepted

    def accept(self, numbers: Iterable[int]) -> None:
        """Forget the reports of these numbers."""
        for number in numbers:
            known = self._unaccepted.pop(number, None)
            if self._on_accepted is not None and known is not None:
                for settlement in known[1]:
                    self._on_accepted(known[0].queue, settlement)

    def unaccepted(self) -> Iterator[tuple[str, Settlement]]:
        """What no dispatcher has accepted yet, with its queue."""
        for mail, settlements in self._unaccepted.values():
            yield from ((mail.queue, settlement) for settlement in settlements)
        for queue, gathered in self._settlements.items():
            yield from ((queue, settlement) for settlement in gathered)

    def repeated(self) -> list[Post]:
        """For a new dispatcher: all that was posted and not accepted."""
        return [Post(_DISPATCHER, mail) for mail, _ in self._unaccepted.values()]

    def _alike(self, settlements: list[Settlement]) -> Iterable[list[Settlement]]:
        """Those whose results are kept equally long, together: one call to settle has one time for all."""
        if self._is_uniform:
            return (settlements,)
        alike: dict[int, list[Settlement]] = {}
        for settlement in settlements:
            alike.setdefault(self._result_ms(settlement), []).append(settlement)
        return alike.values()

    def _result_ms(self, settlement: Settlement) -> int:
        delivery = settlement.delivery
        own_ms = self._result_ms_by_task.get(delivery.task) if isinstance(delivery, Delivery) else None
        return own_ms or self._longest_ms

    def _mail(self, queue: str, settlements: list[Settlement]) -> DeliveriesFinished:
        self._number += 1
        ran = _ran_by_task(settlements)
        runs_ms_by_task = {
            task: [each.run.run_ms for each in some if each.run is not None] for task, some in ran.items()
        }
        for task, some in ran.items():
            self._figures.note_runs(queue, task, some, runs_ms_by_task[task])
        mail = DeliveriesFinished(
            queue,
            [settlement.delivery.fence for settlement in settlements],
            self._arguments(queue, settlements),
            {task: (len(runs_ms), sum(runs_ms)) for task, runs_ms in runs_ms_by_task.items()},
            self._number,
            [] if self._telemetry is None else self._telemetry(queue, settlements, runs_ms_by_task),
        )
        self._unaccepted[self._number] = mail, settlements
        return mail

    # Any: the arguments of a script, or parts of settlements.
    def _arguments(self, queue: str, settlements: list[Settlement]) -> list[Any]:
        if queue in self._other_models:
            return [parts_of(settlement) for settlement in settlements]
        calls = self._calls_by_queue.get(queue)
        if calls is None:
            calls = self._calls_by_queue[queue] = self._calls_of(QueueName(queue))
        own_ms = self._longest_ms if self._is_uniform else self._result_ms(settlements[0])
        return list(calls.settle(settlements, None, own_ms, self._longest_ms).arguments)


def _parts(settlements: list[Settlement]) -> list[list[Settlement]]:
    """As many mails as it takes: long results must fit into frames, many must not hold the server up."""
    sizes = [len(each.result) if type(each) is Ack else _OTHER_BYTES for each in settlements]
    if len(settlements) <= MOST_PER_MAIL and sum(sizes) <= LARGEST_MAIL_BYTES:
        return [settlements]
    parts: list[list[Settlement]] = [[]]
    room = LARGEST_MAIL_BYTES
    for settlement, size in zip(settlements, sizes, strict=True):
        if parts[-1] and (size > room or len(parts[-1]) == MOST_PER_MAIL):
            parts.append([])
            room = LARGEST_MAIL_BYTES
        parts[-1].append(settlement)
        room -= size
    return parts


def _ran_by_task(settlements: Sequence[Settlement]) -> dict[str, list[Ran]]:
    """Those whose task began, by task."""
    ran: dict[str, list[Ran]] = {}
    for settlement in settlements:
        if type(settlement) is Ack or isinstance(settlement, RetryAt | Bury):
            delivery = settlement.delivery
            if settlement.run is not None and isinstance(delivery, Delivery):
                ran.setdefault(delivery.task, []).append(settlement)
    return ran
