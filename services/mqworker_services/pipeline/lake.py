"""The lake: a Delta table of events, and the notes of the archiver beside it.

LAKE/events/_delta_log/                          which files are the table; kept by delta-rs, read by many
LAKE/events/date=2026-01-31/part-….parquet       only what the log names is part of it
LAKE/_mqworker/                                  where each batch ends, losses, the lock of a local archiver
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.storage import Storage

TABLE: Final = "events"
NOTES: Final = "_mqworker"


class EmptyLake(MqworkerError):
    """Archive first: there is nothing in this lake."""


@dataclass(frozen=True, slots=True)
class Lake:
    """One lake."""

    storage: Storage

    @classmethod
    def at(cls, place: str, options: Mapping[str, str] | None = None) -> Lake:
        """The lake in a folder or a bucket, as `--lake` and `--storage` name it."""
        return cls(Storage.at(place, options))

    @property
    def root(self) -> str:
        """For people."""
        return self.storage.root

    @property
    def lock(self) -> str:
        """Held by the one process that may archive, where the storage has locks."""
        return f"{NOTES}/lock"

    def note(self, name: str) -> str:
        """The path of a note."""
        return f"{NOTES}/{name}"

    def file(self, relative: str) -> str:
        """The path of a file of the table, by its name there."""
        return f"{TABLE}/{relative}"
