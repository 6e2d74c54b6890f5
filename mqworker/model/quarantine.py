"""Quarantine: what was read and could not be used, so that it is skipped, counted and shown. Pure.

Whoever goes through entries that others may have written notes a bad one here and goes on with the next.
What is seen again is the same entry; what was not seen for a while is gone: somebody removed it, or it was a
wake-up. The memory is bounded: of what is too much only the number is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mqworker.model.clock import Clock, SystemClock
from mqworker.model.names import shown

MOST_ENTRIES = 32
FORGOTTEN_AFTER_MS = 30_000
"""Longer than any actor takes to come by an entry again."""
_LONGEST_TEXT = 200
_LONGEST_REMOVABLE_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class Removal:
    """The command that takes exactly this entry out: SREM, ZREM or HDEL, the key, the member or field."""

    command: str
    key: str
    member: bytes


@dataclass(slots=True)
class BadEntry:
    """One thing that is skipped."""

    kind: str
    where: str
    """The key it lies in, the channel it came from, or the step that fails over it."""
    entry: str
    """Its name in there, as Python would write it; empty where `where` says all."""
    why: str
    first_seen_ms: int
    removal: Removal | None = None
    count: int = 1
    last_seen_ms: int = 0

    def as_fields(self) -> dict[str, Any]:
        """Plain values, fit for a mail and for JSON."""
        removal = self.removal
        return {
            "kind": self.kind,
            "where": self.where,
            "entry": self.entry,
            "why": self.why,
            "first_seen_ms": self.first_seen_ms,
            "count": self.count,
            # Bytes have no place in JSON.
            "removal": None if removal is None else [removal.command, removal.key, removal.member.hex()],
        }


class Quarantine:
    """The bad entries that one process knows of."""

    def __init__(
        self, clock: Clock | None = None, on_new: Callable[[BadEntry], None] = lambda _entry: None
    ) -> None:
        """`on_new` is called once for each: to log it."""
        self._clock = clock or SystemClock()
        self._on_new = on_new
        self._entries: dict[tuple[str, str, str], BadEntry] = {}
        self._total = 0

    def note(
        self, kind: str, where: str, why: object, entry: bytes | None = None, *, remove_by: str | None = None
    ) -> bool:
        """Something was skipped; `remove_by` is the command that takes `entry` out of the key `where`.

        Whether it is new, and kept.
        """
        self._total += 1
        now_ms = self._clock.now_ms()
        name = "" if entry is None else shown(entry)
        known = self._entries.get((kind, where, name))
        if known is not None:
            known.count += 1
            known.last_seen_ms = now_ms
            return False
        removal = None
        if entry is not None and remove_by is not None and len(entry) <= _LONGEST_REMOVABLE_BYTES:
            removal = Removal(remove_by, where, entry)
        new = BadEntry(kind, where[:_LONGEST_TEXT], name, _words(why), now_ms, removal, last_seen_ms=now_ms)
        self._forget_old(now_ms)
        if len(self._entries) >= MOST_ENTRIES:
            return False
        self._entries[kind, where, name] = new
        self._on_new(new)
        return True

    def facts(self) -> dict[str, Any]:
        """For the status screen; empty while there is nothing to tell."""
        self._forget_old(self._clock.now_ms())
        if not self._entries:
            return {}
        return {
            "quarantine": {
                "skipped": self._total,
                "entries": [entry.as_fields() for entry in self._entries.values()],
            }
        }

    def _forget_old(self, now_ms: int) -> None:
        over = [
            key for key, entry in self._entries.items() if now_ms - entry.last_seen_ms > FORGOTTEN_AFTER_MS
        ]
        for key in over:
            del self._entries[key]


# Any: a snapshot may come from another version, or from another program.
def entry_of(fields: Mapping[str, Any]) -> BadEntry | None:
    """An entry as it stands in a node's snapshot; None when it is something else."""
    match fields:
        case {
            "kind": str(kind),
            "where": str(where),
            "entry": str(entry),
            "why": str(why),
            "first_seen_ms": int(first_seen_ms),
            "count": int(count),
        }:
            removal = _removal_of(fields.get("removal"))
            return BadEntry(kind, where, entry, why, first_seen_ms, removal, count)
        case _:
            return None


REMOVING_COMMANDS = frozenset({"SREM", "ZREM", "HDEL"})


def _removal_of(value: object) -> Removal | None:
    match value:
        case [str(command), str(key), str(member)] if command in REMOVING_COMMANDS:
            try:
                return Removal(command, key, bytes.fromhex(member))
            except ValueError:
                return None
        case _:
            return None


def _words(why: object) -> str:
    text = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why)
    return text[:_LONGEST_TEXT].encode("ascii", "backslashreplace").decode()
