"""Exporter: sends what was traced and measured on this node to a collector. One per node, where `otel` is on.

Owns:     the spans that have not been sent, and the sums of the metrics.
Receives: TelemetryGathered, RunsLost (dispatcher); TelemetryGathered (broker).
Sends:    TelemetryTaken (to whoever gathered).
Never:    speaks to Redis, or waits for the collector: threads do (outbox.py).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import Drain, Mail, RunsLost, TelemetryGathered, TelemetryTaken
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.wiring import logger_of, open_store, quarantine_of, run_actor
from mqworker.errors import InvalidMessage
from mqworker.log import Logger
from mqworker.model.envelope import Envelope, decode_call
from mqworker.model.record import decode_record
from mqworker.model.run_span import RunSpan, lost_run_span, run_span_of
from mqworker.model.telemetry import (
    APPLICATION_SPAN,
    BATCH,
    RUN,
    RUN_TIMES,
    SENT,
    Entry,
    RunKind,
    single_run,
)
from mqworker.model.trace_context import Sampling
from mqworker.settings import otel_environment

DISPATCHER = "dispatcher"
_REMEMBERED = 50_000
"""How many of the newest runs and reports are remembered, to recognise one that comes twice."""
_SAY_EVERY_MS = 60_000


class Collector(Protocol):
    """Where it all goes; otlp.py has the one that speaks OTLP."""

    def add_run(self, span: RunSpan) -> None:
        """The span of a run."""

    def add_application_span(self, parts: Entry) -> None:
        """A span that the application made."""

    def add_run_times(self, kind: RunKind, counts: list[int], total_s: float) -> None:
        """How long runs took."""

    def add_sent(self, queue: str, error: str, count: int) -> None:
        """How many messages tasks sent."""

    def end(self) -> None:
        """Send what is there, now: nothing more comes."""

    @property
    def is_over(self) -> bool:
        """Whether everything was sent, or given up, since `end`."""

    def facts(self) -> dict[str, Any]:  # Any: plain values
        """How it goes: exported, dropped, waiting, trouble."""


class Exporter:
    """The actor; see the module's first lines."""

    name = "exporter"

    def __init__(self, collector: Collector, sampling: Sampling, *, node: str, log: Logger) -> None:
        self._collector = collector
        self._sampling = sampling
        self._node = node
        self._log = log
        self._runs, self._batches = Newest(), Newest()
        self._dropped_before = 0
        """What the dispatcher dropped because we did not keep up."""
        self._said_at_ms = 0
        self._said = 0
        self._over_by_ms: int | None = None
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        """Take in what there is; the collector's threads send it."""
        match mail:
            case TelemetryGathered(entries, dropped):
                self._dropped_before += dropped
                self._take_batch(entries)
                return (Post(sender, TelemetryTaken(len(entries))),)
            case RunsLost():
                self._take_lost(mail)
            case Drain(grace_ms):
                self._over_by_ms = now_ms + grace_ms
                self._collector.end()
            case _:
                pass
        return ()

    def turn(self, now_ms: int) -> Iterable[Post]:
        """Say what is dropped; end when everything was sent, or when time is up."""
        dropped = self._dropped
        if dropped > self._said and now_ms - self._said_at_ms >= _SAY_EVERY_MS:
            self._say(dropped, now_ms)
        if self._over_by_ms is not None:
            # A little earlier than we would be killed: so the loss is said.
            self.is_done = self._collector.is_over or now_ms >= self._over_by_ms - _LAST_WORDS_MS
            if self.is_done and (lost := self._dropped + self._collector.facts()["waiting"]) > self._said:
                self._say(lost, now_ms)
        return ()

    def next_turn_in_ms(self, _now_ms: int) -> int:
        """Seldom; soon while it drains."""
        return 1_000 if self._over_by_ms is None else 10

    def watched(self) -> Iterable[Watched]:
        """Nothing but mail."""
        return ()

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {**self._collector.facts(), "dropped": self._dropped}

    @property
    def _dropped(self) -> int:
        dropped: int = self._collector.facts()["dropped"]
        return dropped + self._dropped_before

    def _say(self, dropped: int, now_ms: int) -> None:
        self._log.warning(
            "telemetry_dropped", count=dropped - self._said, trouble=self._collector.facts()["trouble"]
        )
        self._said, self._said_at_ms = dropped, now_ms

    def _take_batch(self, entries: list[Entry]) -> None:
        """Once: a report comes again when a dispatcher died before it said that it has it."""
        match entries:
            case [[kind, name], *_] if kind == BATCH and not self._batches.add(name):
                return
            case _:
                for entry in entries:
                    self._take(entry)

    def _take(self, entry: Entry) -> None:
        match entry:
            case [kind, *parts] if kind == RUN:
                self._add_run(run_span_of(parts))
            case [kind, *parts] if kind == APPLICATION_SPAN:
                self._collector.add_application_span(parts)
            case [kind, [queue, task, error], counts, total_s] if kind == RUN_TIMES:
                self._collector.add_run_times((queue, task, error), counts, total_s)
            case [kind, [queue, error], count] if kind == SENT:
                self._collector.add_sent(queue, error, count)
            case _:
                pass

    def _add_run(self, span: RunSpan) -> None:
        """Once: two dispatchers may both have seen the end of its worker."""
        if self._runs.add((span.queue, span.fence)):
            self._collector.add_run(span)

    def _take_lost(self, mail: RunsLost) -> None:
        for queue, fence, record, outcome, error, began_at_ms in mail.runs:
            try:
                delivery = decode_record(record, fence)
            except InvalidMessage:
                continue  # it never ran: nobody can read it
            call = _call(delivery.body)
            span = lost_run_span(
                delivery,
                queue,
                call,
                outcome=outcome,
                error=error,
                cause=mail.cause,
                began_at_ms=began_at_ms,
                ended_at_ms=mail.ended_at_ms,
                worker=mail.worker,
                node=self._node,
            )
            if not self._runs.add((queue, fence)):
                continue  # as in `_add_run`
            kind, run_s = (queue, span.task, span.error), (span.end_ns - span.start_ns) / 1e9
            self._collector.add_run_times(kind, single_run(run_s), run_s)
            if self._sampling.takes(delivery.id, span.sender):
                self._collector.add_run(span)


_LAST_WORDS_MS = 50
_NICE = 10
"""Where there is not enough CPU time for all, tasks come first: what is exported can wait for seconds."""


class Newest:
    """Remembers the newest of many."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._known: dict[Hashable, None] = {}

    def add(self, key: Hashable) -> bool:
        """Remember it; False when it was known."""
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return True


def _call(body: bytes) -> Envelope:
    try:
        return decode_call(body)
    except InvalidMessage:
        return Envelope([], {}, {})


def main(control: Mailbox, start: ChildStart) -> int:
    """The exporter's process."""
    from mqworker.actors.exporter.otlp import OtlpCollector  # noqa: PLC0415 - the extra "otel", here alone

    os.nice(_NICE)
    settings = start.settings
    collector = OtlpCollector(
        "parent" if settings.otel == "parent" else "link", node=start.node, environment=otel_environment()
    )
    exporter = Exporter(collector, Sampling(settings.otel_share), node=start.node, log=logger_of(start))
    return run_actor(exporter, control, start, open_store(start, quarantine_of(start)))
