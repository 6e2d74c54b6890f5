"""Adoption: a dispatcher takes over what workers hold from the dispatcher before it. Pure.

The leases belong to the node, so they outlast the dispatcher. Each living worker says what it holds; what the
server still keeps under our lease is adopted. What the server keeps and nobody holds is found by the
stock-taking, which waits until every worker that lived at our start has spoken or is dead. A worker in the
middle of a long task may be slow to speak: until then its run slot says what it runs, and nobody else gets
that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mqworker.actors.run_slot import Begun, mark_of

LOOK_EVERY_MS = 250
"""How often the slot of a worker that has not spoken is looked at."""
LONGEST_WAIT_MS = 30_000
"""So long a worker may be silent before what it is not seen to run is given to others. It cannot begin any of
that afterwards: before its next task it reads that it has a new dispatcher, and asks."""


class Held(NamedTuple):
    """A delivery that a worker has from the dispatcher before this one."""

    queue: str
    fence: int
    task: str
    record: bytes
    """Empty where the server keeps it."""


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
        """It said what it holds, or it is dead."""
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
        return next((len(begun.running) for begun in self._begun if key in begun.running), 0)
