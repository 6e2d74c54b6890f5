"""Firing: schedules that came due become messages. Done by brokers, any number of them, without a leader.

The server's clock says what is due. A broker takes a bounded number of names out of the index for a moment,
so that brokers share the work; the index is only a hint. A firing is one script in the slot of its queue: it
stores the message `schedule@tick` and notes the tick, unless that or a later one is noted already. So a tick
is fired once, whoever is killed, however late a broker wakes up; and the next look goes on from the note. Who
is killed between the firing and the index leaves the name due: the next broker finds the note and goes on. A
note that lies in the future was made by a clock that was set back since: ticks go on by the new one.

Who looked longer than a minute ago fires nothing any more: the schedule may be deleted, and its note gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mqworker.errors import (
    InvalidArgument,
    InvalidMessage,
    MqworkerError,
    QueueFull,
    StaleCall,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from mqworker.log import Logger
from mqworker.model.clock import Clock, SystemClock, epoch_ns
from mqworker.model.guard import chosen_id_guard
from mqworker.model.instant import LATEST_MS, After, At
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import MessageId, QueueName, parse_whole
from mqworker.model.schedule import (
    CLOCK_WENT_BACK_MS,
    jitter_of,
    last_tick_ms,
    next_tick_ms,
    skipped_ticks,
    ticks_to_fire,
)
from mqworker.model.server_clock import ServerClock
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.exchange import UNREADABLE
from mqworker.store.script import RawReply
from mqworker.store.store import Store
from mqworker.tasks.schedules.calls import (
    CLAIM_MS,
    FIRE_WITHIN_MS,
    FORGET_AFTER_MS,
    Advance,
    Look,
    ScheduleCalls,
)
from mqworker.tasks.schedules.history import KEPT, Firing, encode_firings
from mqworker.tasks.schedules.mark import Mark, decode_mark, encode_mark
from mqworker.tasks.schedules.stored import ScheduleSpec, decode_stored
from mqworker.tasks.tracing.firing import FiringTracer

MOST_AT_ONCE = 200
MOST_LOOKS = 5
"""In one round: then the broker has other things to do, and comes back at once."""
_MOST_DECODED = 2_000


@dataclass(slots=True)
class _Plan:
    """What is to be done about one schedule that was taken."""

    spec: ScheduleSpec
    ticks: Sequence[int]
    skipped: int = 0
    noted_ms: int = 0
    mark: str = ""
    is_paused: bool = False
    firings: list[Firing] = field(default_factory=list)
    is_done: bool = True
    """False when it is to be tried again."""


class ScheduleFiring:
    """Fires the schedules of a store."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        queue_of: Callable[[QueueName], WorkQueue],
        log: Logger,
        clock: Clock | None = None,
        *,
        tracer: FiringTracer | None = None,
    ) -> None:
        """`tracer` is there where runs are traced."""
        self._tracer = tracer
        self._store = store
        self._calls = ScheduleCalls(namespace)
        self._queue_of = queue_of
        self._log = log
        self._clock = clock or SystemClock()
        self._decoded: dict[bytes, ScheduleSpec] = {}
        """By name, as they were read last: reading one takes longer than firing it."""
        self._texts: dict[bytes, bytes] = {}
        self.server_clock = ServerClock()
        self.fired = 0
        self.skipped = 0

    @property
    def latest_clock_step(self) -> dict[str, int] | None:
        """The last time that the server's clock was set, None if it never was."""
        return self.server_clock.latest_step(self._clock.monotonic_ms())

    def fire(self) -> int | None:
        """Fire what is due; milliseconds until the next tick, None when there is none."""
        for _ in range(MOST_LOOKS):
            look = self._look()
            soonest = self._deal_with(look)
            if len(look.entries) < MOST_AT_ONCE:
                return soonest
        return 0

    def _look(self) -> Look:
        asked_at_ms = self._clock.monotonic_ms()
        look = self._store.run(self._calls.look(MOST_AT_ONCE))
        step_ms = self.server_clock.note(look.now_ms, asked_at_ms, self._clock.monotonic_ms())
        if step_ms:
            self._log.warning("server_clock_stepped", by_ms=step_ms)
        return look

    def _deal_with(self, look: Look) -> int | None:
        """Fire what was taken; milliseconds until the next tick of all."""
        forgotten = [pair for pair in look.to_forget if self._is_forgotten(*pair)]
        plans = self._plans(look)
        for queue in dict.fromkeys(plan.spec.call.queue for plan in plans if plan.ticks):
            of_queue = [plan for plan in plans if plan.ticks and plan.spec.call.queue == queue]
            self._fire_in(self._queue_of(queue), of_queue, look.now_ms)
        advances = [_advance(plan, look.now_ms) for plan in plans]
        if advances or forgotten:
            self._store.run(self._calls.advance(advances, forgotten))
        waits = [
            CLAIM_MS if each.next_ms is None else each.next_ms - look.now_ms
            for each in advances
            if each.next_ms != LATEST_MS
        ]
        return min(waits if look.next_in_ms is None else [*waits, look.next_in_ms], default=None)

    def _plans(self, look: Look) -> list[_Plan]:
        read = [
            (spec, decode_mark(mark))
            for name, text, mark in look.entries
            for spec in [self._read(name, text)]
            if spec is not None
        ]
        noted = self._noted_ticks([spec for spec, _ in read])
        plans = [
            self._plan(spec, mark, tick, look.now_ms) for (spec, mark), tick in zip(read, noted, strict=True)
        ]
        return [plan for plan in plans if plan is not None]

    def _plan(
        self, spec: ScheduleSpec, mark: Mark | None, noted: RawReply | MqworkerError, now_ms: int
    ) -> _Plan | None:
        """One schedule that cannot be fired does not keep the others from it: it is due again in a moment."""
        try:
            if isinstance(noted, MqworkerError):
                raise noted
            noted_ms = self._tick_in(spec, noted)
            if mark is not None and mark.is_pause:
                return _Plan(spec, (), noted_ms=noted_ms, is_paused=True)
            last_ms, new_mark = _last_tick(spec, noted_ms, mark, now_ms)
            if new_mark:
                reason = "the server's clock went back"
                self._log.warning("schedule_resumed", schedule=spec.name, reason=reason)
            ticks = ticks_to_fire(spec.timing, last_ms, now_ms, spec.catch_up)
            skipped = skipped_ticks(spec.timing, last_ms, ticks) if ticks else 0
            return _Plan(spec, ticks, skipped, noted_ms, new_mark)
        except StoreUnavailable:
            return None  # the node of a cluster is away, and with it the queue
        except (StoreRefused, InvalidArgument, *UNREADABLE) as error:
            self._skip(spec.name.encode(), error)
            return None

    def _fire_in(self, queue: WorkQueue, plans: Sequence[_Plan], now_ms: int) -> None:
        """All of a queue at once; where that is refused each on its own: one does not stop the rest."""
        try:
            self._store_ticks(queue, plans, now_ms)
        except (QueueFull, StoreFull) as error:
            if len(plans) > 1:
                for plan in plans:
                    self._fire_in(queue, [plan], now_ms)
                return
            plans[0].is_done = False
            plans[0].firings = [Firing("waits", plans[0].ticks[0], now_ms, len(plans[0].ticks))]
            self._log.warning("schedule_waits", schedule=plans[0].spec.name, reason=str(error))
        except StaleCall:
            for plan in plans:  # this process was stopped: what it knows may be out of date
                plan.is_done = False
        except (StoreRefused, InvalidArgument, *UNREADABLE) as error:
            for plan in plans:
                plan.is_done = False
                if len(plans) > 1:
                    self._fire_in(queue, [plan], now_ms)
                else:
                    self._skip(plan.spec.name.encode(), error)

    def _store_ticks(self, queue: WorkQueue, plans: Sequence[_Plan], now_ms: int) -> None:
        until_ms = now_ms + FIRE_WITHIN_MS
        pairs = [(plan, tick_ms) for plan in plans for tick_ms in plan.ticks]
        messages = [_message(plan.spec, tick_ms, until_ms) for plan, tick_ms in pairs]
        if self._tracer is not None:
            messages = [self._tracer.mark(message) for message in messages]
        start_ns = epoch_ns()
        stored = queue.enqueue(*messages)
        for (plan, tick_ms), message, each in zip(pairs, messages, stored, strict=True):
            self.fired += each.is_new
            plan.is_done = True
            plan.firings.append(_firing(message, each, tick_ms, now_ms))
            if each.is_new and self._tracer is not None:
                self._tracer.note(plan.spec.name, queue.name, [message], start_ns)
        for plan in plans:
            self._say_skipped(plan, now_ms)

    # Any: HMGET answers a list of texts, or nothing in their place.
    def _noted_ticks(self, specs: Sequence[ScheduleSpec]) -> list[RawReply]:
        """The newest tick of each as it stands in its queue, in one round trip for all."""
        by_queue: dict[QueueName, list[int]] = {}
        for at, spec in enumerate(specs):
            by_queue.setdefault(spec.call.queue, []).append(at)
        keys = [self._queue_of(queue).calls.keys.named("ticks") for queue in by_queue]
        commands = [
            ("HMGET", key, *(specs[at].name for at in places))
            for key, places in zip(keys, by_queue.values(), strict=True)
        ]
        replies = self._store.send_each(commands, keys) if commands else []
        noted: list[RawReply] = [None] * len(specs)
        for places, reply in zip(by_queue.values(), replies, strict=True):
            for nth, at in enumerate(places):
                noted[at] = reply[nth] if isinstance(reply, list) else reply
        return noted

    def _tick_in(self, spec: ScheduleSpec, noted: bytes | None) -> int:
        tick_ms = parse_whole(noted, most=LATEST_MS)
        if tick_ms is None and noted is not None:
            # As if it had never been fired; firing it writes a tick in this place.
            key = self._queue_of(spec.call.queue).calls.keys.named("ticks")
            self._store.quarantine.note("tick", key, "no instant", spec.name.encode(), remove_by="HDEL")
        return tick_ms or 0

    def _is_forgotten(self, member: bytes, score: int) -> bool:
        queue, _, name = member.decode(errors="replace").partition(" ")
        try:
            self._store.run(self._calls.forget(queue, name, score - FORGET_AFTER_MS))
        except StoreRefused:
            pass  # a foreign key in the place of the ticks: there is nothing of ours in it
        except StoreUnavailable:
            return False
        return True

    def _say_skipped(self, plan: _Plan, now_ms: int) -> None:
        if plan.skipped:
            self.skipped += plan.skipped
            self._log.warning(
                "schedule_ticks_skipped",
                schedule=plan.spec.name,
                count=plan.skipped,
                fired=len(plan.ticks),
            )
            plan.firings = plan.firings[1 - KEPT :]
            plan.firings.insert(0, Firing("skipped", plan.ticks[0], now_ms, plan.skipped))

    def _read(self, name: bytes, text: bytes) -> ScheduleSpec | None:
        if self._texts.get(name) == text:
            return self._decoded[name]
        try:
            spec = decode_stored(name, text)
        except InvalidMessage as error:
            self._skip(name, error)
            return None
        if len(self._texts) >= _MOST_DECODED:
            self._texts.clear()
            self._decoded.clear()
        self._texts[name], self._decoded[name] = text, spec
        return spec

    def _skip(self, name: bytes, why: object) -> None:
        self._store.quarantine.note("schedule", self._calls.keys.specs, why, name, remove_by="HDEL")


def _last_tick(spec: ScheduleSpec, noted_ms: int, mark: Mark | None, now_ms: int) -> tuple[int, str]:
    """From where it goes on, and the mark to be kept when that is since now."""
    last_ms = last_tick_ms(spec.since_ms, noted_ms, now_ms)
    ahead_ms = 0 if last_ms is not None else max(spec.since_ms, noted_ms)
    is_marked = mark is not None and mark.at_ms <= now_ms + CLOCK_WENT_BACK_MS
    if mark is not None and is_marked and (last_ms is not None or mark.instead_of_ms == ahead_ms):
        return max(last_ms or 0, min(mark.at_ms, now_ms)), ""
    if last_ms is not None and mark is None:
        return last_ms, ""
    return now_ms, encode_mark(Mark(now_ms, is_pause=False, instead_of_ms=ahead_ms))


def _advance(plan: _Plan, now_ms: int) -> Advance:
    spec = plan.spec
    if not plan.ticks and plan.noted_ms:
        plan.firings = [Firing("noted", plan.noted_ms, now_ms)]
    firings = encode_firings(plan.firings)
    if not plan.is_done:
        return Advance(spec.name, firings=firings)
    next_ms = None if plan.is_paused else next_tick_ms(spec.timing, now_ms)
    return Advance(spec.name, spec.revision, LATEST_MS if next_ms is None else next_ms, plan.mark, firings)


def _firing(message: Message, stored: Enqueued, tick_ms: int, now_ms: int) -> Firing:
    if stored.is_new:
        return Firing("fired", tick_ms, now_ms)
    return Firing("noted" if stored.id == message.id else "kept_out", tick_ms, now_ms)


def _message(spec: ScheduleSpec, tick_ms: int, until_ms: int) -> Message:
    message_id = MessageId(f"{spec.name}@{tick_ms}")
    guard = spec.call.message.guard or chosen_id_guard(message_id)
    message = spec.call.called(message_id, replace(guard, tick_until_ms=until_ms))
    put_off_ms = jitter_of(spec.name, tick_ms, spec.jitter_ms)
    match message.due:
        case None if put_off_ms:
            message.due = At(tick_ms + put_off_ms)
        case After(ms):
            message.due = At(tick_ms + ms + put_off_ms)
        case _:
            pass
    return message
