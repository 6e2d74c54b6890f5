"""Firing: schedules that came due become messages. Done by brokers, any number of them, without a leader.

The server's clock says what is due. A firing is one script in the slot of its queue: it stores the message
`schedule@tick` and notes the tick, unless that or a later one is noted already. So a tick is fired once,
whoever is killed, however late a broker wakes up; and the note is what the next look goes on from. A note
that lies in the future was made by a clock that was set back since: ticks go on by the new one.

A pause stands beside the tick, and is read after the clock: a tick that came due after it is never fired.
What came due meanwhile was not meant, whatever the schedule catches up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from mqworker.errors import InvalidArgument, InvalidMessage, MqworkerError, QueueFull, StoreFull, StoreRefused
from mqworker.log import Logger
from mqworker.model.clock import Clock, SystemClock, epoch_ns
from mqworker.model.guard import chosen_id_guard
from mqworker.model.instant import LATEST_MS, After, At
from mqworker.model.message import Message
from mqworker.model.names import MessageId, QueueName, parse_whole
from mqworker.model.schedule import jitter_of, last_tick_ms, next_tick_ms, skipped_ticks, ticks_to_fire
from mqworker.model.server_clock import ServerClock
from mqworker.queues.work.keys import schedules_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.exchange import UNREADABLE
from mqworker.store.store import Store
from mqworker.tasks.schedules.pause import Pause, decode_pause, pause_field
from mqworker.tasks.schedules.published import ScheduleSpec, decode_published
from mqworker.tasks.tracing.firing import FiringTracer


class ScheduleFiring:
    """Looks at all published schedules of a store."""

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
        self._key = schedules_key(namespace)
        self._queue_of = queue_of
        self._log = log
        self._resumed_at_ms: dict[str, int] = {}
        """Schedules whose last tick lies in the future, and since when they go by the new clock."""
        self._clock = clock or SystemClock()
        self.server_clock = ServerClock()
        self.fired = 0
        self.skipped = 0

    @property
    def latest_clock_step(self) -> dict[str, int] | None:
        """The last time that the server's clock was set, None if it never was."""
        return self.server_clock.latest_step(self._clock.monotonic_ms())

    def fire(self) -> int | None:
        """Fire what is due; milliseconds until the next tick, None when there is none."""
        asked_at_ms = self._clock.monotonic_ms()
        # Any: TIME answers two texts, HGETALL app and text in turn.
        (seconds, micros), published = cast(
            "Any", self._store.send([("TIME",), ("HGETALL", self._key)], self._key)
        )
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        step_ms = self.server_clock.note(now_ms, asked_at_ms, self._clock.monotonic_ms())
        if step_ms:
            self._log.warning("server_clock_stepped", by_ms=step_ms)
        pairs = zip(published[::2], published[1::2], strict=True)
        specs = [(app, spec) for app, text in pairs for spec in self._decoded(app, text)]
        ticks = self._noted_ticks([spec for _, spec in specs])
        waits = [
            self._fire_or_skip(app, spec, noted, now_ms)
            for (app, spec), noted in zip(specs, ticks, strict=True)
        ]
        return min((wait for wait in waits if wait is not None), default=None)

    def _fire_or_skip(
        self, app: bytes, spec: ScheduleSpec, noted: list[bytes | None] | MqworkerError, now_ms: int
    ) -> int | None:
        """One schedule that cannot be fired does not keep the others from it."""
        try:
            if isinstance(noted, MqworkerError):
                raise noted
            tick, pause = noted
            last_ms = self._last_tick_ms(spec, self._tick_in(spec, tick), now_ms)
            return self._fire_unless_paused(spec, decode_pause(pause), last_ms, now_ms)
        except (StoreRefused, InvalidArgument, *UNREADABLE) as error:
            self._skip(app, f"{spec.name}: {error}")
            return None

    def _fire_unless_paused(
        self, spec: ScheduleSpec, pause: Pause | None, last_ms: int, now_ms: int
    ) -> int | None:
        if pause is None:
            return self._fire_due(spec, last_ms, now_ms)
        if pause.is_on:
            return None
        return self._fire_due(spec, max(last_ms, min(pause.at_ms, now_ms)), now_ms)

    def _fire_due(self, spec: ScheduleSpec, last_ms: int, now_ms: int) -> int | None:
        queue = self._queue_of(spec.call.queue)
        ticks = ticks_to_fire(spec.timing, last_ms, now_ms, spec.catch_up)
        try:
            if ticks:
                self.fired += self._store_ticks(queue, spec, ticks)
                self._say_skipped(spec, skipped_ticks(spec.timing, last_ms, ticks), ticks)
        except (QueueFull, StoreFull) as error:
            self._log.warning("schedule_waits", schedule=spec.name, reason=str(error))
        next_ms = next_tick_ms(spec.timing, now_ms)
        return None if next_ms is None else next_ms - now_ms

    def _store_ticks(self, queue: WorkQueue, spec: ScheduleSpec, ticks: Sequence[int]) -> int:
        """How many of them are stored by us, and not by another broker before."""
        messages = [_message(spec, tick_ms) for tick_ms in ticks]
        if self._tracer is not None:
            messages = [self._tracer.mark(message) for message in messages]
        start_ns = epoch_ns()
        stored = queue.enqueue(*messages)
        new = [message for message, each in zip(messages, stored, strict=True) if each.is_new]
        if self._tracer is not None:
            self._tracer.note(spec.name, spec.call.queue, new, start_ns)
        return len(new)

    # Any: HMGET answers a list of texts, or nothing in their place.
    def _noted_ticks(self, specs: Sequence[ScheduleSpec]) -> list[Any]:
        """The newest tick and the pause of each as they stand in Redis, in one round trip for all."""
        keys = [self._queue_of(spec.call.queue).calls.keys.named("ticks") for spec in specs]
        commands = [
            ("HMGET", key, spec.name, pause_field(spec.name)) for key, spec in zip(keys, specs, strict=True)
        ]
        return self._store.send_each(commands, keys) if commands else []

    def _tick_in(self, spec: ScheduleSpec, noted: bytes | None) -> int:
        tick_ms = parse_whole(noted, most=LATEST_MS)
        if tick_ms is None and noted is not None:
            # As if it had never been fired; firing it writes a tick in this place.
            key = self._queue_of(spec.call.queue).calls.keys.named("ticks")
            self._store.quarantine.note("tick", key, "no instant", spec.name.encode(), remove_by="HDEL")
        return tick_ms or 0

    def _last_tick_ms(self, spec: ScheduleSpec, noted_ms: int, now_ms: int) -> int:
        last_ms = last_tick_ms(spec.since_ms, noted_ms, now_ms)
        if last_ms is not None:
            self._resumed_at_ms.pop(spec.name, None)
            return last_ms
        if self._resumed_at_ms.get(spec.name, now_ms + 1) > now_ms:
            self._resumed_at_ms[spec.name] = now_ms
            self._log.warning("schedule_resumed", schedule=spec.name, reason="the server's clock went back")
        return self._resumed_at_ms[spec.name]

    def _say_skipped(self, spec: ScheduleSpec, count: int, fired: Sequence[int]) -> None:
        if count:
            self.skipped += count
            self._log.warning("schedule_ticks_skipped", schedule=spec.name, count=count, fired=len(fired))

    def _decoded(self, app: bytes, text: bytes) -> Sequence[ScheduleSpec]:
        try:
            return decode_published(text, lambda problem: self._skip(app, problem))
        except InvalidMessage as error:
            self._skip(app, error)
            return ()

    def _skip(self, app: bytes, why: object) -> None:
        self._store.quarantine.note("schedule", self._key, why, app, remove_by="HDEL")


def _message(spec: ScheduleSpec, tick_ms: int) -> Message:
    message_id = MessageId(f"{spec.name}@{tick_ms}")
    guard = spec.call.message.guard or chosen_id_guard(message_id)
    message = spec.call.called(message_id, replace(guard, is_tick=True))
    put_off_ms = jitter_of(spec.name, tick_ms, spec.jitter_ms)
    match message.due:
        case None if put_off_ms:
            message.due = At(tick_ms + put_off_ms)
        case After(ms):
            message.due = At(tick_ms + ms + put_off_ms)
        case _:
            pass
    return message
