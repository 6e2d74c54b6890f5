"""Gathering: deliveries of tasks that take batches, until a batch is full or its first one has waited. Pure.

What is gathered waits here and nowhere else: it occupies no worker and holds up no other task. A batch that
is *ripe* waits for a worker like any other delivery, and is given back like any other when none gets free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue
from mqworker.model.batch import BatchTerms
from mqworker.model.record import batch_key_of, has_deadline, is_record_of, most_together, task_of

MOST_GATHERED = 5_000
"""How many may wait on a node for others of their batch; then the oldest batch goes as it is."""
MOST_GATHERED_BYTES = 64 * 1024 * 1024
MORE_AT_ONCE = 100
"""How many more are claimed, and go as they are, while as many of other keys wait: the old makes room."""
LARGEST_BYTES = 8 * 1024 * 1024
"""A batch is full when it holds so much: it travels to its worker as one mail."""


class GatherKey(NamedTuple):
    """Whose batch it is: of one task in one queue, with one key."""

    queue: str
    task: bytes
    key: bytes
    alone: int
    """The fence of one that waits for nobody: its task asks for a key, and it has none; else 0."""


@dataclass(slots=True, eq=False)
class Gathered:
    """A batch that is being gathered."""

    queue: DispatchedQueue
    task: bytes
    due_at_ms: int
    members: list[Claimed] = field(default_factory=list)
    size_bytes: int = 0
    ripe_at_ms: int = 0
    patience_ms: int = 0
    """How long it may wait for a worker; then another node may have it."""


class Gathering:
    """The batches of a node that no worker has."""

    def __init__(self) -> None:
        self._open: dict[GatherKey, Gathered] = {}
        """In the order in which their first members came."""
        self._ripe: list[Gathered] = []
        self._count = self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._open or self._ripe)

    @property
    def ripe(self) -> int:
        """How many deliveries wait in batches that only wait for a worker."""
        return sum(len(each.members) for each in self._ripe)

    @property
    def open(self) -> int:
        """How many wait for others."""
        return self._count

    def add(self, queue: DispatchedQueue, claimed: Claimed, terms: BatchTerms, now_ms: int) -> None:
        """One more, in the batch of its kind."""
        key = _key_of(queue, claimed, terms)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = Gathered(queue, key.task, claimed.since_ms + terms.wait_ms)
        batch.members.append(claimed)
        batch.size_bytes += len(claimed.record)
        self._count, self._bytes = self._count + 1, self._bytes + len(claimed.record)
        batch.due_at_ms = min(batch.due_at_ms, _latest_ms(claimed, terms, now_ms))
        if len(batch.members) >= terms.size or batch.size_bytes >= LARGEST_BYTES or key.alone:
            self._ripen(key, now_ms)

    def ripen(self, now_ms: int) -> None:
        """What has waited long enough, and what is too much, waits for a worker from now on."""
        if not self._open:
            return
        for key in [key for key, batch in self._open.items() if batch.due_at_ms <= now_ms]:
            self._ripen(key, now_ms)
        while self._count > MOST_GATHERED or self._bytes > MOST_GATHERED_BYTES:
            self._ripen(next(iter(self._open)), now_ms)

    def due_in_ms(self, now_ms: int) -> int | None:
        """Until the next batch is ripe; None while nobody waits for others."""
        due_at_ms = min((batch.due_at_ms for batch in self._open.values()), default=None)
        return None if due_at_ms is None else max(0, due_at_ms - now_ms)

    def take_ripe(self) -> list[Gathered]:
        """Those that are to be handed out; what finds no worker comes back by `put_back`."""
        ripe, self._ripe = self._ripe, []
        return ripe

    def put_back(self, batch: Gathered) -> None:
        """No worker has room for it yet."""
        self._ripe.append(batch)

    def take_overdue(self, now_ms: int) -> dict[DispatchedQueue, list[Claimed]]:
        """All ripe ones of each queue in which one has found no worker for too long."""
        overdue = {each.queue.name for each in self._ripe if now_ms - each.ripe_at_ms > each.patience_ms}
        return self._take_ripe_of(overdue) if overdue else {}

    def take_all(self) -> dict[DispatchedQueue, list[Claimed]]:
        """Everything, by queue, in the order of delivery."""
        for key in [*self._open]:
            self._ripen(key, 0)
        return self._take_ripe_of({each.queue.name for each in self._ripe})

    def take_message(self, message: bytes) -> list[tuple[DispatchedQueue, Claimed]]:
        """Take one message, by its id."""
        taken: list[tuple[DispatchedQueue, Claimed]] = []
        for key, batch in [*self._open.items()]:
            found = [each for each in batch.members if is_record_of(each.record, message)]
            taken += [(batch.queue, each) for each in found]
            self._forget(batch, found)
            if not batch.members:
                del self._open[key]
        for batch in [*self._ripe]:
            found = [each for each in batch.members if is_record_of(each.record, message)]
            taken += [(batch.queue, each) for each in found]
            for each in found:
                batch.members.remove(each)
            if not batch.members:
                self._ripe.remove(batch)
        return taken

    def fences_of(self, queue: DispatchedQueue) -> Iterator[int]:
        """What waits here of one queue."""
        for batch in (*self._open.values(), *self._ripe):
            if batch.queue is queue:
                yield from (each.fence for each in batch.members)

    def open_of(self, queue: DispatchedQueue) -> int:
        """How many of a queue wait here for others."""
        return sum(len(batch.members) for batch in self._open.values() if batch.queue is queue)

    def ripe_names(self) -> Iterable[str]:
        """The queue of each delivery that only waits for a worker."""
        return (batch.queue.name for batch in self._ripe for _ in batch.members)

    def _ripen(self, key: GatherKey, now_ms: int) -> None:
        batch = self._open.pop(key)
        self._count, self._bytes = self._count - len(batch.members), self._bytes - batch.size_bytes
        batch.ripe_at_ms = now_ms
        self._ripe.append(batch)

    def _forget(self, batch: Gathered, members: list[Claimed]) -> None:
        for each in members:
            batch.members.remove(each)
            batch.size_bytes -= len(each.record)
            self._count, self._bytes = self._count - 1, self._bytes - len(each.record)

    def _take_ripe_of(self, queues: Collection[str]) -> dict[DispatchedQueue, list[Claimed]]:
        taken: dict[DispatchedQueue, list[Claimed]] = {}
        for batch in self._ripe:
            if batch.queue.name in queues:
                taken.setdefault(batch.queue, []).extend(batch.members)
        self._ripe = [each for each in self._ripe if each.queue.name not in queues]
        return {queue: sorted(members) for queue, members in taken.items()}


def _key_of(queue: DispatchedQueue, claimed: Claimed, terms: BatchTerms) -> GatherKey:
    """A message without a key, of a task that asks for one, was enqueued by somebody who does not know it."""
    key = batch_key_of(claimed.record) if terms.is_keyed else b""
    return GatherKey(queue.name, task_of(claimed.record), key or b"", claimed.fence if key is None else 0)


def _latest_ms(claimed: Claimed, terms: BatchTerms, now_ms: int) -> int:
    """Until when it may wait for others: it must start while its permit lasts, and before its deadline."""
    if has_deadline(claimed.record):
        return now_ms
    if claimed.start_by_ms:
        return min(now_ms + terms.wait_ms, (now_ms + claimed.start_by_ms) // 2)
    return claimed.since_ms + terms.wait_ms


class Company(NamedTuple):
    """With whom a delivery runs that is under suspicion: so many of one batch that a worker died over."""

    queue: str
    task: bytes
    key: bytes
    most: int


def company_of(queue: DispatchedQueue, claimed: Claimed) -> Company | None:
    """None for one that runs alone, whatever its task."""
    terms = queue.batch_terms(task_of(claimed.record))
    most = most_together(claimed.record)
    if terms is None or most <= 1:
        return None
    key = batch_key_of(claimed.record) if terms.is_keyed else b""
    return None if key is None else Company(queue.name, task_of(claimed.record), key, min(most, terms.size))


def units_of(
    lone: Iterable[tuple[DispatchedQueue, Claimed]],
) -> list[tuple[DispatchedQueue, list[Claimed]]]:
    """What must run alone, each by itself; and suspects of a batch together, as many as may."""
    units: list[tuple[DispatchedQueue, list[Claimed]]] = []
    latest: dict[Company, list[Claimed]] = {}
    for queue, claimed in lone:
        company = None if queue.is_lost_too_often(claimed.record) else company_of(queue, claimed)
        unit = None if company is None else latest.get(company)
        if unit is None or company is None or len(unit) >= company.most:
            unit = []
            units.append((queue, unit))
            if company is not None:
                latest[company] = unit
        unit.append(claimed)
    return units
