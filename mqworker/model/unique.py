"""Uniqueness as users ask for it: which calls mean the same, and how long a second one is turned away."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mqworker.errors import InvalidArgument
from mqworker.model.guard import Guard, GuardMode, unique_guard
from mqworker.model.instant import After
from mqworker.model.names import shown
from mqworker.model.rate import argument_names
from mqworker.model.value_codec import pack

Until = Literal["settled", "claimed"]
Keep = Literal["first", "last", "newest-cancels-running"]

NEWEST = "newest-cancels-running"
_LONGEST_SHOWN_KEY = 1_000
_MODE_BY_UNTIL = {"settled": GuardMode.UNTIL_SETTLED, "claimed": GuardMode.UNTIL_CLAIMED}


@dataclass(frozen=True, slots=True)
class Unique:
    """Of calls with the same key only the first is stored; the others get the job that is there already.

    `key` is a template of the arguments (`"{user}"`); without one, all arguments together are the key. It
    holds until the message is settled (also by burial) or, with `until="claimed"`, until a worker takes it;
    `ttl` (seconds) holds it for that time instead, whatever becomes of the message (throttle).

    `keep="last"` with a `delay` (seconds) is a debounce: the call waits so long, and another one with the
    same key meanwhile replaces its arguments and lets it wait anew. There is one job, the first one's.
    `max_wait` (seconds) is how long the first call may be put off in all, however many follow it.

    `keep="newest-cancels-running"` stores the newest call and cancels the one before it, also while it
    runs: it is stopped as by `job.cancel()`. With `max_running={key: 1}` the newest begins when the other
    has ended.
    """

    key: str | None = None
    until: Until = "settled"
    ttl: float | None = None
    keep: Keep = "first"
    delay: float | None = None
    max_wait: float | None = None

    def __post_init__(self) -> None:
        self._check_keep()
        if self.key is not None:
            argument_names(self.key)
        if self.until not in _MODE_BY_UNTIL:
            raise InvalidArgument(f'until is {shown(self.until)}; accepted are "settled" and "claimed"')
        if self.ttl is not None:
            unique_guard("probe", GuardMode.FOR_A_TIME, ttl_ms=_ms("ttl", self.ttl))

    @property
    def due(self) -> After | None:
        """How long a call waits for another one to replace it."""
        return None if self.delay is None else After(_ms("delay", self.delay))

    def _check_keep(self) -> None:
        if self.keep not in ("first", "last", NEWEST):
            raise InvalidArgument(f'keep is {shown(self.keep)}; accepted are "first", "last" and "{NEWEST}"')
        if (self.keep == "last") != (self.delay is not None):
            raise InvalidArgument(
                'keep="last" and delay=... belong together: the time in which calls replace it'
            )
        if self.keep == NEWEST and (self.ttl is not None or self.until != "settled"):
            raise InvalidArgument(
                f'keep="{NEWEST}" is given with ttl or until; accepted is keep="{NEWEST}" without them: it '
                "holds until the message is settled"
            )
        if self.keep == "last" and (self.ttl is not None or self.until != "settled"):
            raise InvalidArgument(
                'keep="last" is given with ttl or until; accepted is keep="last" without them: it '
                "ends when a worker takes the message"
            )
        _ = self.due
        if self.max_wait is not None:
            self._check_max_wait(self.max_wait)

    def _check_max_wait(self, max_wait: float) -> None:
        if self.delay is None:
            raise InvalidArgument('max_wait belongs to keep="last"; accepted is no max_wait without it')
        if _ms("max_wait", max_wait) < _ms("delay", self.delay):
            raise InvalidArgument(
                f"max_wait is {shown(max_wait)}; accepted is no less than the delay of {self.delay:g} s"
            )


def guard_of(unique: Unique, task: str, arguments: Mapping[str, object]) -> Guard:
    """The guard of one call, of its arguments by name and with defaults: however it was written."""
    if unique.key is None:
        key = hashlib.sha256(pack(list(arguments.items()))).hexdigest()
    else:
        key = unique.key.format_map(arguments)
    if len(key) > _LONGEST_SHOWN_KEY:
        key = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return unique_guard(f"{task}:{key}", _mode(unique), ttl_ms=_guard_ms(unique))


def _guard_ms(unique: Unique) -> int:
    """What a guard's time means depends on its mode: how long it holds, or may be put off."""
    if unique.ttl is not None:
        return _ms("ttl", unique.ttl)
    return 0 if unique.max_wait is None else _ms("max_wait", unique.max_wait)


def _mode(unique: Unique) -> GuardMode:
    if unique.keep == "last":
        return GuardMode.KEEP_LAST
    if unique.keep == NEWEST:
        return GuardMode.NEWEST
    return _MODE_BY_UNTIL[unique.until] if unique.ttl is None else GuardMode.FOR_A_TIME


def _ms(argument: str, seconds: object) -> int:
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < float("inf"):
        return max(1, round(seconds * 1000))
    raise InvalidArgument(f"{argument} is {shown(seconds)}; accepted is a number of seconds above 0")
