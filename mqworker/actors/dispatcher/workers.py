"""Workers as the dispatcher sees them: what each has in flight, who has room. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqworker.actors.cpu_wait import CpuWait
from mqworker.actors.dispatcher.acceptance import acceptable
from mqworker.actors.dispatcher.run_times import BATCH_MS
from mqworker.model.record import id_of
from mqworker.model.settlement import UNKNOWN_TASK

_QUICKEST_MS = 1e-3
WORTH_SHARING_MS = 0.5
"""Quicker tasks go to one worker as they come: the mail to a second one would cost more than it saves."""
SHORTEST_PATIENCE_MS = 2_000
"""How long a worker may take to become empty, the first time."""
_MOST_AHEAD_BYTES = 32 * 1024 * 1024
"""A worker with this much gets nothing more: one that leaves twice as much unread is killed (mailbox.py)."""
SHOWN_AFTER_MS, MOST_SHOWN = 200, 10


@dataclass(slots=True)
class Flight:
    """One delivery that a worker has."""

    queue: str
    record: bytes
    """Empty while only the worker's early start is known: the wake-up with the record is still to come."""
    expected_ms: float
    is_alone: bool
    is_async: bool
    start_by_ms: int = 0
    """When its permit ends; 0 if it needs no permit."""
    is_lone: bool = False
    """Whether nothing at all may run beside it; `is_alone` only keeps others from waiting behind it."""
    is_lost: bool = False
    """Its worker was told that somebody else has it."""
    since_ms: int | None = None
    """When it was handed out; None where only the worker knows."""
    together: int = 0
    """The first fence of the batch in which it runs; 0: by itself."""
    is_follower: bool = False
    """Whether it is not the first of its batch: it takes no thread or place on an event loop of its own."""


@dataclass(slots=True)
class Question:
    """A worker was asked which deliveries it has."""

    number: int
    asked_at_ms: int
    flights: frozenset[tuple[str, int]]
    """What it had been given by then, by queue and fence."""
    cpu_wait: CpuWait

    def is_late(self, limit_ms: int, now_ms: int) -> bool:
        """Whether it could have answered for so long; while it waits for a CPU it cannot."""
        passed_ms = now_ms - self.asked_at_ms
        return passed_ms >= limit_ms and passed_ms - self.cpu_wait.ms(now_ms) >= limit_ms


@dataclass(slots=True)
class WorkerState:
    """A worker as the dispatcher sees it."""

    name: str
    pid: int = 0
    """0 while it is unknown."""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    concurrency: int = 1
    threads: int = 1
    is_ready: bool = False
    is_leaving: bool = False
    leaves_later: bool = False
    """Whether it wants to leave, and is kept because nobody could take its place."""
    flights: dict[tuple[str, int], Flight] = field(default_factory=dict)
    """By queue and fence: two queues may give out the same fence."""
    busy_ms: float = 0.0
    """Expected work of the flights that run one after another."""
    busy_bytes: int = 0
    """The records of all flights."""
    alone: int = 0
    asynchronous: int = 0
    followers: int = 0
    last_report_ms: int = 0
    last_list_ms: int = 0
    question: Question | None = None
    """The one that it has not answered yet."""
    is_slow: bool = False
    """It returned what it had not begun: what it runs takes longer than anybody thought."""
    is_kept: bool = False
    """Something waits until it is idle: in this hand-out it is given nothing else."""
    ticket: int = 0
    """With which it may make an early start (early_start/offer.py); 0: none is issued."""
    presumed: dict[tuple[str, int], int] = field(default_factory=dict)
    """The flights that came with its ticket, and since when: it has probably begun one of them."""
    was_late: bool = False
    """It did not make its early start in time: its core may be busy, so others come first."""
    is_reserved: bool = False
    """For a delivery that must run alone: it is given nothing else until that one has ended."""
    reserved_at_ms: int = 0
    open_until_ms: int = 0
    """Until then it is not reserved again: others have waited as long as it was."""
    is_heard: bool = True
    """False while it may hold what a dispatcher before this one gave it, and has not said so yet."""
    accepted: list[int] = field(default_factory=list)
    untaken: dict[int, int] = field(default_factory=dict)
    """Numbers of its reports: stored, and it was not told of that; telemetry not taken (acceptance.py)."""
    told_at_ms: int = 0  # of some of them, the last time
    cause: str | None = None
    """How it died, once the supervisor has said so."""
    rss_bytes: int = 0
    """Its largest memory, told with the cause."""

    @property
    def is_idle(self) -> bool:
        """Whether it could begin something this moment."""
        return len(self.flights) - self.asynchronous - self.followers < self.threads

    @property
    def is_open(self) -> bool:
        """Whether it may be given more."""
        return self.takes_work and self.busy_bytes < _MOST_AHEAD_BYTES

    @property
    def takes_work(self) -> bool:
        """Whether it may be given anything at all."""
        return self.is_ready and not self.is_leaving

    def knows(self, task: str) -> bool:
        """Whether it has this task; one that named no tasks is asked."""
        return task in self.tasks or not self.tasks

    def has_room(self, expected_ms: float, batch_ms: float) -> bool:
        """Whether it may be given so much work more, with nothing slow before it.

        What it has while it reports on one batch, ten milliseconds of work, hides the way of the next one.
        """
        return (  # asked for each delivery, so without `is_open`
            self.is_ready
            and not self.is_leaving
            and not self.is_reserved
            and not self.alone
            and not self.is_slow
            and not self.is_kept
            and self.busy_bytes < _MOST_AHEAD_BYTES
            and self.busy_ms + expected_ms <= batch_ms + BATCH_MS
        )

    def has_room_alone(self) -> bool:
        """Whether it may be given something slow or unknown: nothing else must have to wait behind it."""
        return self.is_open and not self.is_reserved and self.is_idle

    def is_idle_soon(self) -> bool:
        """Whether what it has is quick, as far as is known, so that it is worth waiting for."""
        return (
            self.is_ready
            and not self.is_leaving
            and not self.alone
            and not self.is_slow
            and not self.is_kept
            and not self.is_reserved
        )

    def has_async_room(self) -> bool:
        """Whether its event loop may be given one more."""
        return self.is_open and not self.is_reserved and self.asynchronous < self.concurrency

    def reserve(self, now_ms: int) -> None:
        """Give it nothing more until a delivery that must run alone has ended here."""
        if not self.is_reserved:
            self.is_reserved, self.reserved_at_ms = True, now_ms

    @property
    def is_being_emptied(self) -> bool:
        """Whether it is reserved for a delivery that must run alone, and has others to end first."""
        return self.is_reserved and bool(self.flights) and not self.has_lone()

    def has_lone(self) -> bool:
        """Whether it has a delivery that must run alone."""
        return any(each.is_lone for each in self.flights.values())

    def is_lone_run_over(self) -> bool:
        """Whether it is reserved no longer: what ran alone has ended."""
        return self.reserved_at_ms > 0 and not self.is_reserved

    def open(self, now_ms: int) -> None:
        """Others have it now, for as long as it was reserved at least."""
        self.open_until_ms = now_ms + now_ms - self.reserved_at_ms
        self.is_reserved, self.reserved_at_ms = False, 0

    def take(self, fence: int, flight: Flight) -> None:
        """Note a delivery that goes to this worker."""
        self.flights[flight.queue, fence] = flight
        self.busy_bytes += len(flight.record)
        self.followers += flight.is_follower
        if flight.is_async:
            self.asynchronous += not flight.is_follower
        else:
            self.busy_ms += flight.expected_ms
            self.alone += flight.is_alone

    def most_quick(self, expected_ms: float, batch_ms: float) -> int:
        """How many more of these, one after another, it has room for."""
        if not self.has_room(expected_ms, batch_ms):
            return 0
        return max(1, int((batch_ms + BATCH_MS - self.busy_ms) / max(expected_ms, _QUICKEST_MS)))

    def take_quick(
        self, queue: str, fences: Sequence[int], records: Sequence[bytes], expected_ms: float, now_ms: int
    ) -> None:
        """Note deliveries that run one after another: as `take` for each, at less than half its cost."""
        flights = self.flights
        for fence, record in zip(fences, records, strict=True):
            flights[queue, fence] = Flight(
                queue, record, expected_ms, is_alone=False, is_async=False, since_ms=now_ms
            )
        self.busy_ms += expected_ms * len(fences)
        self.busy_bytes += sum(map(len, records))

    def take_accepted(self, now_ms: int) -> list[int]:
        """What it is to be told now."""
        self.told_at_ms = now_ms
        accepted, self.accepted = acceptable(self.accepted, self.untaken, now_ms)
        return accepted

    def drop_all(self) -> None:
        """Forget all its deliveries: it is about to say what it has."""
        for queue, fence in [*self.flights]:
            self.drop(queue, fence)

    def lose(self, queue: str, fence: int) -> bool:
        """Note that somebody else has a delivery; False when it is not here, or was noted before."""
        flight = self.flights.get((queue, fence))
        if flight is None or flight.is_lost:
            return False
        flight.is_lost = True
        return True

    def long_running(self, now_ms: int) -> list[tuple[str, int]]:
        """Ids of the oldest that it has for a while, and for how long, for the status screen."""
        ages = [
            (id_of(flight.record).decode(errors="replace"), now_ms - flight.since_ms)
            for flight in self.flights.values()
            if flight.since_ms is not None and now_ms - flight.since_ms >= SHOWN_AFTER_MS
        ]
        return sorted(ages, key=lambda each: -each[1])[:MOST_SHOWN]

    def drop(self, queue: str, fence: int) -> Flight | None:
        """Forget a delivery that it returned; None when it had none such."""
        return self.drop_several(queue, [fence])[0]

    def drop_several(self, queue: str, fences: Sequence[int]) -> list[Flight | None]:
        """Forget what it reported; None for each that it did not have."""
        if self.presumed:
            for fence in fences:
                self.presumed.pop((queue, fence), None)
        forget = self.flights.pop
        dropped = [forget((queue, fence), None) for fence in fences]
        if self.followers:
            followers = [flight for flight in dropped if flight is not None and flight.is_follower]
            self.followers -= len(followers)
            self.asynchronous += sum(flight.is_async for flight in followers)  # taken off below, as of all
        for flight in dropped:
            if flight is None:
                continue
            if flight.is_lone:
                self.is_reserved = False
            self.busy_bytes -= len(flight.record)
            if flight.is_async:
                self.asynchronous -= 1
            else:
                self.busy_ms -= flight.expected_ms
                self.alone -= flight.is_alone
        if not self.flights:  # what was rounded, or learnt of a record since, does not add up
            self.busy_ms, self.busy_bytes = 0.0, 0
        elif self.busy_ms < 0.0 or self.busy_bytes < 0:
            self.busy_ms, self.busy_bytes = max(0.0, self.busy_ms), max(0, self.busy_bytes)
        return dropped


@dataclass(slots=True)
class Idle:
    """How many deliveries could begin this moment: one after another, and on event loops."""

    sequential: int = 0
    asynchronous: int = 0

    def take(self, *, is_async: bool) -> bool:
        """Any one of them, if there are any."""
        if is_async:
            self.asynchronous -= 1
            return self.asynchronous >= 0
        self.sequential -= 1
        return self.sequential >= 0


class Workers:
    """All workers of this node."""

    def __init__(self) -> None:
        self._state_by_name: dict[str, WorkerState] = {}
        self._patience_ms = SHORTEST_PATIENCE_MS
        self.is_mixed = False
        """Whether its workers know different tasks, as they do while one after the other gets new code."""
        self._are_kept = False
        self.batch_ms = BATCH_MS
        """How much work one batch should hold now."""

    def __iter__(self) -> Iterator[WorkerState]:
        return iter(self._state_by_name.values())

    def __len__(self) -> int:
        return len(self._state_by_name)

    def __getitem__(self, worker: str) -> WorkerState:
        return self._state_by_name[worker]

    def get(self, worker: str) -> WorkerState | None:
        """A worker by name, None when it is not known."""
        return self._state_by_name.get(worker)

    def join(self, worker: str) -> WorkerState:
        """A worker of a new generation, without deliveries."""
        self._state_by_name[worker] = state = WorkerState(worker)
        self.compare()
        return state

    def leave(self, worker: str) -> WorkerState | None:
        """Take a worker off the list, with its deliveries."""
        state = self._state_by_name.pop(worker, None)
        self.compare()
        return state

    def open(self, worker: WorkerState) -> None:
        """From now on it may be given work."""
        worker.is_ready = True
        self.compare()

    def retire(self, worker: str) -> None:
        """Give a worker nothing more, unless all are kept."""
        state = self._state_by_name.get(worker)
        if state is not None:
            state.leaves_later, state.is_leaving = self._are_kept, not self._are_kept

    def keep(self, *, are_kept: bool) -> None:
        """Keep those that want to leave from now on, or let them go."""
        self._are_kept = are_kept
        for worker in self:
            if worker.leaves_later and not are_kept:
                self.retire(worker.name)

    def compare(self) -> None:
        """Workers came, went or are about to: see whether those that take work all know the same tasks."""
        known = [worker.tasks for worker in self if worker.takes_work]
        self.is_mixed = any(tasks != known[0] for tasks in known)

    def tasks(self) -> dict[str, dict[str, Any]]:
        """All that its workers know; of several versions the newest worker's."""
        return {name: task for worker in self if worker.takes_work for name, task in worker.tasks.items()}

    def known_versions(self) -> dict[str, str]:
        """Each task and its version; where there are several, any call may fit one of them."""
        versions: dict[str, set[str]] = {}
        for worker in self:
            for name, task in worker.tasks.items() if worker.takes_work else ():
                versions.setdefault(name, set()).add(task.get("version", UNKNOWN_TASK))
        return {name: found.pop() if len(found) == 1 else UNKNOWN_TASK for name, found in versions.items()}

    def knows(self, task: bytes) -> bool:
        """Whether a worker here can run it; assumed while no worker takes work."""
        name = task.decode(errors="replace")
        takers = [worker for worker in self if worker.takes_work]
        return not takers or any(worker.knows(name) for worker in takers)

    def choose(
        self, expected_ms: float | None, *, is_async: bool, task: bytes = b"", has_permit: bool = False
    ) -> WorkerState | None:
        """The worker that should get a delivery expected to take this long (None: unknown), if any.

        One with a permit has to begin soon.
        """
        batch_ms = BATCH_MS if has_permit else self.batch_ms
        # Whoever has a ticket may make an early start this moment.
        told = [worker for worker in self if not worker.ticket]
        if self.is_mixed:
            told = [worker for worker in told if worker.knows(task.decode(errors="replace"))]
        if is_async:
            return _least(worker for worker in told if worker.has_async_room())
        if expected_ms is None or expected_ms > batch_ms:
            return _least(worker for worker in told if worker.has_room_alone())
        return _least(worker for worker in told if worker.has_room(expected_ms, batch_ms))

    def share_of(self, worker: WorkerState, expected_ms: float, waiting: int) -> int:
        """How many of so many quick deliveries one worker gets: no more than its part.

        Otherwise some would wait behind others while another worker has nothing.
        """
        most = worker.most_quick(expected_ms, self.batch_ms)
        if expected_ms < WORTH_SHARING_MS:
            return most
        able = sum(each.has_room(expected_ms, self.batch_ms) for each in self)
        return max(1, min(most, -(-waiting // max(1, able))))

    def choose_empty(self) -> WorkerState | None:
        """A worker that can run something alone right now, if any."""
        empty = (
            worker
            for worker in self
            if worker.is_ready and not worker.is_leaving and not worker.flights and not worker.ticket
        )
        return min(empty, key=lambda worker: (not worker.is_reserved, worker.was_late), default=None)

    def begin_lone_run(self, worker: WorkerState, now_ms: int) -> None:
        """Something is handed to it that must run alone."""
        worker.reserve(now_ms)
        self._patience_ms = SHORTEST_PATIENCE_MS

    def reserve(self, waiting: int, now_ms: int) -> None:
        """Keep workers free for deliveries that must run alone, where so many wait: half of them at the most.

        A node's only worker is reserved half of the time. Nobody is when nothing waits. One that does not get
        empty is opened again for as long, and later tried for twice as long: whatever it runs ends some day,
        and until then others have half of its time.
        """
        able = [worker for worker in self if worker.is_ready and not worker.is_leaving]
        for worker in able:
            is_stubborn = worker.is_being_emptied and now_ms - worker.reserved_at_ms > self._patience_ms
            if is_stubborn:
                self._patience_ms *= 2
            is_in_vain = not waiting and worker.is_reserved and not worker.has_lone()
            if is_stubborn or is_in_vain or worker.is_lone_run_over():
                worker.open(now_ms)
        wanted = min(waiting, max(1, len(able) // 2)) - sum(worker.is_reserved for worker in able)
        if wanted > 0:
            others = [worker for worker in able if not worker.is_reserved and now_ms >= worker.open_until_ms]
            others.sort(key=lambda worker: (len(worker.flights), worker.busy_ms))
            for worker in others[:wanted]:
                worker.reserve(now_ms)

    def being_emptied(self) -> int:
        """How many workers get nothing more until something has run there alone."""
        return sum(worker.is_being_emptied for worker in self)

    def lone_run_ms(self, now_ms: int) -> int:
        """For how long something has been running alone."""
        return max((now_ms - worker.reserved_at_ms for worker in self if worker.is_reserved), default=0)

    def keep_one(self) -> bool:
        """Keep the worker that is idle soonest for what has to be alone; False when none will be soon.

        At most half of the workers are kept at a time: the others go on with what is quick.
        """
        worker = _least(worker for worker in self if worker.is_idle_soon())
        if worker is None or 2 * sum(each.is_kept for each in self) >= max(1, len(self) - 1):
            return False
        worker.is_kept = True
        return True

    def end_keeping(self) -> None:
        """Before each hand-out: who waits for an idle worker says so again."""
        for worker in self:
            worker.is_kept = False

    def idle(self, fewer: int) -> Idle:
        """How many more deliveries could begin this moment, when so many are as good as handed out."""
        sequential = sum(worker.has_room_alone() for worker in self)
        asynchronous = sum(
            worker.concurrency - worker.asynchronous for worker in self if worker.has_async_room()
        )
        return Idle(max(0, sequential - fewer), max(0, asynchronous - fewer))

    def room(self, batch_size: int, *, in_order: bool = False) -> int:
        """About how many more deliveries could be handed out now; `in_order` leaves event loops out."""
        room = 0
        for worker in self:
            if worker.has_room(0.0, self.batch_ms) and worker.busy_ms <= BATCH_MS:
                room += batch_size
            elif worker.has_room_alone():
                room += 1
            if (
                not in_order
                and worker.concurrency > 1
                and worker.has_async_room()
                and any(task["async"] for task in worker.tasks.values())
            ):
                room += worker.concurrency - worker.asynchronous
        return room


def _least(workers: Iterable[WorkerState]) -> WorkerState | None:
    return min(
        workers, key=lambda worker: (worker.busy_ms, len(worker.flights), worker.was_late), default=None
    )
