"""The checkpoint of a lake: which batches were planned, and which were committed.

`offsets/N.json` says where batch N ends and is written before it runs, `commits/N.json` after all of it is in
place. Between the two lies what a killed archiver does again, with the very same offsets. `start.json`
is where the streams began; the notes of batches long committed are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.lake_files import write_note
from mqworker_services.pipeline.offsets import Offset, as_document, from_document

NONE_YET: Final = -1
_KEPT: Final = 100
"""Notes of so many batches stay, for whoever looks into what happened."""


class UnreadableCheckpoint(MqworkerError):
    """Restore the checkpoint or begin a new lake: its files are not what an archiver wrote."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder in which an archiver notes how far it has come."""

    folder: Path

    def planned(self) -> int:
        """The newest batch of which the offsets are fixed; -1 before the first."""
        return _newest(self.folder / "offsets")

    def committed(self) -> int:
        """The newest batch that was written whole; -1 before the first."""
        return _newest(self.folder / "commits")

    def plan(self, batch: int, end: Offset) -> None:
        """Fix where a batch ends."""
        write_note(self._file("offsets", batch), as_document(end))

    def commit(self, batch: int, rows_by_day: Mapping[str, int]) -> None:
        """Note that a batch is in the lake, all of it."""
        write_note(self._file("commits", batch), {"rows": dict(rows_by_day)})
        if batch >= _KEPT:
            for kind in ("offsets", "commits"):
                self._file(kind, batch - _KEPT).unlink(missing_ok=True)

    def rows_of(self, batch: int) -> dict[str, int]:
        """How many rows a committed batch has on each day; none when that is not known any more."""
        try:
            noted = json.loads(self._file("commits", batch).read_text(encoding="utf-8")).get("rows", {})
            return {str(day): int(rows) for day, rows in noted.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            file = self._file("commits", batch)
            raise UnreadableCheckpoint(f"the checkpoint {file} cannot be read: {error}") from error

    def known_batches(self) -> list[int]:
        """The newest committed batches, of which notes are kept."""
        return sorted(int(file.stem) for file in (self.folder / "commits").glob("[0-9]*.json"))

    def end_of(self, batch: int) -> Offset:
        """Where a batch ends; the batch before the first ends where the streams began."""
        file = self._file("offsets", batch)
        try:
            return from_document(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableCheckpoint(f"the checkpoint {file} cannot be read: {error}") from error

    def _file(self, kind: str, batch: int) -> Path:
        return self.folder / kind / f"{'start' if batch == NONE_YET else batch}.json"


def _newest(folder: Path) -> int:
    return max((int(file.stem) for file in folder.glob("*.json") if file.stem.isdigit()), default=NONE_YET)
