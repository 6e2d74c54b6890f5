"""Shutdown: which child is told to stop when, and which is killed when. Pure; the supervisor acts.

In order: gateways finish what their clients asked for; the dispatcher stops claiming, waits for its workers,
settles and releases the rest; then the workers, whose hands are empty by now; then the other actors, of which
the reaper releases what a killed dispatcher still held; the embedded server last. The first signal gives all
of them `drain_s` together, the second ends the workers at once, the third everybody.

On an overloaded machine the supervisor itself may be late. Then the time of each counts from when it was
told, or from when what it waits for has happened: nobody is killed who could not have ended before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from mqworker.supervisor.child_plan import Role
from mqworker.supervisor.children import ChildRecord, State

# For settling and releasing, after the last task was given up: so much of the whole, half of it for the
# dispatcher and half for the others, and never less than they need on a busy machine.
_RESERVE_MS = 1_000
_SHORTEST_PHASE_MS = 250
# The server writes its data; it is not part of the drain and ends even when the supervisor no longer waits.
_SERVER_MS = 5_000
# The dispatcher asks for the death of busy workers itself; this is for one that does not.
_DISPATCHER_HEADSTART_MS = 100


class Urgency(IntEnum):
    """How often the operator asked."""

    DRAIN = 1
    FORCE = 2
    KILL = 3


@dataclass(frozen=True, slots=True)
class TellToDrain:
    """Send it a Drain."""

    name: str
    grace_ms: int


@dataclass(frozen=True, slots=True)
class KillChild:
    """End it now."""

    name: str
    reason: str


Order = TellToDrain | KillChild


@dataclass(slots=True)
class Shutdown:
    """One shutdown under way."""

    exit_code: int
    total_ms: int
    began_at_ms: int
    urgency: Urgency = Urgency.DRAIN
    _forced_at_ms: int | None = None
    _told: dict[tuple[str, int], Urgency] = field(default_factory=dict)
    """By name and generation."""
    _cut_at_ms: int = 0
    """When the workers were killed that had not ended by then."""
    _actors_since_ms: int | None = None
    _server_until_ms: int | None = None

    def hurry(self, now_ms: int) -> None:
        """The operator asked once more."""
        self.urgency = Urgency(min(self.urgency + 1, Urgency.KILL))
        if self._forced_at_ms is None:
            self._forced_at_ms = now_ms

    def orders(self, records: Sequence[ChildRecord], now_ms: int) -> list[Order]:
        """What to do now; asked at every turn, until no child lives."""
        alive = [record for record in records if record.child is not None]
        if self.urgency is Urgency.KILL:
            return [KillChild(record.name, "third signal") for record in alive]
        gateways = _of(alive, Role.GATEWAY)
        if gateways:
            return self._end_actors(gateways, self._closed_by_ms, now_ms)
        dispatchers = _of(alive, Role.DISPATCHER)
        workers = _of(alive, Role.WORKER)
        actors = _of(alive, Role.ACTOR, Role.REAPER, Role.MONITOR)
        if dispatchers:
            return [
                *self._end_work(workers, now_ms),
                *self._end_actors(dispatchers, self._settled_by_ms, now_ms),
            ]
        if workers:
            is_awaited = _is_to_come_back(records) and now_ms < self._settled_by_ms
            return (self._end_work if is_awaited else self._end_idle)(workers, now_ms)
        if actors:
            if self._actors_since_ms is None:
                self._actors_since_ms = now_ms
            until_ms = max(self._over_by_ms, self._actors_since_ms + _SHORTEST_PHASE_MS)
            return self._end_actors(actors[::-1], until_ms, now_ms)
        return self._end_server(alive, now_ms)

    @property
    def _reserve_ms(self) -> int:
        return min(_RESERVE_MS, self.total_ms // 4)

    @property
    def _closed_by_ms(self) -> int:
        until_ms = self.began_at_ms + max(_SHORTEST_PHASE_MS, self.total_ms // 4)
        return until_ms if self._forced_at_ms is None else min(until_ms, self._forced_at_ms)

    @property
    def _worked_until_ms(self) -> int:
        until_ms = self.began_at_ms + self.total_ms - self._reserve_ms
        return until_ms if self._forced_at_ms is None else min(until_ms, self._forced_at_ms)

    @property
    def _settled_by_ms(self) -> int:
        return max(self._worked_until_ms + self._phase_ms, self._cut_at_ms + _SHORTEST_PHASE_MS)

    @property
    def _over_by_ms(self) -> int:
        return self._settled_by_ms + self._phase_ms

    @property
    def _phase_ms(self) -> int:
        return max(_SHORTEST_PHASE_MS, self._reserve_ms // 2)

    def _end_work(self, workers: list[ChildRecord], now_ms: int) -> list[Order]:
        """While the dispatcher waits for them: those that run nothing yet at once, all when time is up."""
        is_over = self.urgency >= Urgency.FORCE or now_ms >= self._worked_until_ms + _DISPATCHER_HEADSTART_MS
        if is_over and workers and not self._cut_at_ms:
            self._cut_at_ms = now_ms
        return [
            KillChild(worker.name, "drain") for worker in workers if is_over or worker.state is State.STARTING
        ]

    def _end_idle(self, workers: list[ChildRecord], now_ms: int) -> list[Order]:
        if self.urgency >= Urgency.FORCE or now_ms >= self._settled_by_ms:
            return [KillChild(worker.name, "drain") for worker in workers]
        return self._tell(workers, self._settled_by_ms - now_ms)

    def _end_actors(self, actors: list[ChildRecord], until_ms: int, now_ms: int) -> list[Order]:
        if now_ms >= until_ms:
            return [KillChild(actor.name, "did not end in time") for actor in actors]
        is_dispatcher = actors[0].role is Role.DISPATCHER
        return self._tell(actors, max(0, (self._worked_until_ms if is_dispatcher else until_ms) - now_ms))

    def _end_server(self, alive: list[ChildRecord], now_ms: int) -> list[Order]:
        if self._server_until_ms is None:
            self._server_until_ms = now_ms + _SERVER_MS
        if now_ms >= self._server_until_ms:
            return [KillChild(record.name, "did not end in time") for record in alive]
        return self._tell(alive, self._server_until_ms - now_ms)

    def _tell(self, records: list[ChildRecord], grace_ms: int) -> list[Order]:
        """Once, and once more when the operator becomes impatient."""
        due = [each for each in records if self._told.get((each.name, each.generation)) != self.urgency]
        for record in due:
            self._told[record.name, record.generation] = self.urgency
        return [TellToDrain(record.name, grace_ms) for record in due]


def _is_to_come_back(records: Sequence[ChildRecord]) -> bool:
    """Whether the dispatcher was struck while the workers finish what they have, and is started again."""
    return any(each.role is Role.DISPATCHER and each.state is State.WAITING for each in records)


def _of(records: Sequence[ChildRecord], *roles: Role) -> list[ChildRecord]:
    return [record for record in records if record.role in roles]
