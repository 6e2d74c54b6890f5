"""Schedules: when a task is due again and again. Pure: ticks are worked out, nothing is read from a clock.

A tick is an instant in milliseconds since 1970. Ticks of an interval are its multiples, so that all nodes
mean the same ones, whenever they started. Cron lines are read by cronsim, which follows Debian's cron, also
where clocks are set forward or back.
"""

import hashlib
import itertools
import zoneinfo
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from cronsim import CronSim, CronSimError

from mqworker.errors import InvalidArgument
from mqworker.model.names import LONGEST_HORIZON_MS, shown, whole_number

CatchUp = Literal["skip", "one", "all"]

MISSED_AFTER_MS = 10_000
"""A tick counts as missed when nobody fired it for so long: brokers look every second and restart in less."""
MOST_CAUGHT_UP = 100
"""A clock that goes forward by a day, or a long outage, must not fill a queue with what nobody waits for."""
MOST_COUNTED = 10_000
CLOCK_WENT_BACK_MS = 10_000
"""A tick that lies further in the future than that was fired by another clock. Below, the clock catches up:
what was fired is not fired again. As in enqueue_rich.lua."""

_FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_DAY_MS = 24 * 3600 * 1000
_LOOKS_BACK_MS = (_DAY_MS, 31 * _DAY_MS, 366 * _DAY_MS)
_EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cron:
    """Ticks by a cron line, in the time of a zone."""

    line: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            zone = zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
            raise InvalidArgument(
                f"timezone is {shown(self.timezone)}; accepted are names such as 'Europe/Berlin'"
            ) from error
        if not isinstance(self.line, str):
            raise InvalidArgument(
                f"the cron line is {shown(self.line)}; accepted is a text like '*/5 * * * *'"
            )
        try:
            first = next(CronSim(self.line, _EARLIEST.astimezone(zone)), None)
        except CronSimError as error:
            raise InvalidArgument(_cron_problem(self.line, str(error))) from error
        if first is None:
            raise InvalidArgument(f"the cron line {shown(self.line)} never comes: there is no such day")

    def ticks_after(self, after_ms: int) -> Iterator[int]:
        """All ticks later than that, in order."""
        zone = zoneinfo.ZoneInfo(self.timezone)
        for tick in CronSim(self.line, datetime.fromtimestamp(after_ms / 1000, zone)):
            tick_ms = round(tick.timestamp() * 1000)
            if tick_ms > after_ms:
                yield tick_ms


@dataclass(frozen=True, slots=True)
class Every:
    """Ticks at the multiples of an interval."""

    interval_ms: int

    def __post_init__(self) -> None:
        whole_number("every (in ms)", self.interval_ms, least=100, most=LONGEST_HORIZON_MS)

    def ticks_after(self, after_ms: int) -> Iterator[int]:
        """All ticks later than that, in order."""
        tick_ms = after_ms - after_ms % self.interval_ms
        while True:
            tick_ms += self.interval_ms
            yield tick_ms


Timing = Cron | Every


def ticks_to_fire(timing: Timing, last_ms: int, now_ms: int, catch_up: CatchUp) -> list[int]:
    """Which ticks since the last one are to be fired now.

    A tick that is late by less than `MISSED_AFTER_MS` is fired in any case. Of those that were missed, "skip"
    fires none, "all" fires each (the newest hundred), and "one" lets the newest tick stand for all.
    """
    if catch_up == "skip":
        return _between(timing, max(last_ms, now_ms - MISSED_AFTER_MS), now_ms)
    ticks = _newest(timing, last_ms, now_ms)
    first_ms = next(timing.ticks_after(last_ms), now_ms)  # of all, which may be more than the newest
    was_missed = bool(ticks) and first_ms <= now_ms - MISSED_AFTER_MS
    return ticks[-1:] if catch_up == "one" and was_missed else ticks


def skipped_ticks(timing: Timing, last_ms: int, fired: Sequence[int]) -> int:
    """How many ticks between the last one and those that are fired are left out; 10,000 may be more."""
    if len(fired) < MOST_CAUGHT_UP:
        return 0
    if isinstance(timing, Every):
        return max(0, fired[0] // timing.interval_ms - last_ms // timing.interval_ms - 1)
    skipped = itertools.takewhile(lambda tick_ms: tick_ms < fired[0], timing.ticks_after(last_ms))
    return sum(1 for _ in itertools.islice(skipped, MOST_COUNTED))


def last_tick_ms(since_ms: int, noted_ms: int, now_ms: int) -> int | None:
    """From where a schedule goes on: its last tick, or when it was published; both by the server's clock.

    None when that lies in the future: the server's clock went back, and the new one counts from now on.
    """
    latest_ms = now_ms + CLOCK_WENT_BACK_MS
    if noted_ms > latest_ms or (noted_ms == 0 and since_ms > latest_ms):
        return None
    return noted_ms if since_ms > latest_ms else max(since_ms, noted_ms)


def next_tick_ms(timing: Timing, now_ms: int) -> int | None:
    """The first tick after now; None when there is none in this life."""
    return next(timing.ticks_after(now_ms), None)


def in_words(timing: Cron) -> str:
    """A cron line as people say it, in English."""
    return str(CronSim(timing.line, _EARLIEST).explain())


def jitter_of(schedule: str, tick_ms: int, jitter_ms: int) -> int:
    """By how much a tick is put off: anything up to the jitter, and the same on every node."""
    if jitter_ms == 0:
        return 0
    digest = hashlib.blake2b(f"{schedule}@{tick_ms}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (jitter_ms + 1)


def _newest(timing: Timing, last_ms: int, now_ms: int) -> list[int]:
    """The newest hundred ticks; further back only where there are not so many, or it would take too long."""
    ticks: list[int] = []
    for look_back_ms in _LOOKS_BACK_MS:
        since_ms = max(last_ms, now_ms - look_back_ms)
        if isinstance(timing, Every):
            since_ms = max(since_ms, now_ms - MOST_CAUGHT_UP * timing.interval_ms)
        ticks = _between(timing, since_ms, now_ms)[-MOST_CAUGHT_UP:]
        if since_ms == last_ms or len(ticks) == MOST_CAUGHT_UP:
            break
    return ticks


def _between(timing: Timing, after_ms: int, until_ms: int) -> list[int]:
    return list(itertools.takewhile(lambda tick_ms: tick_ms <= until_ms, timing.ticks_after(after_ms)))


def _cron_problem(line: str, problem: str) -> str:
    """Names the field that is wrong, as the user wrote it."""
    values = line.split()
    for position, name in enumerate(_FIELDS[-len(values) :]):
        if problem == f"Bad {name}":
            return f"the cron line {shown(line)}: field {position + 1}, {name}, is {shown(values[position])}"
    return (
        f"the cron line {shown(line)}: {problem}; accepted are five fields, "
        "minute hour day-of-month month day-of-week, or six with the second first"
    )
