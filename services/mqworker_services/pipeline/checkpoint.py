"""Where the archive of a lake stands: a note for each batch, which the commit of the batch names.

The note is written first, under a number that nobody else uses; then the commit makes the batch and the note
valid together. A note that no commit names was left by an archiver that was killed, or was slower.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.offsets import Offset, as_document, from_document
from mqworker_services.pipeline.table import NONE_YET, LakeTable, new_number

_KEPT: Final = 20
"""Notes of so many batches stay: somebody may be reading a version of the table that is not the newest."""


class UnreadableCheckpoint(MqworkerError):
    """Restore the checkpoint or begin a new lake: its files are not what an archiver wrote."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far the archive has come."""

    batch: int = NONE_YET
    start: Offset = field(default_factory=dict)
    """Where each stream began when it was first archived."""
    end: Offset = field(default_factory=dict)
    """Where each queue's history in the lake ends."""

    @property
    def dropped_before(self) -> dict[str, int]:
        """How many blocks of each queue were gone when the archive began."""
        return {queue: mark.blocks for queue, mark in self.start.items() if mark.blocks}


def read_checkpoint(table: LakeTable) -> Checkpoint:
    """What the newest batch of this version of the table notes."""
    if not table.batch_note:
        return Checkpoint()
    note = table.lake.note(_name(table.batch, table.batch_note))
    try:
        noted = table.lake.storage.read_note(note)
        return Checkpoint(table.batch, from_document(noted["start"]), from_document(noted["end"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableCheckpoint(
            f"the checkpoint {table.lake.storage.url(note)} cannot be read: {error}"
        ) from error


def write_checkpoint(lake: Lake, checkpoint: Checkpoint) -> int:
    """Write the note of a batch that is about to be committed; its number, for the commit."""
    number = new_number()
    content = {"start": as_document(checkpoint.start), "end": as_document(checkpoint.end)}
    lake.storage.write_note(lake.note(_name(checkpoint.batch, number)), content)
    return number


def drop_old_notes(lake: Lake, batch: int) -> None:
    """Notes of batches long committed, and those that were never named."""
    for name in lake.storage.names(lake.note("batches")):
        number = name.partition("-")[0]
        if number.isdigit() and int(number) <= batch - _KEPT:
            lake.storage.remove(lake.note(f"batches/{name}"))


def _name(batch: int, number: int) -> str:
    return f"batches/{'start' if batch == NONE_YET else f'{batch:010d}'}-{number}.json"
