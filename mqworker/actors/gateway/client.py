"""The client half of a gateway's link to its node: calls go out in batches, answers come back. In asyncio.

`NodeClient` is what a gateway sees. It gathers the calls of all clients of the gateway into batches, one mail
each. Two batches may be under way to the broker and two to the dispatcher, each in a lane of its own; when
the peer was killed and another took its place, they are sent again as they were, and the server recognises
what was done already. So a call is carried out once, or answered as unknown.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from mqworker.actors.gateway.errors import APART, UNAVAILABLE, UNKNOWN, error_of
from mqworker.actors.gateway.size import size_of
from mqworker.actors.mail import GatewayCalls, GatewayReplies
from mqworker.model.clock import Clock

OnReply = Callable[[list[Any]], None]
"""Is given True and the value, or False, the kind of error and its text."""

PATIENCE_MS = 10_000
"""Longer than that of the commit half, which answers first as a rule; this is for when there is no peer."""
_WINDOW = 2
_MOST_CALLS = 4_000
_MOST_BYTES = 4 * 1024 * 1024


_SMALL_BYTES = 64


class NodeClient:
    """Calls the broker and the dispatcher for a gateway. All in one event loop; nothing here blocks."""

    def __init__(self, clock: Clock, flush: Callable[[], None], watch: Callable[[], None]) -> None:
        """`flush` sends the batches, `watch` tells the dispatcher which queues somebody waits at."""
        self.broker, self.dispatcher = CallBatches(), CallBatches()
        self._clock = clock
        self._flush = flush
        self._watch = watch
        self._is_flush_due = False
        self._wakers_by_queue: dict[str, list[Callable[[], None]]] = {}

    async def call(self, verb: str, *arguments: Any) -> Any:  # noqa: ANN401 - plain values, as the verb says
        """Have the broker carry out a verb; raises one of the MqworkerError family."""
        return await self._outcome(self.submit_call, [verb, *arguments])

    async def pop(self, verb: str, *arguments: Any) -> Any:  # noqa: ANN401 - as above
        """Have the dispatcher carry out a verb. Who is cancelled meanwhile may lose what was handed out."""
        return await self._outcome(self.submit_pop, [verb, *arguments])

    def submit_call(self, call: list[Any], on_reply: OnReply, size: int = _SMALL_BYTES) -> None:
        """As `call`, without a future: for gateways that make tens of thousands each second."""
        self.broker.submit(call, on_reply, size, self._clock.monotonic_ms())
        self._flush_soon()

    def submit_pop(self, call: list[Any], on_reply: OnReply, size: int = _SMALL_BYTES) -> None:
        """As `pop`, without a future."""
        self.dispatcher.submit(call, on_reply, size, self._clock.monotonic_ms())
        self._flush_soon()

    def watch(self, queue: str, waker: Callable[[], None]) -> None:
        """Call `waker` whenever there may be something in the queue; a lost wake-up is possible, so poll."""
        wakers = self._wakers_by_queue.setdefault(queue, [])
        wakers.append(waker)
        if len(wakers) == 1:
            self._watch()

    def unwatch(self, queue: str, waker: Callable[[], None]) -> None:
        """Call it no more."""
        wakers = self._wakers_by_queue.get(queue, [])
        if waker in wakers:
            wakers.remove(waker)
        if not wakers and self._wakers_by_queue.pop(queue, None) is not None:
            self._watch()

    def watched_queues(self) -> list[str]:
        """All queues that somebody waits at."""
        return sorted(self._wakers_by_queue)

    def wake(self, queues: Iterable[str]) -> None:
        """There may be something in these queues."""
        for queue in queues:
            for waker in list(self._wakers_by_queue.get(queue, ())):
                waker()

    def _flush_soon(self) -> None:
        """One mail for all calls of this turn of the event loop."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self._flush()

    async def _outcome(self, submit: Callable[[list[Any], OnReply, int], None], call: list[Any]) -> Any:  # noqa: ANN401 - as above
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def resolve(reply: list[Any]) -> None:
            if not future.done():
                future.set_result(reply)

        submit(call, resolve, size_of(call))
        return outcome_of(await future)


def outcome_of(reply: list[Any]) -> Any:  # noqa: ANN401 - plain values
    """The value of a reply, or its error raised."""
    if reply[0]:
        return reply[1]
    raise error_of(reply[1], reply[2])


@dataclass(slots=True)
class _Waiting:
    call: list[Any]
    on_reply: OnReply
    size: int
    since_ms: int


@dataclass(slots=True)
class _Batch:
    mail: GatewayCalls
    waiting_by_number: dict[int, _Waiting]
    oldest_ms: int
    is_stale: bool = False
    """Whether somebody was told that the outcome is unknown: its lane is not used again."""


@dataclass(slots=True)
class _Slot:
    """One of the batches that may be under way."""

    lane: str = field(default_factory=lambda: f"g{secrets.token_urlsafe(9)}")
    batch: _Batch | None = None


class CallBatches:
    """The calls to one peer, gathered into batches. `submit`, then send what `mails` gives."""

    def __init__(self) -> None:
        self._gathered: deque[_Waiting] = deque()
        self._apart: deque[_Waiting] = deque()
        self._slots = [_Slot() for _ in range(_WINDOW)]
        self._numbers = 0
        self._batches = 0
        self.answered = 0

    def __len__(self) -> int:
        under_way = sum(len(slot.batch.waiting_by_number) for slot in self._slots if slot.batch)
        return len(self._gathered) + len(self._apart) + under_way

    def submit(self, call: list[Any], on_reply: OnReply, size: int, now_ms: int) -> None:
        """Take a call; `size` is about how many bytes it has."""
        self._gathered.append(_Waiting(call, on_reply, size, now_ms))

    def mails(self) -> list[GatewayCalls]:
        """What is to be sent now: a batch for each free slot, as long as there are calls."""
        mails: list[GatewayCalls] = []
        for slot in self._slots:
            if slot.batch is None and (self._apart or self._gathered):
                slot.batch = self._next_batch(slot.lane)
                mails.append(slot.batch.mail)
        return mails

    def unanswered(self) -> list[GatewayCalls]:
        """What a new peer must be sent again, in the order in which they were made."""
        mails = [slot.batch.mail for slot in self._slots if slot.batch is not None]
        return sorted(mails, key=lambda mail: mail.turn)

    def take(self, mail: GatewayReplies) -> None:
        """Answer the callers."""
        batch: _Batch | None = None
        for number, reply in zip(mail.numbers, mail.replies, strict=True):
            if batch is None or number not in batch.waiting_by_number:  # a mail is about one batch, as a rule
                batch = self._batch_of(number)
            waiting = batch.waiting_by_number.pop(number, None) if batch is not None else None
            if batch is None or waiting is None:
                continue
            if not reply[0] and reply[1] == APART:
                self._apart.append(waiting)
                continue
            batch.is_stale = batch.is_stale or (not reply[0] and reply[1] in {UNAVAILABLE, UNKNOWN})
            self.answered += 1
            waiting.on_reply(reply)
        self._free_slots()

    def give_up(self, now_ms: int) -> None:
        """Answer those who waited too long: nobody is there who could."""
        for gathered in (self._gathered, self._apart):
            while gathered and now_ms - gathered[0].since_ms >= PATIENCE_MS:
                waiting = gathered.popleft()
                waiting.on_reply([False, UNAVAILABLE, "nobody could carry it out in time; it was not sent"])
        for slot in self._slots:
            if slot.batch is not None and now_ms - slot.batch.oldest_ms >= PATIENCE_MS:
                _give_up_batch(slot.batch, now_ms)
        self._free_slots()

    def _next_batch(self, lane: str) -> _Batch:
        is_apart = bool(self._apart)
        source = self._apart if is_apart else self._gathered
        some: list[_Waiting] = []
        size = 0
        while source and len(some) < _MOST_CALLS and (not some or size + source[0].size <= _MOST_BYTES):
            size += source[0].size
            some.append(source.popleft())
        self._batches += 1
        numbers = list(range(self._numbers, self._numbers + len(some)))
        self._numbers += len(some)
        mail = GatewayCalls(numbers, [waiting.call for waiting in some], lane, self._batches, is_apart)
        return _Batch(mail, dict(zip(numbers, some, strict=True)), min(each.since_ms for each in some))

    def _batch_of(self, number: int) -> _Batch | None:
        for slot in self._slots:
            if slot.batch is not None and number in slot.batch.waiting_by_number:
                return slot.batch
        return None

    def _free_slots(self) -> None:
        for index, slot in enumerate(self._slots):
            if slot.batch is not None and not slot.batch.waiting_by_number:
                is_stale, slot.batch = slot.batch.is_stale, None
                if is_stale:
                    self._slots[index] = _Slot()


def _give_up_batch(batch: _Batch, now_ms: int) -> None:
    for number, waiting in list(batch.waiting_by_number.items()):
        if now_ms - waiting.since_ms >= PATIENCE_MS:
            del batch.waiting_by_number[number]
            batch.is_stale = True
            waiting.on_reply([False, UNKNOWN, "it was sent and not answered in time; it may have happened"])
