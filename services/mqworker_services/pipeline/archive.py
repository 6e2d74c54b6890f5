"""Archive: events go from the Redis streams into the lake, each exactly once, whatever is killed and when.

A batch is planned, executors write its events into files, the driver compares their receipts with the plan
and with what it sees itself, and one commit of the table makes the files and the end of the batch valid
together. What was written and not committed is no part of the lake. Redis is trimmed only behind what was
committed.

A queue whose stream does not go on where the lake ends stands still until the loss is accepted, by its name;
the others go on.

Not a streaming query of Spark: that starts a process for its source and gives up when it takes ten seconds,
which a busy machine may need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import sleep
from typing import Final

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.events import EventStreams, StreamTail, open_event_streams
from mqworker.settings import Settings
from mqworker_services.pipeline.archive_batch import portions_of, write_batch
from mqworker_services.pipeline.checkpoint import (
    Checkpoint,
    drop_old_notes,
    read_checkpoint,
    write_checkpoint,
)
from mqworker_services.pipeline.compaction import compact
from mqworker_services.pipeline.days import day_of, now_ms
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.event_planning import next_offset, slices_between, trim
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.losses import Loss, beginning_told, book_of
from mqworker_services.pipeline.offsets import (
    EventsLost,
    ForeignHistory,
    Mark,
    Offset,
    Slice,
    check_history,
    mark_before,
    resumed,
)
from mqworker_services.pipeline.options import EVENTS_PER_PARTITION, MAX_EVENTS_PER_BATCH, OnLoss
from mqworker_services.pipeline.parquet_files import RowsNotArrived
from mqworker_services.pipeline.storage import StorageUnavailable
from mqworker_services.pipeline.table import NONE_YET, LakeTable, WrittenFile

BLOCKS_HELD: Final = 1_000_000
_TRIES: Final = 3
"""Of a batch whose blocks are dropped while it is read."""
_NOTES_EVERY: Final = 20
"""Batches, after which notes that nobody needs any more are dropped."""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What the archiver was asked to do."""

    settings: Settings
    lake: Lake
    is_trimming: bool = False
    on_loss: OnLoss = "fail"
    max_events_per_batch: int = MAX_EVENTS_PER_BATCH
    events_per_partition: int = EVENTS_PER_PARTITION
    blocks_held: int = BLOCKS_HELD
    """How many blocks each stream may hold while they wait to be archived."""
    interval_s: float = 5.0
    tidy_every: int = 100
    """Batches after which an archiver that follows merges small files."""
    accept_loss: tuple[str, ...] = ()
    """Queues that go on with what they have, whatever was lost; `on_loss="skip"`: all."""
    warn: Callable[[str], None] = lambda _sentence: None
    """Told what is lost, once."""


Report = Callable[[int, int], None]
"""Called with the number of a batch and its events, once all is written and before the commit."""


def archive_once(engine: Engine, plan: ArchivePlan, report: Report) -> None:
    """Archive everything that is there now; raises at the end when a queue had to stand still."""
    with plan.lake.storage.exclusive(plan.lake.lock), open_event_streams(plan.settings) as streams:
        archiver = Archiver(engine, plan, streams)
        stopped = archiver.archive_present(report)
    if stopped:
        raise _summary(stopped)


def archive_and_follow(engine: Engine, plan: ArchivePlan, report: Report) -> None:
    """Archive what is there and what comes, until interrupted; a storage that is away is waited for."""
    with (
        plan.lake.storage.exclusive(plan.lake.lock),
        open_event_streams(plan.settings) as streams,
        suppress(KeyboardInterrupt),
    ):
        archiver: Archiver | None = None
        is_away = False
        while True:
            try:
                archiver = archiver or Archiver(engine, plan, streams)
                archiver.archive_present(report)
                archiver.tidy()
                is_away = False
            except StorageUnavailable as error:
                archiver = None  # it begins with what the table says then
                if not is_away:
                    plan.warn(f"{error}; trying again every {plan.interval_s:g} s")
                is_away = True
            sleep(plan.interval_s)


@dataclass(slots=True)
class _Round:
    """One look at all streams: how far they reach, and which of them must stand still."""

    tails: dict[str, StreamTail]
    stopped: dict[str, MqworkerError] = field(default_factory=dict)


class Archiver:
    """Writes batch after batch behind what the table of a lake holds."""

    def __init__(self, engine: Engine, plan: ArchivePlan, streams: EventStreams) -> None:
        self._engine, self._plan, self._streams = engine, plan, streams
        self._table = LakeTable.made(plan.lake)
        self._book = book_of(plan.lake)
        self._checkpoint = read_checkpoint(self._table)
        self._tidied = self._checkpoint.batch
        if not self._table.batch_note:
            self._begin()
        self._refuse_unknown_queues()
        self._hold(streams.queues())

    def _begin(self) -> None:
        """Note where the streams begin: what is dropped from now on is lost, what was before is not."""
        start: Offset = {queue: mark_before(self._streams.tail(queue)) for queue in self._streams.queues()}
        self._commit(Checkpoint(NONE_YET, start, start), [])
        for queue, blocks in sorted(self._checkpoint.dropped_before.items()):
            self._plan.warn(beginning_told(queue, blocks))

    def archive_present(self, report: Report) -> dict[str, MqworkerError]:
        """Batch after batch, as far as the streams reach now; which queues stood still, and why."""
        now = _Round({queue: self._streams.tail(queue) for queue in self._streams.queues()})
        while (end := self._next_end(now)) is not None:
            # Queues that came into being since the batch before have the usual cap.
            self._hold((end.keys() - self._checkpoint.end.keys()) & now.tails.keys())
            self._write(end, now, report)
            self._trim(now)
        self._trim(now)  # also what a run committed that was killed before it could trim
        return now.stopped

    def tidy(self) -> None:
        """Merge small files after many batches: one every few seconds would make thousands a day."""
        if self._checkpoint.batch >= self._tidied + self._plan.tidy_every:
            self._tidied = self._checkpoint.batch
            try:
                compact(self._engine, self._plan.lake, day_of(now_ms()))
            except StorageUnavailable:
                raise
            except MqworkerError as error:  # a file that is broken is no reason to archive nothing
                self._plan.warn(f"small files were not merged: {error}")
            self._table.refresh()

    def _refuse_unknown_queues(self) -> None:
        known = {*self._streams.queues(), *self._checkpoint.end}
        for queue in self._plan.accept_loss:
            if queue not in known:
                raise InvalidArgument(f"--accept-loss is {queue!r}; accepted are {', '.join(sorted(known))}")

    def _hold(self, queues: Iterable[str]) -> None:
        """Let the streams of these queues grow until they are archived."""
        for queue in queues:
            self._streams.hold(queue, self._plan.blocks_held)

    def _next_end(self, now: _Round) -> Offset | None:
        """Where the next batch ends; None when there is nothing to write."""
        start = self._checkpoint.end
        going_on = self._going_on(now)
        tails = {queue: tail for queue, tail in now.tails.items() if queue not in now.stopped}
        end = next_offset(self._streams, going_on, tails, self._plan.max_events_per_batch, "skip")
        return None if end == start else end

    def _going_on(self, now: _Round) -> Offset:
        """Where each queue goes on; those with a loss that nobody accepted are stopped."""
        start = self._checkpoint.end
        offset = dict(start)
        for queue in sorted({*start, *now.tails} - now.stopped.keys()):
            mark, tail = start.get(queue, Mark()), now.tails.get(queue) or self._streams.tail(queue)
            try:
                check_history(queue, mark, tail)
            except (EventsLost, ForeignHistory) as error:
                if self._is_accepted(queue, mark, error):
                    ahead = sum(1 for _ in self._streams.listed(queue, mark.id, tail.newest))
                    offset[queue] = resumed(mark, tail, ahead)
                else:
                    now.stopped[queue] = error
        _refuse_another_server(start, now)
        return offset

    def _is_accepted(self, queue: str, mark: Mark, error: MqworkerError) -> bool:
        """Note the loss; whether the queue may go on all the same."""
        plan, tail = self._plan, self._streams.tail(queue)
        is_accepted = (
            plan.on_loss == "skip" or queue in plan.accept_loss or self._book.is_accepted(queue, mark)
        )
        blocks = tail.dropped - mark.blocks if isinstance(error, EventsLost) else None
        until = next((block_id for block_id, _ in self._streams.listed(queue, mark.id, tail.newest)), "")
        if self._book.note(Loss(queue, mark.id, mark.read, blocks, until, is_accepted)):
            plan.warn(str(error))
        return is_accepted

    def _write(self, end: Offset, now: _Round, report: Report) -> None:
        """Write a batch and commit it; when blocks are dropped meanwhile, what is left of it."""
        lost = EventsLost("")
        for _ in range(_TRIES):
            end, pieces = self._planned(end, now)
            portions = portions_of(pieces, self._plan.events_per_partition)
            try:
                files = write_batch(self._engine, self._plan.lake, self._plan.settings, portions)
            except EventsLost as error:
                lost = error  # the streams are looked at again: they may have been trimmed by somebody else
                continue
            report(self._checkpoint.batch + 1, sum(file.rows for file in files))
            self._commit(replace(self._checkpoint, batch=self._checkpoint.batch + 1, end=end), files)
            return
        raise RowsNotArrived(f"{lost}, though the driver sees them all; do executors reach the same server?")

    def _commit(self, checkpoint: Checkpoint, files: list[WrittenFile]) -> None:
        note = write_checkpoint(self._plan.lake, checkpoint)
        self._table.commit_batch(checkpoint.batch, note, files)
        self._checkpoint = checkpoint
        if checkpoint.batch > 0 and checkpoint.batch % _NOTES_EVERY == 0:
            drop_old_notes(self._plan.lake, checkpoint.batch)

    def _planned(self, end: Offset, now: _Round) -> tuple[Offset, list[Slice]]:
        """The slices of a batch; a queue that lost blocks since it was planned is taken out or accepted."""
        start = self._checkpoint.end
        pieces = slices_between(self._streams, start, end, self._plan.events_per_partition)
        mended = dict(end)
        for queue, mark in end.items():
            before = start.get(queue, Mark())
            found = sum(piece.blocks for piece in pieces if piece.queue == queue)
            lacking = mark.read - before.read - found
            if lacking:
                mended[queue] = self._mended(queue, mark, before, lacking, now)
        moved = {queue: mark for queue, mark in mended.items() if mark != start.get(queue, Mark())}
        return {**start, **moved}, [piece for piece in pieces if piece.queue in moved]

    def _mended(self, queue: str, mark: Mark, before: Mark, lacking: int, now: _Round) -> Mark:
        error = (
            EventsLost(f"queue {queue}: {lacking:,} blocks of events were dropped before they were read")
            if lacking > 0
            else ForeignHistory(
                f"queue {queue}: {-lacking:,} blocks are there that were not when it was planned"
            )
        )
        if self._is_accepted(queue, before, error):
            return Mark(mark.id, mark.blocks, mark.skipped + lacking)
        now.stopped[queue] = error
        return before

    def _trim(self, now: _Round) -> None:
        if self._plan.is_trimming:
            going_on = now.tails.keys() - now.stopped.keys()
            trim(
                self._streams,
                {queue: mark for queue, mark in self._checkpoint.end.items() if queue in going_on},
            )


def _refuse_another_server(start: Offset, now: _Round) -> None:
    """When not one queue goes on, the server is another: its other queues do not belong into this lake."""
    archived = {queue for queue, mark in start.items() if mark.id != Mark().id}
    foreign = [queue for queue in sorted(archived) if isinstance(now.stopped.get(queue), ForeignHistory)]
    if foreign and len(foreign) == len(archived):
        raise ForeignHistory(f"{now.stopped[foreign[0]]}{_advice(foreign)}")


def _summary(stopped: dict[str, MqworkerError]) -> MqworkerError:
    first = min(stopped)
    kind = type(stopped[first])
    others = f" (and {len(stopped) - 1:,} more queues)" if len(stopped) > 1 else ""
    return kind(f"{stopped[first]}{others}; all other queues were archived{_advice(sorted(stopped))}")


def _advice(queues: Iterable[str]) -> str:
    return f"; to go on with what is there: {' '.join(f'--accept-loss {queue}' for queue in queues)}"
