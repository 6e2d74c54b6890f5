"""Schedules as lines on a terminal."""

from __future__ import annotations

from mqworker.cli.table import Cell, Column
from mqworker.operate.schedules import ScheduleView, told_firing
from mqworker.operate.wording import NOTHING, duration, moment, safe, short_duration
from mqworker.tasks.schedules.history import Firing, FiringKind

SCHEDULE_COLUMNS = (
    Column("schedule", "<"),
    Column("fires", "<"),
    Column("next in"),
    Column("last", "<"),
    Column("task", "<"),
)
FIRING_COLUMNS = (Column("when", "<"), Column("late"), Column("what", "<"), Column("job", "<"))

_CATCH_UP = {"skip": "skipped", "one": "made up for by one", "all": "fired late, the newest hundred"}
_JOB_OF: dict[FiringKind, str] = {"fired": "@", "noted": "@", "run_now": "@+"}


def schedule_row(view: ScheduleView, at_ms: int) -> list[Cell | str]:
    """One schedule in a list."""
    paused = Cell("paused", "yellow")
    return [
        safe(view.name),
        safe(view.timing),
        paused
        if view.paused_at_ms
        else short_duration(view.next_at_ms[0] - at_ms if view.next_at_ms else None),
        moment(view.last_at_ms, at_ms) if view.last_at_ms else NOTHING,
        safe(view.task),
    ]


def firing_row(view: ScheduleView, firing: Firing, at_ms: int) -> list[Cell | str]:
    """One firing in the history."""
    late_ms = firing.at_ms - firing.tick_ms
    job = f"{view.name}{_JOB_OF[firing.kind]}{firing.tick_ms}" if firing.kind in _JOB_OF else NOTHING
    is_tick = firing.kind in {"fired", "kept_out"}
    return [
        moment(firing.tick_ms, at_ms),
        short_duration(late_ms) if is_tick else NOTHING,
        told_firing(firing),
        safe(job),
    ]


def facts(view: ScheduleView, at_ms: int) -> list[tuple[str, str]]:
    """All that is known of a schedule."""
    words = f" ({view.words}, {view.timezone})" if view.words else ""
    owner = "data: it stays until it is deleted" if view.is_data else f"the code of app {safe(view.owner)}"
    known = [
        ("schedule", safe(view.name)),
        ("owner", owner),
        ("fires", safe(f"{view.timing}{words}")),
        ("calls", f"{safe(view.task)} in queue {safe(view.queue)}"),
        ("missed ticks", f"are {_CATCH_UP.get(view.catch_up, view.catch_up)}"),
        ("jitter", f"up to {duration(view.jitter_ms)}" if view.jitter_ms else "none"),
        ("stored", f"like this since {moment(view.since_ms, at_ms)}"),
    ]
    if view.paused_at_ms is not None:
        since = f"since {moment(view.paused_at_ms, at_ms)}; `mqworker schedule resume {view.name}` ends that"
        known.append(("paused", since))
    for position, tick_ms in enumerate(view.next_at_ms):
        told = f"{moment(tick_ms, at_ms)} (in {duration(tick_ms - at_ms)})"
        known.append(("next" if position == 0 else "", told))
    last = NOTHING if view.last_at_ms is None else moment(view.last_at_ms, at_ms)
    return [*known, ("last", last), ("its job", safe(view.last_job or NOTHING))]
