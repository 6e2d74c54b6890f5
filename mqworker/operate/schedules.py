"""Schedules: when each fires next, what it fired last, whether it is paused; and what can be done about them.

Read from what workers published and what programs put there; the application is not needed.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mqworker.errors import InvalidArgument
from mqworker.model.names import MessageId, shown
from mqworker.model.schedule import Cron, Timing, in_words
from mqworker.operate.system import System
from mqworker.operate.wording import duration
from mqworker.tasks.schedules.book import Backfill, ScheduleBook, ScheduleState, no_schedule
from mqworker.tasks.schedules.history import Firing

PAGE = 100
"""Of the schedules of a namespace, in one look."""
LARGEST_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """One schedule, now."""

    name: str
    """In code `app/schedule`."""
    owner: str
    """`data`, or the app whose code has it."""
    queue: str
    task: str
    timing: str
    """The cron line, or the interval."""
    words: str
    """The same in words, as far as there are any."""
    timezone: str | None
    catch_up: str
    jitter_ms: int
    since_ms: int
    paused_at_ms: int | None
    last_at_ms: int | None
    """Its newest tick that was fired."""
    next_at_ms: tuple[int, ...]
    """The ticks to come; none while it is paused."""

    @property
    def last_job(self) -> str | None:
        """The id of the message that the newest tick became."""
        return None if self.last_at_ms is None else f"{self.name}@{self.last_at_ms}"

    @property
    def is_data(self) -> bool:
        """Whether it was made at run time."""
        return self.owner == "data"


@dataclass(frozen=True, slots=True)
class Schedules:
    """A page of them, at one moment: the one that fires next first, or by name where a prefix was given."""

    at_ms: int
    schedules: tuple[ScheduleView, ...]
    total: int
    """Of all, whatever their names."""
    prefix: str
    offset: int
    """How many pages by time were passed over, in schedules."""
    left_out: int
    """Behind this page, without a prefix."""
    after: str | None
    """With a prefix: the last name, behind which the next page begins; None at the end."""
    unreadable: int
    """How many entries of the page nobody can read: `mqworker doctor` tells of them."""


def read_schedules(
    system: System, *, prefix: str = "", after: str = "", offset: int = 0, limit: int = LARGEST_PAGE
) -> Schedules:
    """A page of the schedules of the namespace; never all of them, for there may be very many."""
    if prefix or after:
        page = _book(system).by_name(prefix, after, limit)
        left_out = 0
    else:
        page = _book(system).by_time(max(0, offset), limit)
        left_out = max(0, page.total - max(0, offset) - limit)
    views = tuple(_view(state) for state in page.states)
    return Schedules(
        page.at_ms, views, page.total, prefix, max(0, offset), left_out, page.last, len(page.unreadable)
    )


def read_schedule(system: System, name: str) -> tuple[int, ScheduleView]:
    """When it was read, and the schedule; raises an error with the names that come close."""
    at_ms, state = _named(system, name)
    return at_ms, _view(state)


def read_history(system: System, name: str) -> Sequence[Firing]:
    """Its last firings, the newest first."""
    _, state = _named(system, name)
    return _book(system).history(state.name)


def pause_schedule(system: System, name: str) -> bool:
    """Fire nothing that comes due from now on; False when it is paused already."""
    return _book(system).pause(_named(system, name)[1].name)


def resume_schedule(system: System, name: str) -> bool:
    """Fire again: what came due in the pause is not caught up; False when it was not paused."""
    return _book(system).resume(_named(system, name)[1].name)


def delete_schedule(system: System, name: str) -> bool:
    """End one that is data; raises `InvalidArgument` for one of code."""
    return _book(system).delete(name)


def delete_schedule_of_code(system: System, name: str) -> bool:
    """End one whoever owns it: an app that runs somewhere publishes it again when a worker starts."""
    return _book(system).delete_whoever_owns(name)


def run_schedule_now(system: System, name: str) -> tuple[MessageId, bool]:
    """Make its call once, beside its ticks: the id, and False where an equal one is in its queue already."""
    return _book(system).run_now(_named(system, name)[1].spec)


def backfill_schedule(system: System, name: str, from_ms: int, to_ms: int) -> Backfill:
    """Make its call for each tick in a time that has passed."""
    return _book(system).backfill(_named(system, name)[1].spec, from_ms, to_ms)


def ticks_to_backfill(system: System, name: str, from_ms: int, to_ms: int) -> int:
    """How many calls that would be; raises `InvalidArgument` where they are too many."""
    return len(_book(system).ticks_to_backfill(_named(system, name)[1].spec, from_ms, to_ms))


def moment_ms(argument: str, text: str) -> int:
    """A moment as people write it: `2026-03-01`, `2026-03-01T04:00`, with `Z` or `+01:00`; UTC without."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgument(
            f"{argument} is {shown(text)}; accepted are moments such as 2026-03-01T04:00Z, in UTC unless "
            "they say otherwise"
        ) from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def told_firing(firing: Firing) -> str:
    """What became of it, in words."""
    return {
        "fired": "fired",
        "kept_out": "kept out: its task is unique",
        "noted": "fired, by a broker that died",
        "skipped": f"{firing.count:,} ticks before it skipped",
        "waits": "waits: the queue is full",
        "run_now": "run by hand",
        "backfilled": f"{firing.count:,} made up for by hand",
    }[firing.kind]


def _book(system: System) -> ScheduleBook:
    return ScheduleBook(system.store, system.settings.namespace, system.open_queue)


def _named(system: System, name: str) -> tuple[int, ScheduleState]:
    book = _book(system)
    at_ms, state = book.get(name)
    if state is not None:
        return at_ms, state
    known = book.close_to(name)
    # Without its app, as long as only one app has a schedule of this name.
    short = [each for each in dict.fromkeys(known) if each.partition("/")[2] == name]
    if len(short) == 1:
        at_ms, state = book.get(short[0])
        if state is not None:
            return at_ms, state
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    raise (
        no_schedule(name, f"did you mean {' or '.join(dict.fromkeys(close))}?")
        if close
        else no_schedule(name)
    )


def _view(state: ScheduleState) -> ScheduleView:
    timing, words = _told(state.timing)
    return ScheduleView(
        name=state.name,
        owner=state.owner,
        queue=state.queue,
        task=state.task,
        timing=timing,
        words=words,
        timezone=state.timing.timezone if isinstance(state.timing, Cron) else None,
        catch_up=state.spec.catch_up,
        jitter_ms=state.spec.jitter_ms,
        since_ms=state.spec.since_ms,
        paused_at_ms=state.paused_at_ms,
        last_at_ms=state.last_at_ms,
        next_at_ms=state.next_at_ms,
    )


def _told(timing: Timing) -> tuple[str, str]:
    if isinstance(timing, Cron):
        return timing.line, in_words(timing)
    return f"every {duration(timing.interval_ms)}", ""
