"""Hand-out: claimed deliveries that no worker has yet, and which worker gets them. Pure.

Nothing should wait here for long. What nobody here can take soon is given back to its queue (give_back.py):
a message never waits here while a worker of another node is idle.

What must run alone waits apart, and holds nothing up: one worker is emptied for it, and the others go on. So
do deliveries of tasks that take batches, until their batch is ripe (gathering.py).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, TypeAlias

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.gathering import (
    MORE_AT_ONCE,
    MOST_GATHERED,
    Gathered,
    Gathering,
    units_of,
)
from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue
from mqworker.actors.dispatcher.run_times import BATCH_MS, RunTimes
from mqworker.actors.dispatcher.workers import Flight, Workers, WorkerState
from mqworker.actors.mail import RunDeliveries
from mqworker.model.batch import BatchTerms
from mqworker.model.record import (
    LARGEST_RECORD_BYTES,
    UNMARKED,
    is_on_probation,
    is_record_of,
    must_run_alone,
    task_of,
)

LARGEST_MAIL_BYTES = 8 * 1024 * 1024
"""A mail is full at this size; the frame around it may hold several times as much."""
LONGEST_WAIT_MS = 100
"""How long a delivery may wait here for a worker: far longer than a batch takes."""
LONGEST_WAIT_ALONE_MS = 1_000
"""The same for one that must run with nothing beside it: a worker has to be emptied first."""
MOST_WAITING_ALONE = 100
KEEP_AFTER_MS = 50
"""After this long, one worker is kept free for a delivery that must run alone."""
LONGEST_KEPT_MS = 1_000
"""The same where a worker is kept for it. On an overloaded machine a batch may take that long, and whoever
gave the delivery back would get it again, in front of the next batch."""


BeginProbation: TypeAlias = Callable[[DispatchedQueue, int, int], bytes | None]
"""Queue, fence, now: notes at the server that it is about to run. Its record; None if that failed."""


class _Kind(NamedTuple):
    """What is the same for all deliveries of one task, as long as one hand-out lasts."""

    expected_ms: float | None
    is_async: bool
    is_alone: bool
    """Whether nothing else should wait behind it."""
    is_known: bool
    batch: BatchTerms | None


class _Batches:
    """The mails of one hand-out."""

    def __init__(self, now_ms: int, batch_ms: float) -> None:
        self.mails: list[Post] = []
        self._stint_ms = int(batch_ms)
        self._now_ms = now_ms
        self._latest: dict[str, tuple[RunDeliveries, int]] = {}
        """By worker: the mail that is being filled, and how many bytes it holds."""

    def add(self, worker: WorkerState, claimed: Claimed, flight: Flight) -> None:
        """Give a delivery to a worker."""
        if not worker.flights:
            worker.last_report_ms, worker.is_slow = self._now_ms, False
        fence, record, _, start_by_ms = claimed
        flight.start_by_ms, flight.since_ms = start_by_ms, self._now_ms
        worker.take(fence, flight)
        batch = self._batch(worker, flight.queue, len(record))
        batch.fences.append(fence)
        batch.records.append(record)
        if start_by_ms:
            batch.start_by_ms[fence] = start_by_ms

    def add_together(self, worker: WorkerState, batch: Gathered, flights: Sequence[Flight]) -> None:
        """Give a batch to a worker, as one mail."""
        if not worker.flights:
            worker.last_report_ms, worker.is_slow = self._now_ms, False
        for claimed, flight in zip(batch.members, flights, strict=True):
            flight.start_by_ms, flight.since_ms = claimed.start_by_ms, self._now_ms
            worker.take(claimed.fence, flight)
        mail = mail_of(batch.queue, batch.members, worker.take_accepted(self._now_ms), self._stint_ms)
        self.mails.append(Post(worker.name, mail))
        self._latest.pop(worker.name, None)  # nothing is added to it

    def add_quick(
        self, worker: WorkerState, queue: str, fences: list[int], records: list[bytes], expected_ms: float
    ) -> None:
        """Give a worker deliveries that it runs one after another and that need no permit."""
        if not worker.flights:
            worker.last_report_ms, worker.is_slow = self._now_ms, False
        worker.take_quick(queue, fences, records, expected_ms, self._now_ms)
        batch = self._batch(worker, queue, sum(map(len, records)))
        batch.fences.extend(fences)
        batch.records.extend(records)

    def _batch(self, worker: WorkerState, queue: str, more_bytes: int) -> RunDeliveries:
        """The latest mail to a worker, or a new one: it runs them in order."""
        batch, batch_bytes = self._latest.get(worker.name, (None, 0))
        if batch is None or batch.queue != queue or batch_bytes > LARGEST_MAIL_BYTES:
            accepted = worker.take_accepted(self._now_ms)
            batch = RunDeliveries(queue, [], [], accepted=accepted, stint_ms=self._stint_ms)
            batch_bytes = 0
            self.mails.append(Post(worker.name, batch))
        self._latest[worker.name] = batch, batch_bytes + more_bytes
        return batch


class HandOut:
    """Keeps the order in which deliveries were claimed."""

    def __init__(self, workers: Workers, times: RunTimes, begin_probation: BeginProbation) -> None:
        self._workers = workers
        self._times = times
        self._begin_probation = begin_probation
        self._waiting: deque[tuple[DispatchedQueue, Claimed]] = deque()
        self._lone: deque[tuple[DispatchedQueue, Claimed]] = deque()
        """What must run alone, apart from the others."""
        self._may_be_reserved = False
        self._expected: set[tuple[str, int]] = set()
        """Those for which a worker is kept, by queue and fence."""
        self._unknown: list[tuple[DispatchedQueue, Claimed]] = []
        self._gathering = Gathering()
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._waiting) + self._gathering.ripe

    @property
    def gathering(self) -> int:
        """How many wait for others of their batch."""
        return self._gathering.open

    def ripen(self, now_ms: int) -> None:
        """Batches whose first one has waited long enough wait for a worker from now on."""
        self._gathering.ripen(now_ms)

    def wait_ms(self, most_ms: int, now_ms: int) -> int:
        """Until the next batch is ripe."""
        due_in_ms = self._gathering.due_in_ms(now_ms)
        return most_ms if due_in_ms is None else min(most_ms, due_in_ms)

    def note_room_for_batches(self, queues: Iterable[DispatchedQueue], *, is_draining: bool) -> None:
        """Tell queues how many more fill the batches of all workers that could run one."""
        with_batches = [queue for queue in queues if queue.batches.own]
        if with_batches:
            able = 0 if is_draining else sum(map(self._is_able, self._workers))
            for queue in with_batches:
                capacity = queue.batches.capacity(able, MOST_GATHERED + MORE_AT_ONCE)
                queue.batches.room = max(0, capacity - self._gathering.open_of(queue))

    def _is_able(self, worker: WorkerState) -> bool:
        has_quick = worker.has_room(0.0, self._workers.batch_ms) and worker.busy_ms <= BATCH_MS
        return has_quick or worker.has_room_alone()

    @property
    def waiting_alone(self) -> int:
        """How many wait for a worker that has nothing else to do."""
        return len(self._lone)

    def put(self, queue: DispatchedQueue, claimed: Iterable[Claimed]) -> None:
        """Claimed just now."""
        self._waiting.extend([(queue, each) for each in claimed])

    def put_back(self, queue: DispatchedQueue, *returned: Claimed) -> None:
        """Nobody began these: each takes its place again, before all of its queue that were claimed later."""
        back = {each.fence: each for each in returned}
        back.update({claimed.fence: claimed for each, claimed in self._waiting if each is queue})
        others = [waiting for waiting in self._waiting if waiting[0] is not queue]
        self._waiting = deque([*((queue, back[fence]) for fence in sorted(back)), *others])

    def fences_of(self, queue: DispatchedQueue) -> set[int]:
        """What waits here of one queue."""
        apart = self._gathering.fences_of(queue)
        return {claimed.fence for each, claimed in (*self._waiting, *self._lone) if each is queue}.union(
            apart
        )

    def count_by_queue(self) -> Counter[str]:
        """How many wait here of each queue."""
        count: Counter[str] = Counter(queue.name for queue, _ in self._waiting)
        if self._gathering:
            count.update(self._gathering.ripe_names())
        return count

    def take_unknown(self) -> list[tuple[DispatchedQueue, Claimed]]:
        """Take what was not handed out because nobody here knows its task."""
        unknown, self._unknown = self._unknown, []
        return unknown

    def take_message(self, message: bytes) -> list[tuple[DispatchedQueue, Claimed]]:
        """Take one message, by its id."""
        taken = [each for each in (*self._waiting, *self._lone) if is_record_of(each[1].record, message)]
        for each in taken:
            (self._waiting if each in self._waiting else self._lone).remove(each)
        return taken + self._gathering.take_message(message)

    def take_overdue(self, now_ms: int) -> dict[DispatchedQueue, list[Claimed]]:
        """Take what has waited for too long, with everything of its queue that came after it.

        In the order of delivery, and all at once: what is given back goes to the front of its queue, so what
        is given back later would overtake it.
        """
        overdue = {
            queue.name
            for queue, claimed in self._waiting
            if now_ms - claimed.since_ms > self._patience_ms(queue, claimed)
        }
        taken = self._take(overdue) if overdue else {}
        return _together(taken, self._gathering.take_overdue(now_ms)) if self._gathering else taken

    def _patience_ms(self, queue: DispatchedQueue, claimed: Claimed) -> int:
        return LONGEST_KEPT_MS if (queue.name, claimed.fence) in self._expected else LONGEST_WAIT_MS

    def take_all(self) -> dict[DispatchedQueue, list[Claimed]]:
        """Take everything, in the order of delivery."""
        self._waiting.extendleft(reversed(self._lone))
        self._lone.clear()
        return _together(self._take({queue.name for queue, _ in self._waiting}), self._gathering.take_all())

    def take_overdue_alone(self, now_ms: int) -> dict[DispatchedQueue, list[Claimed]]:
        """From what must run alone, take what has waited for too long, and what is too much.

        One for each worker that is being emptied stays, however long that takes.
        """
        before_ms, awaited = now_ms - LONGEST_WAIT_ALONE_MS, self._workers.being_emptied()
        kept: list[tuple[DispatchedQueue, list[Claimed]]] = []
        taken: dict[DispatchedQueue, list[Claimed]] = {}
        for queue, unit in units_of(self._lone):
            if len(kept) < awaited or (unit[0].since_ms >= before_ms and len(kept) < MOST_WAITING_ALONE):
                kept.append((queue, unit))
            else:
                taken.setdefault(queue, []).extend(unit)
        self._lone = deque((queue, claimed) for queue, unit in kept for claimed in unit)
        return taken

    def _take(self, queues: Collection[str]) -> dict[DispatchedQueue, list[Claimed]]:
        taken: dict[DispatchedQueue, list[Claimed]] = {}
        kept: deque[tuple[DispatchedQueue, Claimed]] = deque()
        for queue, claimed in self._waiting:
            if queue.name in queues:
                taken.setdefault(queue, []).append(claimed)
            else:
                kept.append((queue, claimed))
        self._waiting = kept
        return taken

    def assign(self, now_ms: int) -> list[Post]:
        """Give workers what they have room for, as one mail for each worker and queue unless it is large.

        A slow or unknown delivery waits for an idle worker. After a while one is kept for it and given
        nothing else until then: otherwise quick ones that came later could keep all workers busy for ever.
        """
        self._now_ms = now_ms
        self._workers.end_keeping()
        self._expected.clear()
        batches = _Batches(now_ms, self._workers.batch_ms)
        kinds: dict[tuple[str, bytes], _Kind] = {}
        waiting, self._waiting = [*self._waiting], deque()
        at = 0
        while at < len(waiting):
            queue, claimed = waiting[at]
            kind = self._kind_of(queue, claimed, kinds)
            if kind is None:
                at += 1
            elif kind.is_alone or kind.is_async or claimed.start_by_ms:
                at += 1
                self._assign_one(queue, claimed, kind, batches, now_ms)
            else:
                at = self._assign_alike(waiting, at, kind.expected_ms or 0.0, batches)
        if self._gathering:
            self._gathering.ripen(now_ms)
            for batch in self._gathering.take_ripe():
                self._assign_together(batch, batches, now_ms)
        return batches.mails

    def _assign_together(self, batch: Gathered, batches: _Batches, now_ms: int) -> None:
        """Give a batch to a worker that could begin it now, or soon where batches are quick."""
        kind = self._kind(batch.queue, batch.task)
        expected_ms = None if kind.expected_ms is None else kind.expected_ms * len(batch.members)
        is_slow = expected_ms is None or expected_ms > self._workers.batch_ms
        worker = self._workers.choose(
            None if is_slow else expected_ms,
            is_async=kind.is_async,
            task=batch.task,
            has_permit=any(each.start_by_ms for each in batch.members),
        )
        if worker is not None:
            batches.add_together(worker, batch, _flights(batch, kind._replace(is_alone=is_slow)))
            return
        has_waited = now_ms - batch.ripe_at_ms >= KEEP_AFTER_MS
        is_kept = has_waited and is_slow and not kind.is_async and self._workers.keep_one()
        batch.patience_ms = LONGEST_KEPT_MS if is_kept else LONGEST_WAIT_MS
        self._gathering.put_back(batch)

    def _assign_one(
        self, queue: DispatchedQueue, claimed: Claimed, kind: _Kind, batches: _Batches, now_ms: int
    ) -> None:
        expected_ms, is_async, is_alone, *_ = kind
        task = task_of(claimed.record)
        worker = self._workers.choose(
            None if is_alone else expected_ms,
            is_async=is_async,
            task=task,
            has_permit=bool(claimed.start_by_ms),
        )
        if worker is not None:
            batches.add(worker, claimed, _flight(queue.name, claimed.record, kind))
            return
        has_waited = now_ms - claimed.since_ms >= KEEP_AFTER_MS
        if has_waited and is_alone and not is_async and self._workers.keep_one():
            self._expected.add((queue.name, claimed.fence))
        self._waiting.append((queue, claimed))

    def _assign_alike(
        self, waiting: list[tuple[DispatchedQueue, Claimed]], at: int, expected_ms: float, batches: _Batches
    ) -> int:
        """Give a worker as many quick deliveries of one task in a row as it has room for; where to go on.

        While a long line is worked off nearly all deliveries pass here: together they cost half.
        """
        queue, first = waiting[at]
        task = task_of(first.record)
        worker = self._workers.choose(expected_ms, is_async=False, task=task)
        left = len(waiting) - at
        room = left if worker is None else self._workers.share_of(worker, expected_ms, left)
        fences: list[int] = []
        records: list[bytes] = []
        room_bytes = LARGEST_MAIL_BYTES
        for each, (fence, record, _, start_by_ms) in islice(waiting, at, at + room):
            if each is not queue or start_by_ms or record[23:25] != UNMARKED:
                break
            if record.split(b" ", 2)[1:2] != [task]:
                break
            room_bytes -= len(record)
            if room_bytes < 0 and fences:
                break
            fences.append(fence)
            records.append(record)
        # The first may be marked and yet be one of many: it is taken in any case.
        end = at + max(1, len(fences))
        if worker is None:
            self._waiting.extend(waiting[at:end])
        else:
            batches.add_quick(
                worker, queue.name, fences or [first.fence], records or [first.record], expected_ms
            )
        return end

    def assign_alone(self, now_ms: int) -> list[Post]:
        """Give what must run alone to workers that have nothing else, and keep workers free for the rest.

        To be called after the others were handed out: who is idle then is not needed for them.
        """
        if not self._lone and not self._may_be_reserved:
            return []
        mails: list[Post] = []
        left: deque[tuple[DispatchedQueue, Claimed]] = deque()
        could_run = 0
        for queue, unit in units_of(self._lone):
            claimed = unit[0]
            is_probation = queue.is_lost_too_often(claimed.record)
            if is_probation and self._is_probation_under_way():
                left.append((queue, claimed))  # one at a time: if the node vanishes, it is known which it was
                continue
            could_run += 1
            worker, record = self._workers.choose_empty(), claimed.record
            if worker is not None and is_probation:
                record = self._begin_probation(queue, claimed.fence, now_ms) or b""
            if worker is None or not record:
                left.extend((queue, each) for each in unit)
                continue
            mails.append(
                self._begin_alone(worker, queue, [claimed._replace(record=record), *unit[1:]], now_ms)
            )
        self._lone = left
        self._workers.reserve(could_run - len(mails), now_ms)
        self._may_be_reserved = bool(left) or any(worker.reserved_at_ms for worker in self._workers)
        return mails

    def _begin_alone(
        self, worker: WorkerState, queue: DispatchedQueue, unit: list[Claimed], now_ms: int
    ) -> Post:
        worker.last_report_ms, worker.is_slow = now_ms, False
        self._workers.begin_lone_run(worker, now_ms)
        for each in unit:
            flight = replace(self.flight(queue, each.record), start_by_ms=each.start_by_ms, since_ms=now_ms)
            flight.is_lone = True
            flight.together = unit[0].fence if len(unit) > 1 else 0
            flight.is_follower = each is not unit[0]
            worker.take(each.fence, flight)
        return Post(worker.name, mail_of(queue, unit, worker.take_accepted(now_ms)))

    def _is_probation_under_way(self) -> bool:
        return any(
            is_on_probation(flight.record) for worker in self._workers for flight in worker.flights.values()
        )

    def flight(self, queue: DispatchedQueue, record: bytes) -> Flight:
        """A delivery as it would be noted for a worker."""
        return _flight(queue.name, record, self._kind(queue, task_of(record)))

    def adopted_flight(self, queue: DispatchedQueue, fence: int, task: str, together: int) -> Flight:
        """A delivery that a worker has from another dispatcher; its record is not known yet."""
        kind = self._kind(queue, task.encode())
        flight = _flight(queue.name, b"", kind._replace(is_alone=True))
        flight.together, flight.is_follower = together, together not in (0, fence)
        return flight

    def _kind_of(
        self, queue: DispatchedQueue, claimed: Claimed, kinds: dict[tuple[str, bytes], _Kind]
    ) -> _Kind | None:
        """What to know of a delivery; None: it was put aside to run alone, or nobody here can run it."""
        record = claimed.record
        if len(record) > LARGEST_RECORD_BYTES:
            self._unknown.append((queue, claimed))
            return None
        task = task_of(record)
        is_marked = record[23:25] != UNMARKED
        if is_marked and queue.must_run_alone(record):
            self._lone.append((queue, claimed))
            return None
        kind = kinds.get((queue.name, task))
        if kind is None:
            kind = kinds[queue.name, task] = self._kind(queue, task)
        if not kind.is_known:
            self._unknown.append((queue, claimed))
            return None
        if kind.batch is not None:
            self._gathering.add(queue, claimed, kind.batch, self._now_ms)
            return None
        return kind._replace(is_alone=True) if is_marked and must_run_alone(record) else kind

    def _kind(self, queue: DispatchedQueue, task: bytes) -> _Kind:
        expected_ms = self._times.of(task)
        is_slow = expected_ms is None or expected_ms > self._workers.batch_ms
        is_alone = is_slow or queue.loses_unbegun
        known, batch = self._workers.knows(task), queue.batch_terms(task)
        return _Kind(expected_ms, queue.is_async(task), is_alone, known, batch)


def mail_of(
    queue: DispatchedQueue, unit: Sequence[Claimed], accepted: list[int], stint_ms: int = int(BATCH_MS)
) -> RunDeliveries:
    """Deliveries that run together, or one by itself."""
    return RunDeliveries(
        queue.name,
        [each.fence for each in unit],
        [each.record for each in unit],
        {each.fence: each.start_by_ms for each in unit if each.start_by_ms},
        accepted,
        stint_ms,
        are_together=len(unit) > 1,
    )


def _together(
    one: dict[DispatchedQueue, list[Claimed]], other: dict[DispatchedQueue, list[Claimed]]
) -> dict[DispatchedQueue, list[Claimed]]:
    return {queue: sorted([*one.get(queue, ()), *other.get(queue, ())]) for queue in {**one, **other}}


def _flights(batch: Gathered, kind: _Kind) -> list[Flight]:
    flights = [_flight(batch.queue.name, each.record, kind) for each in batch.members]
    for flight in flights if len(flights) > 1 else ():
        flight.together, flight.is_follower = batch.members[0].fence, flight is not flights[0]
    return flights


def _flight(queue: str, record: bytes, kind: _Kind) -> Flight:
    expected_ms, is_async, is_alone, *_ = kind
    return Flight(queue, record, expected_ms or BATCH_MS, is_alone and not is_async, is_async)
