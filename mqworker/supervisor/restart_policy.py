"""Restart policy: when a child that died starts again. Pure.

The first death is answered at once. Further ones wait longer and longer, with full jitter, so that children
that die of one cause do not come back in step; a child that stayed healthy long enough begins anew.

A child that dies too often is parked: something is broken that a restart does not mend. It is tried again
after pauses that grow, each try being one start and not another series of them; the node says that it is
degraded, and everybody else goes on.

Some deaths are no fault of the child and are spared: a worker that had said it was ready dies of the task it
runs (which the dispatcher counts against the message), was killed on purpose, or left because it had run long
enough. They count towards nothing, or one poisonous message would stop the whole node. A worker that dies
before it is ready cannot run anything, and counts. A dispatcher that somebody else ends with SIGKILL did
nothing wrong either, and costs no work: the node goes on however often that happens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """The limits of the policy."""

    first_pause_ms: int = 100
    longest_pause_ms: int = 30_000
    healthy_after_ms: int = 60_000
    most_deaths: int = 5
    within_ms: int = 30_000
    first_park_ms: int = 5_000
    longest_park_ms: int = 60_000
    # A worker that dies again and again right after its start must not take a core for itself; this is
    # about what a fork and an import cost anyway.
    spared_pause_ms: int = 20


class Fault(Enum):
    """Whether a death counts against the child."""

    COUNTED = auto()
    SPARED = auto()


@dataclass(frozen=True, slots=True)
class Death:
    """What the policy must know of one."""

    at_ms: int
    lived_ms: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """What the policy remembers of a child."""

    streak: int = 0
    """Counted deaths since it was last healthy for long."""
    deaths_at_ms: tuple[int, ...] = ()
    """Counted deaths that are recent enough to matter."""
    parks: int = 0
    """How often it was parked since it was last healthy for long."""


@dataclass(frozen=True, slots=True)
class RestartIn:
    """Start it again after this long."""

    pause_ms: int


@dataclass(frozen=True, slots=True)
class Park:
    """It dies too often: do not start it for this long, and say so."""

    pause_ms: int


Decision = RestartIn | Park


def after_death(
    history: RestartHistory, death: Death, limits: RestartLimits, chance: float
) -> tuple[RestartHistory, Decision]:
    """The history with this death in it, and what to do. `chance` is random, from 0 to 1."""
    if death.fault is Fault.SPARED:
        pause_ms = 0 if death.lived_ms >= limits.first_pause_ms else limits.spared_pause_ms
        return history, RestartIn(pause_ms)
    recent = tuple(at_ms for at_ms in history.deaths_at_ms if death.at_ms - at_ms < limits.within_ms)
    was_healthy = death.lived_ms >= limits.healthy_after_ms
    streak, parks = (0, 0) if was_healthy else (history.streak, history.parks)
    grown = RestartHistory(streak + 1, (*recent, death.at_ms)[-limits.most_deaths :], parks)
    if parks or len(recent) >= limits.most_deaths:
        return replace(grown, parks=parks + 1), Park(park_pause_ms(parks, limits, chance))
    return grown, RestartIn(_pause_ms(streak, limits, chance))


def park_pause_ms(parks: int, limits: RestartLimits, chance: float) -> int:
    """How long a child stays parked, by how often it was parked before; half of the time is random."""
    doublings = min(parks, limits.longest_park_ms.bit_length())
    longest_ms = min(limits.first_park_ms << doublings, limits.longest_park_ms)
    return int(longest_ms * (1 + chance) / 2)


def _pause_ms(streak: int, limits: RestartLimits, chance: float) -> int:
    if not streak:
        return 0
    # Capped before it is multiplied out: a streak of thousands is not a number to raise 2 to.
    doublings = min(streak - 1, limits.longest_pause_ms.bit_length())
    return int(min(limits.first_pause_ms << doublings, limits.longest_pause_ms) * chance)
