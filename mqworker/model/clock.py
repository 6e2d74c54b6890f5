"""Clock: the only place that reads the time, so that everything else can be tested at any instant."""

import time
from typing import Protocol

from mqworker.errors import InvalidArgument

NANOSECONDS_PER_MS = 1_000_000


class Clock(Protocol):
    """What code needs that must know the time."""

    def now_ms(self) -> int:
        """Wall time since 1970 in UTC: comparable between hosts, may jump when the host's clock is set."""
        ...

    def monotonic_ms(self) -> int:
        """Time since some fixed instant: never goes back, comparable within one host only."""
        ...

    def monotonic_s(self) -> float:
        """As `monotonic_ms`, in seconds with the fraction: for how long something took."""
        ...


class SystemClock:
    """The clock of the host."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall time since 1970 in UTC."""
        return time.time_ns() // NANOSECONDS_PER_MS

    def monotonic_ms(self) -> int:
        """Time since some fixed instant of this host."""
        return time.monotonic_ns() // NANOSECONDS_PER_MS

    monotonic_s = staticmethod(time.monotonic)  # as it is: read twice for each task


class ManualClock:
    """A clock that stands still until a test moves it."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Wall time as set at the start, plus all advances."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """The sum of all advances."""
        return self._monotonic_ms

    def monotonic_s(self) -> float:
        """As `monotonic_ms`: a test moves it in whole milliseconds."""
        return self._monotonic_ms / 1000

    def advance(self, *, ms: int) -> None:
        """Let time pass, both for the wall clock and the monotonic one."""
        if ms < 0:
            raise InvalidArgument(f"ms: got {ms}; accepted: 0 or more, time does not run backwards")
        self._now_ms += ms
        self._monotonic_ms += ms


def epoch_ns() -> int:
    """Wall time since 1970 in nanoseconds: for traces, which are compared with those of other programs."""
    return time.time_ns()
