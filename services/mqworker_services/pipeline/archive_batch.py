"""One batch of the archive: slices of streams become Parquet files of the table.

Executors write the files and return a receipt for each slice: how many blocks they found, and which files
hold them, with rows and bytes. The driver compares the receipts with the plan and looks at every file itself.
Only files that a receipt names come into the table: a task that was tried twice leaves others behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from mqworker.events import EventStreams, open_event_streams
from mqworker.settings import Settings
from mqworker_services.pipeline.arrow_blocks import record_batches
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.offsets import EventsLost, Slice
from mqworker_services.pipeline.parquet_files import DayFiles, RowsNotArrived
from mqworker_services.pipeline.schema import ARROW_SCHEMA
from mqworker_services.pipeline.table import WrittenFile

Portion = tuple[Slice, ...]
"""What one task writes into one file for each day: a large slice, or many small ones of different queues."""


@dataclass(frozen=True, slots=True)
class SliceReceipt:
    """What an executor found of one slice."""

    last: str
    """The id of the last block that was found."""
    blocks: int
    events: int
    """As the blocks themselves tell, without those that did not happen after all."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an executor did with one portion."""

    number: int
    slices: tuple[SliceReceipt, ...]
    files: tuple[WrittenFile, ...] = ()

    @property
    def rows(self) -> int:
        """In all files."""
        return sum(file.rows for file in self.files)


def portions_of(pieces: Sequence[Slice], events_each: int) -> list[Portion]:
    """Slices put together up to so many events: 100 quiet queues are one file, not 100. Pure."""
    portions: list[list[Slice]] = []
    room = 0
    for piece in pieces:
        if piece.events > room or not portions:
            portions.append([])
            room = events_each
        portions[-1].append(piece)
        room -= piece.events
    return [tuple(portion) for portion in portions]


def write_batch(
    engine: Engine, lake: Lake, settings: Settings, portions: Sequence[Portion]
) -> list[WrittenFile]:
    """Write the files of one batch; they are no part of the table yet.

    Raises EventsLost when blocks were dropped since the slices were planned, and RowsNotArrived when the rows
    are not where they belong.
    """
    work = partial(_write_portion, settings=settings, lake=lake)
    said = engine.each(work, list(enumerate(portions)))
    receipts = [_receipt(json.loads(text)) for text in said]
    check_receipts(portions, receipts)
    files = [file for receipt in receipts for file in receipt.files]
    check_files(lake, files)
    return files


def check_receipts(portions: Sequence[Portion], receipts: Sequence[Receipt]) -> None:
    """Raise unless every block of the plan stands in exactly one receipt, with all its events. Pure."""
    if sorted(receipt.number for receipt in receipts) != list(range(len(portions))):
        raise RowsNotArrived(
            f"{len(receipts):,} receipts came back for {len(portions):,} portions; nothing was committed"
        )
    for receipt in receipts:
        for piece, found in zip(portions[receipt.number], receipt.slices, strict=True):
            if (found.blocks, found.last) != (piece.blocks, piece.until):
                raise EventsLost(
                    f"queue {piece.queue}: an executor found {found.blocks:,} of {piece.blocks:,} blocks of "
                    "events; nothing was committed"
                )
        events = sum(found.events for found in receipt.slices)
        if events != receipt.rows:
            queues = ", ".join(sorted({piece.queue for piece in portions[receipt.number]}))
            raise RowsNotArrived(
                f"queue {queues}: an executor wrote {receipt.rows:,} of {events:,} events; "
                "nothing was committed"
            )


def check_files(lake: Lake, files: Sequence[WrittenFile]) -> None:
    """Raise unless the driver sees every file as large as the executor left it."""
    lacking = [file for file in files if lake.storage.size(lake.file(file.path)) != file.bytes]
    if lacking:
        rows = sum(file.rows for file in lacking)
        raise RowsNotArrived(
            f"executors wrote {len(files):,} files, but {len(lacking):,} of them, with {rows:,} events, are "
            f"not in {lake.root} as they left them: executors and driver must share the folder of the lake, "
            "or keep it in a bucket (--lake s3://…); nothing was committed"
        )


# Any: what JSON holds.
def _receipt(document: dict[str, Any]) -> Receipt:
    return Receipt(
        document["number"],
        tuple(SliceReceipt(**each) for each in document["slices"]),
        tuple(WrittenFile(**each) for each in document["files"]),
    )


def _write_portion(numbered: tuple[int, Portion], *, settings: Settings, lake: Lake) -> Iterator[bytes]:
    yield json.dumps(asdict(write_portion(*numbered, settings, lake))).encode()


def write_portion(number: int, portion: Portion, settings: Settings, lake: Lake) -> Receipt:
    """Write the events of some slices into files, one for each day; on an executor."""
    files = DayFiles(lake, f"{number:05d}", ARROW_SCHEMA)
    with open_event_streams(settings) as streams:
        found = tuple(_write_slice(streams, piece, files) for piece in portion)
    return Receipt(number, found, files.close())


def _write_slice(streams: EventStreams, piece: Slice, files: DayFiles) -> SliceReceipt:
    blocks, events, last = 0, 0, piece.after
    for page in streams.blocks(piece.queue, piece.after, piece.until):
        blocks, last = blocks + len(page), page[-1].id
        events += sum(block.count - sum(0 <= at < block.count for at in block.void) for block in page)
        for batch in record_batches(piece.queue, page):
            files.add(batch)
    return SliceReceipt(last, blocks, events)
