"""Schedules: when each fires next, what it fired last, whether it is paused; pausing, resuming, running now.

Read from what workers published; the application is not needed.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from mqworker.errors import InvalidMessage, MqworkerError
from mqworker.model.guard import chosen_id_guard
from mqworker.model.instant import LATEST_MS
from mqworker.model.names import MessageId, parse_whole, shown
from mqworker.model.schedule import Cron, Timing, in_words
from mqworker.operate.system import System
from mqworker.operate.wording import duration
from mqworker.queues.work.keys import WorkQueueKeys, queues_key, schedules_key
from mqworker.store.script import RawReply
from mqworker.tasks.schedules.pause import Pause, decode_pause, encode_pause, pause_field
from mqworker.tasks.schedules.published import ScheduleSpec, decode_published

NEXT_SHOWN = 5
MOST_LISTED = 1_000
"""Of the schedules of a namespace: the rest is a number."""


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """One schedule, now."""

    name: str
    """`app/schedule`."""
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
    def app(self) -> str:
        """Whose schedule it is."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Schedules:
    """All of them, at one moment; the one that fires next first."""

    at_ms: int
    schedules: tuple[ScheduleView, ...]
    left_out: int
    unreadable: int
    """How many entries nobody can read: `mqworker doctor` tells of them."""


def read_schedules(system: System) -> Schedules:
    """Every schedule that was published in the namespace."""
    at_ms, specs, unreadable = _published(system)
    views = sorted(_views(system, specs[:MOST_LISTED], at_ms), key=_soonest)
    return Schedules(at_ms, tuple(views), max(0, len(specs) - MOST_LISTED), unreadable)


def read_schedule(system: System, name: str) -> tuple[int, ScheduleView]:
    """When it was read, and the schedule; raises an error with the names that come close."""
    at_ms, spec = _named(system, name)
    (view,) = _views(system, [spec], at_ms)
    return at_ms, view


def pause_schedule(system: System, name: str) -> bool:
    """Fire nothing that comes due from now on; False when it is paused already."""
    at_ms, spec = _named(system, name)
    (view,) = _views(system, [spec], at_ms)
    if view.paused_at_ms is not None:
        return False
    _write(system, spec, Pause(at_ms, is_on=True))
    return True


def resume_schedule(system: System, name: str) -> bool:
    """Fire again: what came due in the pause is not caught up; False when it was not paused."""
    at_ms, spec = _named(system, name)
    (view,) = _views(system, [spec], at_ms)
    if view.paused_at_ms is None:
        return False
    _write(system, spec, Pause(at_ms, is_on=False))
    return True


def run_schedule_now(system: System, name: str) -> tuple[MessageId, bool]:
    """Make its call once, beside its ticks: the id, and False where an equal one is in its queue already."""
    at_ms, spec = _named(system, name)
    message = MessageId(f"{spec.name}+{at_ms}")
    guard = spec.call.message.guard or chosen_id_guard(message)
    registry = queues_key(system.settings.namespace)
    system.store.send([("SADD", registry, spec.call.queue)], registry)
    (stored,) = system.open_queue(spec.call.queue).enqueue(spec.call.called(message, guard))
    return stored.id, stored.is_new


def _published(system: System) -> tuple[int, list[ScheduleSpec], int]:
    key = schedules_key(system.settings.namespace)
    replies: RawReply = system.store.send([("TIME",), ("HVALS", key)], key)
    (seconds, micros), texts = replies
    problems: list[object] = []
    specs: list[ScheduleSpec] = []
    for text in texts:
        try:
            specs += decode_published(text, problems.append)
        except InvalidMessage as error:
            problems.append(error)
    return int(seconds) * 1000 + int(micros) // 1000, specs, len(problems)


def _named(system: System, name: str) -> tuple[int, ScheduleSpec]:
    at_ms, specs, _ = _published(system)
    for spec in specs:
        if spec.name == name:
            return at_ms, spec
    # Without its app, as long as only one app has a schedule of this name.
    short = [spec for spec in specs if spec.name.partition("/")[2] == name]
    if len(short) == 1:
        return at_ms, short[0]
    close = difflib.get_close_matches(name, [spec.name for spec in specs], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "`mqworker schedule list` shows all of them"
    raise MqworkerError(f"there is no schedule {shown(name)}; {hint}")


def _views(system: System, specs: list[ScheduleSpec], at_ms: int) -> Iterator[ScheduleView]:
    keys = [_ticks_key(system, spec) for spec in specs]
    commands = [
        ("HMGET", key, spec.name, pause_field(spec.name)) for key, spec in zip(keys, specs, strict=True)
    ]
    noted: list[RawReply] = list(system.store.send_each(commands, keys)) if commands else []
    for spec, reply in zip(specs, noted, strict=True):
        # A foreign key in the place of ours: as if nothing was fired so far; the verdict tells of it.
        tick, pause = reply if isinstance(reply, list) else (None, None)
        yield _view(spec, parse_whole(tick, most=LATEST_MS), decode_pause(pause), at_ms)


def _view(spec: ScheduleSpec, tick_ms: int | None, pause: Pause | None, at_ms: int) -> ScheduleView:
    is_paused = pause is not None and pause.is_on
    timing, words = _told(spec.timing)
    ticks = () if is_paused else tuple(itertools.islice(spec.timing.ticks_after(at_ms), NEXT_SHOWN))
    return ScheduleView(
        name=spec.name,
        queue=spec.call.queue,
        task=spec.call.message.task,
        timing=timing,
        words=words,
        timezone=spec.timing.timezone if isinstance(spec.timing, Cron) else None,
        catch_up=spec.catch_up,
        jitter_ms=spec.jitter_ms,
        since_ms=spec.since_ms,
        paused_at_ms=pause.at_ms if pause is not None and is_paused else None,
        last_at_ms=tick_ms,
        next_at_ms=ticks,
    )


def _told(timing: Timing) -> tuple[str, str]:
    if isinstance(timing, Cron):
        return timing.line, in_words(timing)
    return f"every {duration(timing.interval_ms)}", ""


def _write(system: System, spec: ScheduleSpec, pause: Pause) -> None:
    key = _ticks_key(system, spec)
    # Sent twice it says the same: the instant was chosen before.
    system.store.send([("HSET", key, pause_field(spec.name), encode_pause(pause))], key)


def _ticks_key(system: System, spec: ScheduleSpec) -> str:
    return WorkQueueKeys.of(system.settings.namespace, spec.call.queue).named("ticks")


def _soonest(view: ScheduleView) -> tuple[int, str]:
    return (view.next_at_ms[0] if view.next_at_ms else LATEST_MS, view.name)
