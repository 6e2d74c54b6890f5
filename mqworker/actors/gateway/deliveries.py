"""Work sources: a gateway that takes deliveries from work queues, as a worker does.

Its deliveries are leased to a consumer of its own that lives as long as its process: a dispatcher that is
killed meanwhile changes nothing, and when the gateway itself is killed everything it held is back in line at
once. That is not counted as a crash: no code of the message ran here, so the message is not to blame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mqworker.actors.gateway.client import NodeClient
from mqworker.errors import InvalidMessage, MqworkerError
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.names import ConsumerName, queue_name
from mqworker.model.record import decode_record
from mqworker.model.settlement import Bury, Settlement
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions
from mqworker.store.exchange import UNREADABLE
from mqworker.store.outage import OUTAGE_PAUSE_MS

POLL_S = 1.0
"""A lost wake-up delays a message by this much."""
_LARGEST_CLAIM = 250

OnDelivery = Callable[[str, Delivery], None]
"""Is given the queue and the delivery; whatever becomes of it must be told to `WorkSource.settle`."""
OnSettled = Callable[[bool], None]
"""Is told that a settlement is stored; False when some that were stored with it had lost their lease."""


@dataclass(slots=True)
class _Line:
    """One queue that is taken from."""

    calls: WorkQueueCalls
    concurrency: int
    waker: Callable[[], None]
    in_hand: set[int] = field(default_factory=set)
    unsettled: list[Settlement] = field(default_factory=list)
    on_settled_by_fence: dict[int, OnSettled] = field(default_factory=dict)
    is_claiming: bool = False
    is_settling: bool = False
    is_unsure: bool = False
    """Whether a claim had no answer: the server may count deliveries as ours that we never saw."""
    settled_meanwhile: set[int] = field(default_factory=set)
    """Since we asked the server what it counts as ours: its answer may be older than these settlements."""

    @property
    def room(self) -> int:
        return min(self.concurrency - len(self.in_hand), _LARGEST_CLAIM)


class WorkSource:
    """Takes as many deliveries at a time as the gateway has room for, queue by queue."""

    def __init__(
        self,
        node: NodeClient,
        consumer: str,
        on_delivery: OnDelivery,
        options: WorkQueueOptions,
        result_ttl_ms: int,
    ) -> None:
        self._node = node
        self._consumer = consumer
        self._on_delivery = on_delivery
        self._options = options
        self._result_ttl_ms = result_ttl_ms
        self._lines: dict[str, _Line] = {}
        self._polling: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_settled = asyncio.Event()

    def open(self, queue: str, concurrency: int) -> None:
        """Take from this queue, so many at a time; again with another number to change it. 0: no more."""
        line = self._lines.get(queue)
        if line is None:
            waker = partial(self._claim, queue)
            calls = WorkQueueCalls(queue_name(queue), self._options)
            line = self._lines[queue] = _Line(calls, concurrency, waker)
            self._node.watch(queue, waker)
        line.concurrency = concurrency
        if self._polling is None:
            self._poll()
        self._claim(queue)

    @property
    def consumer(self) -> str:
        """The name under which everything here is held."""
        return self._consumer

    def settle(self, queue: str, settlement: Settlement, on_settled: OnSettled | None = None) -> None:
        """Say what became of a delivery. Sent with the others of this turn, again until it is done."""
        line = self._lines[queue]
        line.unsettled.append(settlement)
        if on_settled is not None:
            line.on_settled_by_fence[settlement.delivery.fence] = on_settled
        if not line.is_settling:
            line.is_settling = True
            asyncio.get_running_loop().call_soon(self._send_settlements, queue)

    def in_hand(self, queue: str) -> int:
        """How many deliveries of this queue are not settled yet."""
        return len(self._lines[queue].in_hand) if queue in self._lines else 0

    async def close(self) -> None:
        """Take nothing more, and wait until everything that was settled is stored."""
        self._is_closed = True
        for queue, line in self._lines.items():
            self._node.unwatch(queue, line.waker)
        if self._polling is not None:
            self._polling.cancel()
        self._is_settled = asyncio.Event()
        self._note_settled()
        await self._is_settled.wait()

    # From claim to delivery

    def _claim(self, queue: str) -> None:
        line = self._lines[queue]
        if self._is_closed or line.is_claiming or line.room <= 0:
            return
        line.is_claiming = True
        call: list[Any] = ["claim", queue, self._consumer, line.room]
        if line.is_unsure:
            line.settled_meanwhile = set()
            call = ["held", queue, self._consumer]
        self._node.submit_pop(call, partial(self._on_claimed, queue))

    def _on_claimed(self, queue: str, reply: list[Any]) -> None:
        line = self._lines[queue]
        line.is_claiming = False
        if not reply[0]:
            line.is_unsure = True
            asyncio.get_running_loop().call_later(OUTAGE_PAUSE_MS / 1000, self._claim, queue)
            return
        was_unsure, line.is_unsure = line.is_unsure, False
        known = line.in_hand | line.settled_meanwhile if was_unsure else line.in_hand
        unknown = [(fence, record) for fence, record in reply[1] if fence not in known]
        for fence, record in unknown:
            line.in_hand.add(fence)
            self._hand_over(queue, fence, record)
        if unknown or was_unsure:
            self._claim(queue)  # there may be more

    def _hand_over(self, queue: str, fence: int, record: bytes) -> None:
        try:
            delivery = decode_record(record, fence)
        except InvalidMessage as error:
            unreadable = UnreadableDelivery(fence, record, str(error))
            self.settle(queue, Bury(unreadable, "undecodable", evidence={"problem": str(error)}))
            return
        try:
            self._on_delivery(queue, delivery)
        except (MqworkerError, *UNREADABLE) as error:  # by another program: not what the gateway stores
            self.settle(queue, Bury(delivery, "undecodable", evidence={"problem": str(error)}))

    def _poll(self) -> None:
        self._polling = asyncio.get_running_loop().call_later(POLL_S, self._poll)
        for queue in self._lines:
            self._claim(queue)

    # From settlement to the next claim, which goes along in the same turn

    def _send_settlements(self, queue: str) -> None:
        line = self._lines[queue]
        settlements, line.unsettled = line.unsettled[:_LARGEST_CLAIM], line.unsettled[_LARGEST_CLAIM:]
        call = line.calls.settle(settlements, ConsumerName(self._consumer), self._result_ttl_ms)
        fences = [settlement.delivery.fence for settlement in settlements]
        self._settle_again(queue, fences, list(call.arguments))

    def _settle_again(self, queue: str, fences: list[int], arguments: list[Any]) -> None:
        on_settled = partial(self._on_settled, queue, fences, arguments)
        size = sum(len(part) if isinstance(part, bytes | str) else 8 for part in arguments)
        self._node.submit_pop(["settle", queue, self._consumer, arguments], on_settled, size)

    def _on_settled(self, queue: str, fences: list[int], arguments: list[Any], reply: list[Any]) -> None:
        if not reply[0]:
            # Fenced: what was settled after all is refused, and nothing happens twice.
            asyncio.get_running_loop().call_later(
                OUTAGE_PAUSE_MS / 1000, self._settle_again, queue, fences, arguments
            )
            return
        line = self._lines[queue]
        line.in_hand.difference_update(fences)
        if line.is_unsure:
            line.settled_meanwhile.update(fences)
        for fence in fences:
            if (on_settled := line.on_settled_by_fence.pop(fence, None)) is not None:
                on_settled(reply[1] == 0)
        if line.unsettled:
            self._send_settlements(queue)
        else:
            line.is_settling = False
            self._note_settled()
        self._claim(queue)

    def _note_settled(self) -> None:
        if not any(line.is_settling for line in self._lines.values()):
            self._is_settled.set()
