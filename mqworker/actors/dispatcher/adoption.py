"""Adoption: a dispatcher takes over what workers hold from the dispatcher before it.

The leases belong to the node, so they outlast the dispatcher. Each living worker says what it holds; what the
server still keeps under our lease is adopted. What the server keeps and nobody holds is found by the
reconciliation, which waits until every worker that lived at our start has spoken or is dead. A worker in the
middle of a long task may be slow to speak: until then its run slot says what it runs, and nobody else gets
that.

First the decisions, which are pure; then `Adoption`, which asks the server and answers the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.foreign_queue import ForeignQueues
from mqworker.actors.dispatcher.hand_out import HandOut
from mqworker.actors.dispatcher.lost_workers import settlement_of_stray
from mqworker.actors.dispatcher.queue import STORE_TROUBLE, DispatchedQueue, DispatchedQueues
from mqworker.actors.dispatcher.worker_care import slot_of
from mqworker.actors.dispatcher.workers import Workers, WorkerState
from mqworker.actors.early_start.offer import EarlyStarts
from mqworker.actors.mail import StandReady
from mqworker.actors.run_slot import Begun, RunSlots, mark_of
from mqworker.errors import MqworkerError
from mqworker.log import Logger
from mqworker.model.record import id_of
from mqworker.model.settlement import Settlement
from mqworker.store.store import Store

LOOK_EVERY_MS = 250
"""How often to read the run slot of a worker that has not reported in yet."""
LONGEST_WAIT_MS = 30_000
"""How long a worker may be silent; then others get what its slot does not show running. It cannot
begin those later: before its next task it reads that it has a new dispatcher, and asks."""


class Held(NamedTuple):
    """A delivery that a worker has from the dispatcher before this one."""

    queue: str
    fence: int
    task: str
    record: bytes
    """Empty where the server keeps it."""
    together: int = 0
    """The first fence of the batch in which it runs; 0: by itself."""


class Judgement(NamedTuple):
    """What is to become of the deliveries of one worker."""

    record_by_key: dict[tuple[str, int], bytes]
    """Adopted: it is still ours."""
    stale: list[list[Any]]
    """Queue and fence: the server gave it to somebody else, or it is settled."""


def read_held(held: Iterable[Sequence[Any]]) -> list[Held]:
    """What stands in a greeting."""
    return [Held(*entry) for entry in held]


def judge(
    held: Iterable[Held],
    record_by_key: Mapping[tuple[str, int], bytes | None],
    once_tasks: Collection[str],
) -> Judgement:
    """Compare what a worker says it holds with what the server keeps under our lease.

    Neither adopted nor stale is what may run once only: its lease ended before it began, and the worker's is
    the only copy.
    """
    adopted: dict[tuple[str, int], bytes] = {}
    stale: list[list[Any]] = []
    for each in held:
        record = record_by_key.get((each.queue, each.fence))
        if record is not None:
            adopted[each.queue, each.fence] = record
        elif each.task not in once_tasks:
            stale.append([each.queue, each.fence])
    return Judgement(adopted, stale)


class Predecessor:
    """What is left of the dispatcher before this one: workers to wait for, and what died with it."""

    def __init__(
        self, workers: Iterable[str] = (), begun: Iterable[Begun] = (), *, has_been: bool = True
    ) -> None:
        """`workers` lived when this dispatcher was started; `begun` is what all slots said then."""
        self.has_been = has_been
        """False for the first dispatcher of a node."""
        self._awaited = set(workers)
        self._begun = list(begun)
        self._logs = [each.log for each in self._begun]
        self._began_at_ms: int | None = None
        self._look_at_ms = 0

    @property
    def is_anybody_awaited(self) -> bool:
        """Whether one that could hold something has neither spoken nor died, and is still waited for."""
        return bool(self._awaited)

    def awaits(self, worker: str) -> bool:
        """Whether this worker lives and has not spoken."""
        return worker in self._awaited

    def note_heard(self, worker: str) -> None:
        """It said what it holds."""
        self._awaited.discard(worker)

    def note_dead(self, worker: str, begun: Begun) -> None:
        """It died; if it never said what it held, it may have begun more of it since we looked first."""
        if worker in self._awaited:
            self._logs.append(begun.log)
            self._awaited.discard(worker)

    def turn(self, now_ms: int) -> Iterator[str]:
        """Those that have not spoken, and whose slots are to be looked at now."""
        if self._began_at_ms is None:
            self._began_at_ms = now_ms
        if now_ms - self._began_at_ms >= LONGEST_WAIT_MS:
            self._awaited.clear()
        if self._awaited and now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_EVERY_MS
            yield from sorted(self._awaited)

    def accused_with(self, queue: str, fence: int) -> int:
        """How many ran in the worker of a delivery that nobody holds when it ended; 0: this did not run."""
        key = (mark_of(queue), fence)
        # Of a batch only the first one is known here: it ran beside others, and is not guilty for that.
        return next(
            (len(begun.running) + (key in begun.together) for begun in self._begun if key in begun.running), 0
        )

    def began_at_ms(self, queue: str, fence: int) -> int | None:
        """When it began in such a worker (ms since 1970), where runs are traced."""
        key = (mark_of(queue), fence)
        return next((log[key] for log in self._logs if key in log), None)


NoteStrayRun = Callable[[str, bytes, Settlement, str, int | None], None]
"""Told the queue, the record, what becomes of it, why, and when it began, if that is known."""
ENDED_TOGETHER = "its worker ended together with the dispatcher"
_CANCEL_WISH = b"X"  # what request_cancel.lua leaves in the results


class Adoption:
    """Hears from workers what they hold, and finds out which of those deliveries are still ours."""

    def __init__(
        self,
        predecessor: Predecessor,
        store: Store,
        queues: DispatchedQueues,
        foreign_queues: ForeignQueues,
        *,
        workers: Workers,
        hand_out: HandOut,
        early_starts: EarlyStarts,
        slots: RunSlots,
        suspend: Callable[[DispatchedQueue, MqworkerError, int], None],
        cancel: Callable[[bytes], None],
        log: Logger,
        note_stray_run: NoteStrayRun | None = None,
    ) -> None:
        """`suspend` is told of a queue whose server is in trouble, `cancel` of messages that are to stop.

        `note_stray_run` is told of what ran in a worker that ended together with the dispatcher before us.
        """
        self._note_stray_run = note_stray_run
        self._predecessor = predecessor
        self._store = store
        self._queues = queues
        self._foreign_queues = foreign_queues
        self._workers = workers
        self._hand_out = hand_out
        self._early_starts = early_starts
        self._slots = slots
        self._suspend = suspend
        self._cancel = cancel
        self._log = log
        self._unjudged: dict[str, list[Held]] = {}
        """By worker: what it said it holds, until we know which of those deliveries are still ours."""

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to take over."""
        return not self._unjudged and not self._predecessor.is_anybody_awaited

    @property
    def is_anybody_awaited(self) -> bool:
        """Whether a worker may hold something that we do not know about."""
        return self._predecessor.is_anybody_awaited

    def awaits(self, worker: str) -> bool:
        """Whether this worker lived before us and has not spoken."""
        return self._predecessor.awaits(worker)

    def note_heard(self, worker: str) -> None:
        """It speaks."""
        self._predecessor.note_heard(worker)
        self._unjudged.pop(worker, None)

    def note_dead(self, worker: str, begun: Begun) -> None:
        """It is dead; its slot says what it had begun."""
        self._predecessor.note_dead(worker, begun)
        self._unjudged.pop(worker, None)

    def welcome(self, worker: WorkerState, held: Sequence[Held]) -> None:
        """A worker says what it holds. It is answered when the server was asked, and given nothing before."""
        worker.drop_all()
        known = [each for each in held if self._queues.get(each.queue) is not None]
        self._unjudged[worker.name] = known
        for each in known:
            flight = self._hand_out.adopted_flight(
                self._queues[each.queue], each.fence, each.task, each.together
            )
            worker.take(each.fence, flight)
        self._foreign_queues.adopt(known)

    def turn(self, now_ms: int) -> Iterator[Post]:
        """Ask the server about what workers hold, and answer them."""
        if self.is_over:
            self._foreign_queues.end_adoption()
            return
        for worker in self._predecessor.turn(now_ms):
            if (silent := self._workers.get(worker)) is not None:
                self._adopt_from_slot(silent, now_ms)
        for worker, held in [*self._unjudged.items()]:
            records = self._records_of(held, now_ms)
            if records is None:
                continue  # their server is away
            stale = self._adopt(self._workers[worker], held, records)
            del self._unjudged[worker]
            yield Post(worker, StandReady(self._early_starts.channels(worker, self._queues), stale))

    def stray_settlement(self, queue: DispatchedQueue, fence: int, record: bytes) -> Settlement:
        """Decide about a delivery that the server counts as ours and no worker holds."""
        accused = self._predecessor.accused_with(queue.name, fence)
        settlement = settlement_of_stray(fence, record, ENDED_TOGETHER, accused)
        began_at_ms = self._predecessor.began_at_ms(queue.name, fence)
        has_begun = began_at_ms is not None or accused > 0
        if has_begun and self._note_stray_run is not None:
            self._note_stray_run(queue.name, record, settlement, ENDED_TOGETHER, began_at_ms)
        return settlement

    def _adopt(
        self, worker: WorkerState, held: Sequence[Held], records: dict[tuple[str, int], bytes | None]
    ) -> list[list[Any]]:
        judgement = judge(held, records, [name for name, task in worker.tasks.items() if task["once"]])
        for key, record in judgement.record_by_key.items():
            if key in worker.flights:  # it may have been reported meanwhile
                worker.flights[key].record = record
        stale = [[queue, fence] for queue, fence in judgement.stale if (queue, fence) in worker.flights]
        self._log.info("deliveries_adopted", worker=worker.name, count=len(worker.flights), stale=len(stale))
        self._workers.open(worker)
        self._cancel_as_wished(worker)
        return stale

    def _adopt_from_slot(self, worker: WorkerState, now_ms: int) -> None:
        """Until a worker reports in, nobody else gets what its slot shows it running."""
        running, tasks = self._slots.running(slot_of(worker.name)), self._known_tasks()
        queue = None if running is None else self._queues.marked(running.queue_mark)
        if running is None or queue is None or not tasks:
            return
        records = self._records_of([Held(queue.name, running.fence, "", b"")], now_ms) or {}
        record = records.get((queue.name, running.fence))
        if record is not None:
            worker.drop_all()
            worker.tasks = tasks
            worker.take(running.fence, self._hand_out.flight(queue, record))

    def _known_tasks(self) -> dict[str, dict[str, Any]]:
        """All workers of a node have the same; of one that has not spoken nobody else knows them."""
        return next((worker.tasks for worker in self._workers if worker.tasks), {})

    def _records_of(self, held: Sequence[Held], now_ms: int) -> dict[tuple[str, int], bytes | None] | None:
        """What the server keeps of these under our lease; None while it cannot be asked."""
        records: dict[tuple[str, int], bytes | None] = {}
        fences_by_queue: dict[str, list[int]] = {}
        for each in held:
            if self._foreign_queues.get(each.queue) is None:
                fences_by_queue.setdefault(each.queue, []).append(each.fence)
            else:
                records[each.queue, each.fence] = each.record
        for name, fences in fences_by_queue.items():
            queue = self._queues[name]
            if now_ms < queue.resume_at_ms:
                return None
            try:
                # Any: the reply of HMGET.
                found: Any = self._store.send([("HMGET", queue.held_key, *fences)], queue.keys.meta)[0]
            except STORE_TROUBLE as error:
                self._suspend(queue, error, now_ms)
                return None
            records |= {(name, fence): record for fence, record in zip(fences, found, strict=True)}
        return records

    def _cancel_as_wished(self, worker: WorkerState) -> None:
        """Somebody may have asked to stop one of its deliveries while no dispatcher listened."""
        ids_by_queue: dict[str, list[bytes]] = {}
        for flight in worker.flights.values():
            if flight.record and self._foreign_queues.get(flight.queue) is None:
                ids_by_queue.setdefault(flight.queue, []).append(id_of(flight.record))
        for name, ids in ids_by_queue.items():
            keys = self._queues[name].keys
            places = [keys.named("results"), keys.named("results:old")]
            with suppress(*STORE_TROUBLE):  # then it runs on, as after any wake-up that was lost
                # Any: the replies of HMGET.
                replies: Any = self._store.send([("HMGET", place, *ids) for place in places], keys.meta)
                for message, *wishes in zip(ids, *replies, strict=True):
                    if _CANCEL_WISH in wishes:
                        self._cancel(message)
