"""The time of servers in memory: fakeredis reads the clock of whoever speaks to it.

fakeredis has no hook for its clock. Its modules read `time.time()`; here the name `time` of those modules,
and of no others, is given a stand-in. So TIME, the ids of streams and times to live all follow one clock.
Outside of `told_by` the stand-in tells the real time: a fakeredis of the user's own notices nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mqworker.model.clock import Clock, SystemClock

_clock: ContextVar[Clock] = ContextVar("mqworker_memory_time", default=SystemClock())  # noqa: B039 - no state

_HALF_A_MS = 0.5
"""fakeredis cuts fractions off a product of doubles: in the middle of a millisecond that does no harm."""


class _TimeModule:
    """What fakeredis takes for the module `time`."""

    def time(self) -> float:
        """Seconds since 1970, by the clock in force."""
        return (_clock.get().now_ms() + _HALF_A_MS) / 1000

    # Any: whatever else is in the module.
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - same
        return getattr(time, name)


_stand_in = _TimeModule()


def take_over() -> None:
    """Give the stand-in to all modules of fakeredis; again and again is harmless."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fakeredis" and vars(module).get("time") is time:
            vars(module)["time"] = _stand_in


@contextmanager
def told_by(clock: Clock) -> Iterator[None]:
    """Let fakeredis go by this clock, in this thread, while the block runs."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)
