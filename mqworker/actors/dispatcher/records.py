"""What is kept of runs for people: figures, accidents, log lines, spans. Nothing here decides anything.

Workers count their runs (figures.py); who died over what is written down (accidents.py) and logged, and hooks
are told of what was given up (CrashReports); spans go to the exporter (telemetry.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mqworker.actors.actor import Post
from mqworker.actors.child_start import ChildStart
from mqworker.actors.dispatcher.accidents import AccidentLog
from mqworker.actors.dispatcher.figures import FiguresBook
from mqworker.actors.dispatcher.lost_workers import CrashReports, LostWorker
from mqworker.actors.dispatcher.telemetry import Telemetry
from mqworker.actors.dispatcher.workers import Workers, WorkerState
from mqworker.actors.mail import DeliveriesFinished, Mail, RunsCounted
from mqworker.actors.wiring import logger_of
from mqworker.model.clock import SystemClock
from mqworker.model.names import ConsumerName
from mqworker.model.settlement import Settlement
from mqworker.store.store import Store


@dataclass(slots=True)
class Records:
    """Tells all of them; those that are switched off are None."""

    crash_reports: CrashReports
    figures: FiguresBook | None = None
    accidents: AccidentLog | None = None
    telemetry: Telemetry | None = None

    def hear(self, mail: Mail, now_ms: int) -> Sequence[Post]:
        """What workers counted, and how much the exporter can take."""
        if isinstance(mail, RunsCounted):
            if self.figures is not None:
                self.figures.add(mail.figures, now_ms)
        elif self.telemetry is not None:
            return self.telemetry.hear(mail)
        return ()

    def note_report(self, worker: WorkerState, mail: DeliveriesFinished, now_ms: int) -> Sequence[Post]:
        """To be posted before the report is accepted: if we die in between, both are repeated."""
        if self.telemetry is None:
            return ()
        return self.telemetry.reported(worker, mail.number, mail.telemetry, now_ms)

    def note_lost(
        self, lost: LostWorker, settlements_by_queue: Mapping[str, Sequence[Settlement]], now_ms: int
    ) -> None:
        """A worker died; what becomes of its deliveries is decided."""
        if self.telemetry is not None:
            self.telemetry.note_lost(lost, settlements_by_queue, now_ms)
        self.crash_reports.note(settlements_by_queue, lost.worker, lost.cause)
        if self.figures is not None:
            self.figures.note_crashes(settlements_by_queue, now_ms)
        if self.accidents is not None:
            self.accidents.note(settlements_by_queue, lost.worker, lost.cause)

    def note_stray(
        self, queue: str, record: bytes, settlement: Settlement, cause: str, began_at_ms: int | None
    ) -> None:
        """A delivery ran in a worker that ended together with the dispatcher before this one."""
        if self.telemetry is not None:
            self.telemetry.note_stray(queue, record, settlement, cause, began_at_ms)

    def take_lost(self) -> Sequence[Post]:
        """For the exporter: the runs of workers that died."""
        return () if self.telemetry is None else self.telemetry.take_lost()

    def turn(self, workers: Workers, now_ms: int) -> Iterator[Post]:
        """Write what is due, and tell workers what was given up."""
        yield from self.crash_reports.posts(workers)
        if self.figures is not None:
            self.figures.turn(now_ms)
        if self.accidents is not None:
            self.accidents.write(now_ms)

    def close(self, now_ms: int) -> None:
        """The end: write what would be lost with this process, and hold back no report any more."""
        if self.telemetry is not None:
            self.telemetry.close()
        if self.figures is not None:
            self.figures.write(now_ms)

    # Any: numbers and packed figures.
    def facts(self) -> dict[str, Any]:
        """For the status screen and for the monitor."""
        figures = {} if self.figures is None else self.figures.facts()
        dropped = {} if self.telemetry is None else {"telemetry_dropped": self.telemetry.dropped}
        return {**figures, **dropped}


def records_of(start: ChildStart, store: Store) -> Records:
    """Those of a dispatcher's process."""
    namespace, log = start.settings.namespace, logger_of(start)
    return Records(
        CrashReports(log),
        FiguresBook(
            namespace,
            ConsumerName(start.consumer),
            lambda call: int(store.attempt(store.begin([call]))[0]),
            is_exported=start.settings.http is not None,
        ),
        AccidentLog(store, namespace, start.consumer.rsplit(".", 2)[0], log),
        None if start.settings.otel == "off" else Telemetry(SystemClock().now_ms),
    )
