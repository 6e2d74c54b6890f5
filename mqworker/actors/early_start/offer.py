"""Early starts, the dispatcher's side: it offers idle workers to the server, and finds out what they began.

An offer to the server (dispatcher/queue.py) holds a ticket for each idle worker. A message handed over with a
ticket comes here and to the worker at the same time (enqueue.lua). The dispatcher presumes that this worker
has it. What the worker did with its ticket (tickets.py) is looked up when its report comes, when the worker
is needed for something else, or after a moment in which it could have begun. Nothing is handed out to a
worker while its ticket is valid.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from mqworker.actors.dispatcher.hand_out import HandOut
from mqworker.actors.dispatcher.lost_workers import LostWorkers
from mqworker.actors.dispatcher.queue import NO_TICKET, Claimed, DispatchedQueue
from mqworker.actors.dispatcher.run_times import BATCH_MS
from mqworker.actors.dispatcher.worker_care import WORKER, slot_of
from mqworker.actors.dispatcher.workers import Flight, Workers, WorkerState
from mqworker.actors.early_start.tickets import (
    UNDECIDED,
    HandedOver,
    Redeemed,
    Tickets,
    new_number,
    note_unreadable,
    read_handed_over,
)
from mqworker.actors.run_slot import mark_of
from mqworker.model.quarantine import Quarantine
from mqworker.model.record import task_of

LOOK_AFTER_MS = 1
"""How long a worker has to begin; after that any free worker gets the message."""
_MOST_REMEMBERED = 1_000


class EarlyStarts:
    """Issues tickets, and finds out how they were used."""

    def __init__(
        self, tickets: Tickets, workers: Workers, lost: LostWorkers, hand_out: HandOut, quarantine: Quarantine
    ) -> None:
        self._quarantine = quarantine
        self._tickets = tickets
        self._workers = workers
        self._lost = lost
        self._hand_out = hand_out
        self._queue_by_mark: dict[int, DispatchedQueue] = {}
        self._over: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Finished or given up before their wake-up came."""

    @property
    def are_open(self) -> bool:
        """Whether it is still unknown who has some message."""
        return any(worker.presumed for worker in self._workers)

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
        for worker in self._workers:
            if not worker.has_room_alone():
                continue
            if worker.presumed:
                yield NO_TICKET
                continue
            if not worker.ticket:
                worker.ticket = new_number()
                self._tickets.issue(slot_of(worker.name), worker.ticket)
            yield f"{slot_of(worker.name)}:{worker.ticket}"

    def hear(self, queue: DispatchedQueue, text: bytes, now_ms: int) -> bool:
        """A message was handed over (enqueue.lua); without an early start it is handed out like any other.

        False when it is for no place that was offered: the server may hold it for us, or somebody made it up.
        """
        handed_over = read_handed_over(text)
        if handed_over is None or not queue.places.take(handed_over.place):
            note_unreadable(self._quarantine, queue.held_key, text)
            return False
        queue.note_handed_over()
        if (queue.name, handed_over.fence) in self._over:
            del self._over[queue.name, handed_over.fence]
        elif not self._is_begun(queue, handed_over, now_ms):
            delivery = Claimed(handed_over.fence, handed_over.record, now_ms)
            self._hand_out.put_back(queue, delivery)
        return True

    def note_over(self, queue: str, fence: int) -> None:
        """Note that it must not run any more, in case its wake-up comes late."""
        self._over[queue, fence] = None
        if len(self._over) > _MOST_REMEMBERED:
            self._over.popitem(last=False)

    def _is_begun(self, queue: DispatchedQueue, handed_over: HandedOver, now_ms: int) -> bool:
        """Whether the ticket's worker has it, as far as is known."""
        fence, worker, _, _, record = handed_over
        # The dead count, too: who dies over it at once may be lost here before its wake-up is heard.
        for state in (*self._workers, *self._lost.workers()):
            if (flight := state.flights.get((queue.name, fence))) is not None:
                flight.record = record
                return True
        named = self._workers.get(f"{WORKER}{worker}")
        return named is not None and self._presume(named, queue, handed_over, now_ms)

    def _presume(
        self, worker: WorkerState, queue: DispatchedQueue, handed_over: HandedOver, now_ms: int
    ) -> bool:
        fence, _, ticket, _, record = handed_over
        task = task_of(record)
        if not worker.ticket or worker.ticket != ticket or queue.runs_once(task) or queue.batch_terms(task):
            return False
        if not worker.flights:
            worker.last_report_ms, worker.is_slow = now_ms, False
        flight = self._hand_out.flight(queue, record)
        flight.since_ms = now_ms
        worker.take(fence, flight)
        worker.presumed[queue.name, fence] = now_ms
        return True

    def note_report(self, worker: WorkerState, queue: str, fences: Sequence[int]) -> None:
        """A worker finished these."""
        if worker.ticket and not all(_was_handed_out(worker, (queue, fence)) for fence in fences):
            self.close(worker)
        worker.was_late = False
        for fence, flight in zip(fences, worker.drop_several(queue, fences), strict=True):
            if flight is not None and not flight.is_async:
                worker.is_slow = False  # it is past what took so long, unless it says so again
            if flight is None or not flight.record or worker.ticket:
                self.note_over(queue, fence)

    def close_overdue(self, now_ms: int) -> None:
        """Look what became of messages that a worker should have begun by now."""
        for worker in self._workers:
            if worker.presumed and now_ms - min(worker.presumed.values()) >= LOOK_AFTER_MS:
                self.close(worker)
                worker.was_late = not worker.flights

    def close_all(self) -> bool:
        """Cancel every ticket; whether it is known now of all workers what they have begun."""
        closed = [self.close(worker) for worker in self._workers if worker.ticket]
        return all(closed)

    def close(self, worker: WorkerState) -> bool:
        """Cancel a ticket: what did not begin with it is handed out. False when that is still open."""
        if not worker.ticket:
            return True
        outcome = self._tickets.cancel(slot_of(worker.name), worker.ticket)
        if outcome == UNDECIDED:
            return False
        worker.ticket = 0
        begun = self._begun(outcome) if isinstance(outcome, Redeemed) else None
        for key in [*worker.presumed]:
            if key != begun:
                self._put_back(key, worker)
        worker.presumed.clear()
        if begun is not None and begun not in worker.flights and begun not in self._over:
            worker.take(begun[1], Flight(begun[0], b"", BATCH_MS, is_alone=True, is_async=False))
        return True

    def _begun(self, redeemed: Redeemed) -> tuple[str, int] | None:
        queue = self._queue_by_mark.get(redeemed.queue_mark)
        return None if queue is None else (queue.name, redeemed.fence)

    def _put_back(self, key: tuple[str, int], worker: WorkerState) -> None:
        name, fence = key
        since_ms = worker.presumed[key]
        flight = worker.drop(name, fence)
        if flight is not None:
            queue = self._queue_by_mark[mark_of(name)]
            # What was claimed since is younger: it must not be handed out first.
            self._hand_out.put_back(queue, Claimed(fence, flight.record, since_ms))


def _was_handed_out(worker: WorkerState, key: tuple[str, int]) -> bool:
    return key in worker.flights and key not in worker.presumed
