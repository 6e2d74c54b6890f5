"""The shelf: deliveries that were claimed and are in nobody's hands yet, and who is given them. Pure.

It should be empty most of the time. What nobody here can take soon is given back to the line, so that a
message never waits here while a worker of another node is idle.

What must run alone waits apart, and holds nothing up: a worker is emptied for it, and others go on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue
from mqworker.actors.dispatcher.run_times import BATCH_MS, RunTimes
from mqworker.actors.dispatcher.workers import Crew, Flight, Hand
from mqworker.actors.mail import RunDeliveries
from mqworker.model.record import UNMARKED, is_on_probation, is_record_of, must_run_alone, task_of

LARGEST_MAIL_BYTES = 8 * 1024 * 1024
"""A mail is closed when it holds so much; the frame around it may have a multiple of that."""
LONGEST_WAIT_MS = 100
"""So long a delivery may wait here for a worker; far longer than a batch takes."""
LONGEST_WAIT_ALONE_MS = 1_000
"""The same for one that must run with nothing beside it: a worker has to be emptied first."""
MOST_WAITING_ALONE = 100
KEEP_AFTER_MS = 50
"""Who must be alone and waited so long for an idle worker has one kept for it."""
LONGEST_KEPT_MS = 1_000
"""The same where a worker is kept for it. On an overloaded machine a batch may take that long, and whoever
gave the delivery back would get it again, in front of the next batch."""


BeginProbation: TypeAlias = Callable[[DispatchedQueue, int, int], bytes | None]
"""Queue, fence, now: notes at the server that it is about to run. Its record; None if that failed."""


class _Kind(NamedTuple):
    """What is the same for all deliveries of one task, as long as one hand-out lasts."""

    expected_ms: float | None
    is_async: bool
    is_once: bool
    is_known: bool


class Shelf:
    """Keeps the order in which deliveries were claimed."""

    def __init__(self, crew: Crew, times: RunTimes, begin_probation: BeginProbation) -> None:
        self._crew = crew
        self._times = times
        self._begin_probation = begin_probation
        self._waiting: deque[tuple[DispatchedQueue, Claimed]] = deque()
        self._lone: deque[tuple[DispatchedQueue, Claimed]] = deque()
        """What must run alone, apart from the others."""
        self._may_be_reserved = False
        self._expected: set[tuple[str, int]] = set()
        """Those for which a worker is kept, by queue and fence."""
        self._unknown: list[tuple[DispatchedQueue, Claimed]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting_alone(self) -> int:
        """How many wait for a worker that has nothing else to do."""
        return len(self._lone)

    def put(self, queue: DispatchedQueue, claimed: Iterable[Claimed]) -> None:
        """Claimed just now."""
        self._waiting.extend([(queue, each) for each in claimed])

    def put_back(self, queue: DispatchedQueue, *returned: Claimed) -> None:
        """Nobody began these, in the order of delivery: they are older than the others."""
        self._waiting.extendleft((queue, each) for each in reversed(returned))

    def fences_of(self, queue: DispatchedQueue) -> set[int]:
        """What waits here of one queue."""
        return {claimed.fence for each, claimed in (*self._waiting, *self._lone) if each is queue}

    def count_by_queue(self) -> Counter[str]:
        """How many wait here of each queue."""
        return Counter(queue.name for queue, _ in self._waiting)

    def take_unknown(self) -> list[tuple[DispatchedQueue, Claimed]]:
        """Take what was not handed out because nobody here knows its task."""
        unknown, self._unknown = self._unknown, []
        return unknown

    def take_message(self, message: bytes) -> list[tuple[DispatchedQueue, Claimed]]:
        """Take off one message, by its id."""
        taken = [each for each in (*self._waiting, *self._lone) if is_record_of(each[1].record, message)]
        for each in taken:
            (self._waiting if each in self._waiting else self._lone).remove(each)
        return taken

    def take_overdue(self, now_ms: int) -> dict[DispatchedQueue, list[Claimed]]:
        """Take off what nobody here could take for too long, with all of its queue that came after it.

        In the order of delivery, and all at once: what is given back stands at the front of its line, so what
        is given back later stands before it.
        """
        overdue = {
            queue.name
            for queue, claimed in self._waiting
            if now_ms - claimed.since_ms > self._patience_ms(queue, claimed)
        }
        return self._take(overdue) if overdue else {}

    @property
    def patience_ms(self) -> int:
        """How long a delivery may wait elsewhere, to be acknowledged first."""
        return LONGEST_KEPT_MS if self._crew.is_any_kept else LONGEST_WAIT_MS

    def _patience_ms(self, queue: DispatchedQueue, claimed: Claimed) -> int:
        return LONGEST_KEPT_MS if (queue.name, claimed.fence) in self._expected else LONGEST_WAIT_MS

    def take_all(self) -> dict[DispatchedQueue, list[Claimed]]:
        """Take off everything, in the order of delivery."""
        self._waiting.extendleft(reversed(self._lone))
        self._lone.clear()
        return self._take({queue.name for queue, _ in self._waiting})

    def take_overdue_alone(self, now_ms: int) -> dict[DispatchedQueue, list[Claimed]]:
        """Of what must run alone, take off what waited for too long, and what is too much.

        One for each worker that is being emptied stays, however long that takes.
        """
        before_ms, awaited = now_ms - LONGEST_WAIT_ALONE_MS, self._crew.being_emptied()
        kept: deque[tuple[DispatchedQueue, Claimed]] = deque()
        taken: dict[DispatchedQueue, list[Claimed]] = {}
        for queue, claimed in self._lone:
            if len(kept) < awaited or (claimed.since_ms >= before_ms and len(kept) < MOST_WAITING_ALONE):
                kept.append((queue, claimed))
            else:
                taken.setdefault(queue, []).append(claimed)
        self._lone = kept
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

    def hand_out(self, now_ms: int, unacked_since_ms: int | None = None) -> list[Post]:
        """Give to the crew what it has room for, as one mail for each worker and queue unless it is large.

        What must be alone waits for an idle worker. After a while one is kept for it and given nothing else
        until then: without that, quick ones that came later could keep all workers busy for ever. Others wait
        elsewhere in the same way, to be acknowledged first, the oldest since `unacked_since_ms`.
        """
        self._crew.end_keeping()
        self._expected.clear()
        if unacked_since_ms is not None and now_ms - unacked_since_ms >= KEEP_AFTER_MS:
            self._crew.keep_one()
        mails: list[Post] = []
        batches: dict[str, tuple[RunDeliveries, int]] = {}
        kinds: dict[tuple[str, bytes], _Kind] = {}
        left: deque[tuple[DispatchedQueue, Claimed]] = deque()
        hand: Hand | None = None
        is_mixed = self._crew.is_mixed
        for queue, claimed in self._waiting:
            record, task = claimed.record, task_of(claimed.record)
            is_marked = record[23:25] != UNMARKED
            if is_marked and queue.must_run_alone(record):
                self._lone.append((queue, claimed))
                continue
            kind = kinds.get((queue.name, task)) or self._kind(kinds, queue, task)
            expected_ms, is_async, _, is_known = kind
            if not is_known:
                self._unknown.append((queue, claimed))
                continue
            is_alone = _is_alone(kind) or (is_marked and must_run_alone(record))
            if is_alone or is_async or is_mixed or hand is None or not hand.has_room(expected_ms or 0.0):
                hand = self._crew.choose(None if is_alone else expected_ms, is_async=is_async, task=task)
            if hand is None:
                has_waited = now_ms - claimed.since_ms >= KEEP_AFTER_MS
                if has_waited and is_alone and not is_async and self._crew.keep_one():
                    self._expected.add((queue.name, claimed.fence))
                left.append((queue, claimed))
                continue
            if not hand.flights:
                hand.last_report_ms = now_ms
                hand.is_slow = False
            hand.take(
                claimed.fence,
                Flight(
                    queue.name,
                    record,
                    expected_ms or BATCH_MS,
                    is_alone and not is_async,
                    is_async,
                    claimed.start_by_ms,
                    since_ms=now_ms,
                ),
            )
            # The latest mail to this worker or a new one: it runs them in the order of its flights.
            batch, batch_bytes = batches.get(hand.name, (None, 0))
            if batch is None or batch.queue != queue.name or batch_bytes > LARGEST_MAIL_BYTES:
                batch = RunDeliveries(queue.name, [], [], accepted=hand.take_accepted(now_ms))
                batch_bytes = 0
                mails.append(Post(hand.name, batch))
            batches[hand.name] = batch, batch_bytes + len(record)
            batch.fences.append(claimed.fence)
            batch.records.append(record)
            if claimed.start_by_ms:
                batch.start_by_ms[claimed.fence] = claimed.start_by_ms
            if is_alone or is_async:
                hand = None
        self._waiting = left
        return mails

    def hand_out_alone(self, now_ms: int) -> list[Post]:
        """Give what must run alone to workers that have nothing else, and keep workers free for the rest.

        To be called after the others were handed out: who is idle then is not needed for them.
        """
        if not self._lone and not self._may_be_reserved:
            return []
        mails: list[Post] = []
        left: deque[tuple[DispatchedQueue, Claimed]] = deque()
        could_run = 0
        for queue, claimed in self._lone:
            is_probation = queue.is_lost_too_often(claimed.record)
            if is_probation and self._is_probation_under_way():
                left.append((queue, claimed))  # one at a time: if the node vanishes, it is known which it was
                continue
            could_run += 1
            hand, record = self._crew.choose_empty(), claimed.record
            if hand is not None and is_probation:
                record = self._begin_probation(queue, claimed.fence, now_ms) or b""
            if hand is None or not record:
                left.append((queue, claimed))
                continue
            hand.last_report_ms, hand.is_slow = now_ms, False
            self._crew.begin_lone_run(hand, now_ms)
            flight = replace(self.flight(queue, record), start_by_ms=claimed.start_by_ms, since_ms=now_ms)
            flight.is_lone = True
            hand.take(claimed.fence, flight)
            permits = {claimed.fence: claimed.start_by_ms} if claimed.start_by_ms else {}
            accepted = hand.take_accepted(now_ms)
            mails.append(
                Post(hand.name, RunDeliveries(queue.name, [claimed.fence], [record], permits, accepted))
            )
        self._lone = left
        self._crew.reserve(could_run - len(mails), now_ms)
        self._may_be_reserved = bool(left) or any(hand.reserved_at_ms for hand in self._crew)
        return mails

    def _is_probation_under_way(self) -> bool:
        return any(is_on_probation(flight.record) for hand in self._crew for flight in hand.flights.values())

    def flight(self, queue: DispatchedQueue, record: bytes) -> Flight:
        """A delivery as it would be in a worker's hands."""
        kind = self._kind({}, queue, task_of(record))
        is_alone = _is_alone(kind) and not kind.is_async
        return Flight(queue.name, record, kind.expected_ms or BATCH_MS, is_alone, kind.is_async)

    def adopted_flight(self, queue: DispatchedQueue, task: str) -> Flight:
        """A delivery that a worker has from another dispatcher; its record is not known yet."""
        kind = self._kind({}, queue, task.encode())
        return Flight(queue.name, b"", kind.expected_ms or BATCH_MS, not kind.is_async, kind.is_async)

    def _kind(self, kinds: dict[tuple[str, bytes], _Kind], queue: DispatchedQueue, task: bytes) -> _Kind:
        kind = kinds[queue.name, task] = _Kind(
            self._times.of(task), queue.is_async(task), queue.runs_once(task), self._crew.knows(task)
        )
        return kind


def _is_alone(kind: _Kind) -> bool:
    """Whether nothing else should wait behind it. Of what may run once a dying worker takes one with it."""
    expected_ms, _, is_once, _ = kind
    return expected_ms is None or expected_ms > BATCH_MS or is_once
