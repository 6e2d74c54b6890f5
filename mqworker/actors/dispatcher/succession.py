"""Succession: how a dispatcher comes to know of the deliveries that the one before it gave to workers.

The decisions stand in adoption.py; here the server is asked and workers are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.adoption import Held, Predecessor, judge
from mqworker.actors.dispatcher.early_starts import Shortcuts
from mqworker.actors.dispatcher.foreign_queue import ModelLines
from mqworker.actors.dispatcher.hand_out import Shelf
from mqworker.actors.dispatcher.lost_workers import settlement_of_stray
from mqworker.actors.dispatcher.queue import DispatchedQueue
from mqworker.actors.dispatcher.queues import DispatchedQueues
from mqworker.actors.dispatcher.worker_care import slot_of
from mqworker.actors.dispatcher.workers import Crew, Hand
from mqworker.actors.mail import StandReady
from mqworker.actors.run_slot import RunSlots
from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.record import id_of
from mqworker.model.settlement import Settlement
from mqworker.store.store import Store

STORE_TROUBLE = (StoreUnavailable, StoreRefused, StoreFull)
ENDED_TOGETHER = "its worker ended together with the dispatcher"
_CANCEL_WISH = b"X"  # what request_cancel.lua leaves in the results


class Succession:
    """Hears from workers what they hold, and finds out what of that is still ours."""

    def __init__(
        self,
        predecessor: Predecessor,
        store: Store,
        queues: DispatchedQueues,
        lines: ModelLines,
        *,
        crew: Crew,
        shelf: Shelf,
        shortcuts: Shortcuts,
        slots: RunSlots,
        suspend: Callable[[DispatchedQueue, MqworkerError, int], None],
        cancel: Callable[[bytes], None],
        log: Logger,
    ) -> None:
        """`suspend` is told of a queue whose server is in trouble, `cancel` of messages that are to stop."""
        self._predecessor = predecessor
        self._store = store
        self._queues = queues
        self._lines = lines
        self._crew = crew
        self._shelf = shelf
        self._shortcuts = shortcuts
        self._slots = slots
        self._suspend = suspend
        self._cancel = cancel
        self._log = log
        self._unjudged: dict[str, list[Held]] = {}
        """By worker: what it said it holds, while it is not known what of that is still ours."""

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to take over."""
        return not self._unjudged and not self._predecessor.is_anybody_awaited

    @property
    def is_anybody_awaited(self) -> bool:
        """Whether a worker may hold something of which we do not know."""
        return self._predecessor.is_anybody_awaited

    def awaits(self, worker: str) -> bool:
        """Whether this worker lived before us and has not spoken."""
        return self._predecessor.awaits(worker)

    def note_heard(self, worker: str) -> None:
        """It speaks, or it is dead."""
        self._predecessor.note_heard(worker)
        self._unjudged.pop(worker, None)

    def welcome(self, hand: Hand, held: Sequence[Held]) -> list[Post]:
        """A worker says what it holds. It is answered when the server was asked, and given nothing before."""
        hand.drop_all()
        known = [each for each in held if self._queues.get(each.queue) is not None]
        self._unjudged[hand.name] = known
        for each in known:
            hand.take(each.fence, self._shelf.adopted_flight(self._queues[each.queue], each.task))
        return self._lines.adopt(hand.name, known)

    def turn(self, now_ms: int) -> Iterator[Post]:
        """Ask the server about what workers hold, and answer them."""
        for worker in self._predecessor.turn(now_ms):
            if (silent := self._crew.get(worker)) is not None:
                self._adopt_from_slot(silent, now_ms)
        for worker, held in [*self._unjudged.items()]:
            records = self._records_of(held, now_ms)
            if records is None:
                continue  # their server is away
            stale = self._adopt(self._crew[worker], held, records)
            del self._unjudged[worker]
            yield Post(worker, StandReady(self._shortcuts.channels(worker, self._queues), stale))

    def verdict_on_stray(self, queue: DispatchedQueue, fence: int, record: bytes) -> Settlement:
        """On a delivery that the server counts among ours and nobody holds."""
        accused = self._predecessor.accused_with(queue.name, fence)
        return settlement_of_stray(fence, record, ENDED_TOGETHER, accused)

    def _adopt(
        self, hand: Hand, held: Sequence[Held], records: dict[tuple[str, int], bytes | None]
    ) -> list[list[Any]]:
        verdict = judge(held, records, [name for name, task in hand.tasks.items() if task["once"]])
        for key, record in verdict.record_by_key.items():
            if key in hand.flights:  # it may have been reported meanwhile
                hand.flights[key].record = record
        stale = [[queue, fence] for queue, fence in verdict.stale if (queue, fence) in hand.flights]
        self._log.info("deliveries_adopted", worker=hand.name, count=len(hand.flights), stale=len(stale))
        self._crew.open(hand)
        self._cancel_as_wished(hand)
        return stale

    def _adopt_from_slot(self, hand: Hand, now_ms: int) -> None:
        """Until a worker speaks: what it is seen to run is nobody else's."""
        running, tasks = self._slots.running(slot_of(hand.name)), self._known_tasks()
        queue = None if running is None else self._queues.marked(running.queue_mark)
        if running is None or queue is None or not tasks:
            return
        records = self._records_of([Held(queue.name, running.fence, "", b"")], now_ms) or {}
        record = records.get((queue.name, running.fence))
        if record is not None:
            hand.drop_all()
            hand.tasks = tasks
            hand.take(running.fence, self._shelf.flight(queue, record))

    def _known_tasks(self) -> dict[str, dict[str, Any]]:
        """All workers of a node have the same; of one that has not spoken nobody else knows them."""
        return next((hand.tasks for hand in self._crew if hand.tasks), {})

    def _records_of(self, held: Sequence[Held], now_ms: int) -> dict[tuple[str, int], bytes | None] | None:
        """What the server keeps of these under our lease; None while it cannot be asked."""
        records: dict[tuple[str, int], bytes | None] = {}
        fences_by_queue: dict[str, list[int]] = {}
        for each in held:
            if self._lines.get(each.queue) is None:
                fences_by_queue.setdefault(each.queue, []).append(each.fence)
            else:
                records[each.queue, each.fence] = each.record
        for name, fences in fences_by_queue.items():
            queue = self._queues[name]
            if now_ms < queue.resume_at_ms:
                return None
            try:
                # Any: the reply of HMGET.
                found: Any = self._store.read([("HMGET", queue.held_key, *fences)], queue.keys.meta)[0]
            except STORE_TROUBLE as error:
                self._suspend(queue, error, now_ms)
                return None
            records |= {(name, fence): record for fence, record in zip(fences, found, strict=True)}
        return records

    def _cancel_as_wished(self, hand: Hand) -> None:
        """Somebody may have asked to stop one of its deliveries while no dispatcher listened."""
        ids_by_queue: dict[str, list[bytes]] = {}
        for flight in hand.flights.values():
            if flight.record and self._lines.get(flight.queue) is None:
                ids_by_queue.setdefault(flight.queue, []).append(id_of(flight.record))
        for name, ids in ids_by_queue.items():
            keys = self._queues[name].keys
            places = [keys.named("results"), keys.named("results:old")]
            with suppress(*STORE_TROUBLE):  # then it runs on, as after any wake-up that was lost
                # Any: the replies of HMGET.
                replies: Any = self._store.read([("HMGET", place, *ids) for place in places], keys.meta)
                for message, *wishes in zip(ids, *replies, strict=True):
                    if _CANCEL_WISH in wishes:
                        self._cancel(message)
