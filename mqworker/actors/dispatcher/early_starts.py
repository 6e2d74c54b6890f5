"""Shortcuts: messages that an idle worker begins by itself, and how the dispatcher keeps count of them.

An offer to the server (dispatcher_queue.py) holds a ticket for each idle worker. A message handed over with a
ticket comes here and to the worker at the same time (enqueue.lua). It is presumed to be in that worker's
hands; what the worker did with its ticket (tickets.py) is looked up when its report comes, when the worker is
needed for something else, or after a moment in which it could have begun. Nothing is handed out to a worker
whose ticket is out.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice

from mqworker.actors.dispatcher.hand_out import Shelf
from mqworker.actors.dispatcher.lost_workers import LostWorkers
from mqworker.actors.dispatcher.queue import NO_TICKET, Claimed, DispatchedQueue
from mqworker.actors.dispatcher.run_times import BATCH_MS
from mqworker.actors.dispatcher.worker_care import WORKER, slot_of
from mqworker.actors.dispatcher.workers import Crew, Flight, Hand
from mqworker.actors.run_slot import mark_of
from mqworker.actors.tickets import UNDECIDED, HandedOver, Redeemed, Tickets, read_handed_over
from mqworker.model.quarantine import Quarantine
from mqworker.model.record import task_of

LOOK_AFTER_MS = 1
"""So long a worker has for the first step; then whoever is free gets the message."""
_MOST_REMEMBERED = 1_000
_SHOWN_BYTES = 40


class Shortcuts:
    """Issues tickets, and finds out what became of them."""

    def __init__(
        self, tickets: Tickets, crew: Crew, lost: LostWorkers, shelf: Shelf, quarantine: Quarantine
    ) -> None:
        self._quarantine = quarantine
        self._tickets = tickets
        self._crew = crew
        self._lost = lost
        self._shelf = shelf
        self._numbers = count(int.from_bytes(os.urandom(7)))  # none of those of a dispatcher before this
        self._queue_by_mark: dict[int, DispatchedQueue] = {}
        self._over: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Finished or given up before their wake-up came."""

    @property
    def are_open(self) -> bool:
        """Whether it is open what became of some message."""
        return any(hand.presumed for hand in self._crew)

    def channels(self, worker: str, queues: Iterable[DispatchedQueue]) -> dict[str, str]:
        """Where a worker hears of messages that it may begin, and of which queue they are."""
        self._queue_by_mark = {mark_of(queue.name): queue for queue in queues}
        return {queue.begin_channel(slot_of(worker)): queue.name for queue in self._queue_by_mark.values()}

    def welcome(self, worker: str) -> None:
        """A new one has no ticket, whatever the one before it had."""
        self._tickets.issue(slot_of(worker), 0)

    def tickets(self, most: int) -> list[str]:
        """One for each worker that could begin this moment."""
        return list(islice(self._issue(), most))

    def _issue(self) -> Iterator[str]:
        for hand in self._crew:
            if not hand.has_room_alone():
                continue
            if hand.presumed:
                yield NO_TICKET
                continue
            if not hand.ticket:
                hand.ticket = next(self._numbers)
                self._tickets.issue(slot_of(hand.name), hand.ticket)
            yield f"{slot_of(hand.name)}:{hand.ticket}"

    def hear(self, queue: DispatchedQueue, text: bytes, now_ms: int) -> None:
        """A message was handed over (enqueue.lua); one that no worker begins by itself goes to the shelf."""
        handed_over = read_handed_over(text)
        if handed_over is None:
            self._quarantine.note("wake-up", queue.held_key, "hands over no message", text[:_SHOWN_BYTES])
            return
        queue.note_handed_over()
        if (queue.name, handed_over.fence) in self._over:
            del self._over[queue.name, handed_over.fence]
        elif not self._is_begun(queue, handed_over, now_ms):
            delivery = Claimed(handed_over.fence, handed_over.record, now_ms)
            self._shelf.put(queue, queue.take_handed_over(delivery))

    def note_over(self, queue: str, fence: int) -> None:
        """It is not to be run any more, should its wake-up come late."""
        self._over[queue, fence] = None
        if len(self._over) > _MOST_REMEMBERED:
            self._over.popitem(last=False)

    def _is_begun(self, queue: DispatchedQueue, handed_over: HandedOver, now_ms: int) -> bool:
        """Whether it is in the hands of the ticket's worker, for all we know."""
        fence, worker, _, record = handed_over
        # The dead count, too: who dies over it at once may be lost here before its wake-up is heard.
        for hand in (*self._crew, *self._lost.hands()):
            if (flight := hand.flights.get((queue.name, fence))) is not None:
                flight.record = record
                return True
        named = self._crew.get(f"{WORKER}{worker}")
        return named is not None and self._presume(named, queue, handed_over, now_ms)

    def _presume(self, hand: Hand, queue: DispatchedQueue, handed_over: HandedOver, now_ms: int) -> bool:
        fence, _, ticket, record = handed_over
        if not hand.ticket or hand.ticket != ticket or queue.runs_once(task_of(record)):
            return False
        if not hand.flights:
            hand.last_report_ms, hand.is_slow = now_ms, False
        flight = self._shelf.flight(queue, record)
        flight.since_ms = now_ms
        hand.take(fence, flight)
        hand.presumed[queue.name, fence] = now_ms
        return True

    def note_report(self, hand: Hand, queue: str, fences: Sequence[int]) -> None:
        """A worker finished these."""
        if hand.ticket and not all(_was_handed_out(hand, (queue, fence)) for fence in fences):
            self.close(hand)
        hand.was_late = False
        for fence in fences:
            flight = hand.drop(queue, fence)
            if flight is not None and not flight.is_async:
                hand.is_slow = False  # it is past what took so long, unless it says so again
            if flight is None or not flight.record or hand.ticket:
                self.note_over(queue, fence)

    def close_overdue(self, now_ms: int) -> None:
        """Look what became of messages that a worker should have begun by now."""
        for hand in self._crew:
            if hand.presumed and now_ms - min(hand.presumed.values()) >= LOOK_AFTER_MS:
                self.close(hand)
                hand.was_late = not hand.flights

    def close_all(self) -> bool:
        """Cancel every ticket; whether it is known now of all workers what they have begun."""
        closed = [self.close(hand) for hand in self._crew if hand.ticket]
        return all(closed)

    def close(self, hand: Hand) -> bool:
        """Cancel a ticket: what did not begin with it goes to the shelf. False when that is still open."""
        if not hand.ticket:
            return True
        outcome = self._tickets.cancel(slot_of(hand.name), hand.ticket)
        if outcome == UNDECIDED:
            return False
        hand.ticket = 0
        begun = self._begun(outcome) if isinstance(outcome, Redeemed) else None
        for key in [*hand.presumed]:
            if key != begun:
                self._put_back(key, hand)
        hand.presumed.clear()
        if begun is not None and begun not in hand.flights and begun not in self._over:
            hand.take(begun[1], Flight(begun[0], b"", BATCH_MS, is_alone=True, is_async=False))
        return True

    def _begun(self, redeemed: Redeemed) -> tuple[str, int] | None:
        queue = self._queue_by_mark.get(redeemed.queue_mark)
        return None if queue is None else (queue.name, redeemed.fence)

    def _put_back(self, key: tuple[str, int], hand: Hand) -> None:
        name, fence = key
        since_ms = hand.presumed[key]
        flight = hand.drop(name, fence)
        if flight is not None:
            queue = self._queue_by_mark[mark_of(name)]
            self._shelf.put(queue, queue.take_handed_over(Claimed(fence, flight.record, since_ms)))


def _was_handed_out(hand: Hand, key: tuple[str, int]) -> bool:
    return key in hand.flights and key not in hand.presumed
