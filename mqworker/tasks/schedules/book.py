"""The book of schedules: what is stored of them, read and changed from anywhere, without the application.

Reads are bounded: a page by name or by time, never all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mqworker.errors import InvalidArgument, InvalidMessage, MqworkerError
from mqworker.model.guard import chosen_id_guard
from mqworker.model.instant import LATEST_MS
from mqworker.model.names import MessageId, parse_whole, shown
from mqworker.model.schedule import Every, Timing
from mqworker.queues.work.keys import WorkQueueKeys, queues_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.command import Command
from mqworker.store.script import RawReply
from mqworker.store.store import Store
from mqworker.tasks.schedules.calls import Advance, ScheduleCalls
from mqworker.tasks.schedules.history import Firing, decode_firings, encode_firings
from mqworker.tasks.schedules.mark import Mark, decode_mark
from mqworker.tasks.schedules.stored import DATA, ScheduleSpec, decode_stored

MOST_IN_A_PAGE = 1_000
MOST_BACKFILLED = 10_000
"""Ticks of one backfill; more is refused with their number."""
MOST_COUNTED = 100_000
_NEXT_SHOWN = 5
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """One schedule as it is stored, and where it is now."""

    spec: ScheduleSpec = field(repr=False)
    paused_at_ms: int | None
    last_at_ms: int | None
    """Its newest tick that was fired."""
    next_at_ms: tuple[int, ...]
    """The ticks to come; none while it is paused."""

    @property
    def name(self) -> str:
        """Under which it is stored."""
        return self.spec.name

    @property
    def timing(self) -> Timing:
        """`Cron(...)` or `Every(...)`."""
        return self.spec.timing

    @property
    def queue(self) -> str:
        """Where its calls go."""
        return self.spec.call.queue

    @property
    def task(self) -> str:
        """What it calls."""
        return self.spec.call.message.task

    @property
    def owner(self) -> str:
        """`data`, or the app whose code has it."""
        return self.spec.app or DATA

    @property
    def is_paused(self) -> bool:
        """Whether nothing is fired."""
        return self.paused_at_ms is not None


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """Some of them, at one moment."""

    at_ms: int
    states: tuple[ScheduleState, ...]
    total: int
    """How many there are in all."""
    unreadable: tuple[str, ...] = ()
    """Names in this page of what another program wrote."""
    last: str | None = None
    """The last name of a page by name, behind which the next one begins; None at the end."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a backfill stored."""

    ids: tuple[MessageId, ...]
    """The calls that were stored."""
    kept_out: int
    """Ticks whose call was there already: of an earlier backfill, or because the task is unique."""


def no_schedule(name: str, hint: str = "`mqworker schedule list` shows all of them") -> MqworkerError:
    """There is none of this name."""
    return MqworkerError(f"there is no schedule {shown(name)}; {hint}")


class ScheduleBook:
    """All schedules of a namespace."""

    def __init__(self, store: Store, namespace: str, open_queue: Callable[[str], WorkQueue]) -> None:
        self._store = store
        self._namespace = namespace
        self._open_queue = open_queue
        self._calls = ScheduleCalls(namespace)
        self._keys = self._calls.keys

    def put(self, spec: ScheduleSpec) -> None:
        """Make or change one as data; raises `InvalidArgument` for a name that belongs to code."""
        for name, owner in self._store.run(self._calls.store(DATA, [spec])):
            app = owner.removeprefix("code:")
            raise InvalidArgument(
                f"name is {shown(name)}, which belongs to the code of app {app} (@app.schedule); accepted is "
                "a name that no code has"
            )

    def delete(self, name: str) -> bool:
        """End one that is data; False when there was none; raises `InvalidArgument` for one of code."""
        owner = self._store.run(self._calls.delete(name, DATA))
        if owner:
            raise InvalidArgument(
                f"schedule {name} belongs to the code of app {owner.removeprefix('code:')}; accepted are "
                "schedules made as data: remove it from the code, or pause it"
            )
        return owner is not None

    def delete_whoever_owns(self, name: str) -> bool:
        """End one also when an app has it that no longer runs; False when there was none."""
        return self._store.run(self._calls.delete(name, "")) is not None

    def pause(self, name: str) -> bool:
        """Fire nothing that comes due from now on; False when it is paused already."""
        return _is_changed(name, self._store.run(self._calls.pause(name)))

    def resume(self, name: str) -> bool:
        """Fire again, what came due meanwhile left out; False when it is not paused."""
        return _is_changed(name, self._store.run(self._calls.resume(name)))

    def get(self, name: str) -> tuple[int, ScheduleState | None]:
        """The server's time, and the schedule; raises `InvalidMessage` where it cannot be read."""
        page = self._page([name.encode()])
        if page.unreadable:
            raise InvalidMessage(
                f"schedule {name} cannot be read: another program, or another version, wrote it"
            )
        return page.at_ms, next(iter(page.states), None)

    def by_name(self, prefix: str, after: str, limit: int) -> SchedulePage:
        """Those that begin so, in the order of their names, behind that one."""
        first = f"({after}" if after >= prefix and after else f"[{prefix}"
        names = self._names(first, f"({prefix}\x7f" if prefix else "+", limit)
        page = self._page(names)
        last = names[-1].decode(errors="replace") if len(names) == limit else None
        return SchedulePage(page.at_ms, page.states, page.total, page.unreadable, last)

    def by_time(self, offset: int, limit: int) -> SchedulePage:
        """The one that fires next first; by the index, so what is looked at right now may stand elsewhere."""
        due = self._keys.due
        names: RawReply = self._store.send([("ZRANGE", due, offset, offset + limit - 1)], due)[0]
        page = self._page(names)
        states = sorted(page.states, key=lambda state: (*(state.next_at_ms[:1] or (LATEST_MS,)), state.name))
        return SchedulePage(page.at_ms, tuple(states), page.total, page.unreadable)

    def close_to(self, name: str) -> list[str]:
        """Names that may have been meant: of code, and the neighbours of this one."""
        owned: RawReply = self._store.send([("HVALS", self._keys.owned)], self._keys.owned)[0]
        of_code = [each.decode(errors="replace") for text in owned for each in text.split(b"\n")]
        folder = name.rpartition("/")[0] or name[:1]
        near = self._names(f"[{folder}", f"({folder}\x7f", _AT_ONCE)
        return [*of_code, *(each.decode(errors="replace") for each in near)]

    def history(self, name: str) -> list[Firing]:
        """Its last firings, the newest first."""
        text: RawReply = self._store.send([("HGET", self._keys.history, name)], self._keys.history)[0]
        return decode_firings(text)[::-1]

    def run_now(self, spec: ScheduleSpec) -> tuple[MessageId, bool]:
        """Make its call once, beside its ticks: the id, and False where an equal one is there already."""
        at_ms = self._now_ms()
        message = MessageId(f"{spec.name}@+{at_ms}")
        ids, kept_out = self._enqueue(spec, [message])
        self._note(spec.name, Firing("run_now" if ids else "kept_out", at_ms, at_ms))
        return (ids or kept_out)[0], bool(ids)

    def backfill(self, spec: ScheduleSpec, from_ms: int, to_ms: int) -> Backfill:
        """Call for each tick from an instant up to before another, in order, whether it was fired or not.

        Each has the id `schedule@=tick`: a second time it is kept out as long as ids are remembered.
        """
        ticks = self.ticks_to_backfill(spec, from_ms, to_ms)
        stored: list[MessageId] = []
        for start in range(0, len(ticks), _AT_ONCE):
            some = ticks[start : start + _AT_ONCE]
            stored += self._enqueue(spec, [MessageId(f"{spec.name}@={tick_ms}") for tick_ms in some])[0]
        if ticks:
            self._note(spec.name, Firing("backfilled", ticks[0], self._now_ms(), len(stored)))
        return Backfill(tuple(stored), len(ticks) - len(stored))

    def ticks_to_backfill(self, spec: ScheduleSpec, from_ms: int, to_ms: int) -> list[int]:
        """The ticks; raises `InvalidArgument` with their number where there are too many."""
        if not from_ms < to_ms <= self._now_ms():
            raise InvalidArgument(
                f"backfill from {from_ms} to {to_ms} (ms since 1970); accepted is a time that has passed, "
                "from its beginning to its end: what is to come is fired when it is due"
            )
        count, is_all = _count(spec.timing, from_ms, to_ms)
        if count > MOST_BACKFILLED:
            raise InvalidArgument(
                f"{'' if is_all else 'more than '}{count:,} ticks of {spec.name} lie in that time; accepted "
                f"are up to {MOST_BACKFILLED:,}: take a shorter time, several times"
            )
        return list(_between(spec.timing, from_ms, to_ms))

    def _page(self, names: Sequence[bytes]) -> SchedulePage:
        specs, marks = self._keys.specs, self._keys.marks
        commands: list[Command] = [("TIME",), ("HLEN", specs)]
        if names:
            commands += [("HMGET", specs, *names), ("HMGET", marks, *names)]
        reply: RawReply = self._store.send(commands, specs)
        (seconds, micros), total, *rest = reply
        at_ms = int(seconds) * 1000 + int(micros) // 1000
        texts, noted = rest or ([], [])
        found: list[tuple[ScheduleSpec, Mark | None]] = []
        unreadable: list[str] = []
        for name, text, mark in zip(names, texts, noted, strict=True):
            try:
                if text is not None:
                    found.append((decode_stored(name, text), decode_mark(mark)))
            except InvalidMessage:
                unreadable.append(name.decode(errors="replace"))
        ticks = self._ticks([spec for spec, _ in found])
        states = [_state(spec, mark, tick, at_ms) for (spec, mark), tick in zip(found, ticks, strict=True)]
        return SchedulePage(at_ms, tuple(states), total, tuple(unreadable))

    def _ticks(self, specs: Sequence[ScheduleSpec]) -> Iterator[int | None]:
        keys = [WorkQueueKeys.of(self._namespace, spec.call.queue).named("ticks") for spec in specs]
        commands = [("HGET", key, spec.name) for key, spec in zip(keys, specs, strict=True)]
        replies: RawReply = self._store.send_each(commands, keys) if commands else []
        # A foreign key in the place of ours: as if nothing was fired so far; the verdict tells of it.
        return (
            None if isinstance(reply, MqworkerError) else parse_whole(reply, most=LATEST_MS)
            for reply in replies
        )

    def _names(self, first: str, last: str, limit: int) -> list[bytes]:
        names = self._keys.names
        reply: RawReply = self._store.send(
            [("ZRANGE", names, first, last, "BYLEX", "LIMIT", 0, limit)], names
        )[0]
        return list(reply)

    def _enqueue(
        self, spec: ScheduleSpec, ids: Sequence[MessageId]
    ) -> tuple[list[MessageId], list[MessageId]]:
        """The ids that were stored, and the holders that kept others out."""
        registry = queues_key(self._namespace)
        self._store.send([("SADD", registry, spec.call.queue)], registry)
        guard = spec.call.message.guard
        messages = [spec.call.called(each, guard or chosen_id_guard(each)) for each in ids]
        stored = self._open_queue(spec.call.queue).enqueue(*messages)
        return [each.id for each in stored if each.is_new], [each.id for each in stored if not each.is_new]

    def _note(self, name: str, firing: Firing) -> None:
        self._store.run(self._calls.advance([Advance(name, firings=encode_firings([firing]))]))

    def _now_ms(self) -> int:
        reply: RawReply = self._store.send([("TIME",)], self._keys.specs)[0]
        seconds, micros = reply
        return int(seconds) * 1000 + int(micros) // 1000


def _state(spec: ScheduleSpec, mark: Mark | None, tick_ms: int | None, at_ms: int) -> ScheduleState:
    paused_at_ms = mark.at_ms if mark is not None and mark.is_pause else None
    coming = (
        ()
        if paused_at_ms is not None
        else tuple(itertools.islice(spec.timing.ticks_after(at_ms), _NEXT_SHOWN))
    )
    return ScheduleState(spec, paused_at_ms, tick_ms, coming)


def _between(timing: Timing, from_ms: int, to_ms: int) -> Iterator[int]:
    return itertools.takewhile(lambda tick_ms: tick_ms < to_ms, timing.ticks_after(from_ms - 1))


def _count(timing: Timing, from_ms: int, to_ms: int) -> tuple[int, bool]:
    """How many, and whether these are all: a cron line is gone through, tick by tick."""
    if isinstance(timing, Every):
        return (to_ms - 1) // timing.interval_ms - (from_ms - 1) // timing.interval_ms, True
    counted = sum(1 for _ in itertools.islice(_between(timing, from_ms, to_ms), MOST_COUNTED))
    return counted, counted < MOST_COUNTED


def _is_changed(name: str, answer: int) -> bool:
    if answer < 0:
        raise no_schedule(name)
    return answer == 1
