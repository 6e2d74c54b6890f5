"""Quarantine: what was read and could not be used, so that it is skipped, counted and shown. Pure.

Whoever goes through entries that others may have written notes a bad one here and goes on with the next.
What is seen again is the same entry; what was not seen for a while is gone: somebody removed it, or it was a
wake-up. The memory is bounded, and loses no place: of each the first entry is described, and further ones as
long as there is room; all of them are told apart by a hash and counted. Beyond that it is said that there
are more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mqworker.model.clock import Clock, SystemClock
from mqworker.model.names import shown

MOST_ENTRIES = 32
"""Described in all; the first of each place besides."""
MOST_PLACES = 256
MOST_COUNTED = 20_000
"""Entries that are told apart, in all places: about two megabytes."""
FORGOTTEN_AFTER_MS = 30_000
"""Longer than any actor takes to come by an entry again."""
_FORGET_EVERY_MS = 1_000
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


@dataclass(frozen=True, slots=True)
class BadPlace:
    """All that is skipped in one place."""

    kind: str
    where: str
    entries: int
    """How many there are, each once."""
    skipped: int
    """How often one of them was."""
    is_more: bool = False
    """Whether there are more entries than could be counted."""

    def as_fields(self) -> dict[str, Any]:
        """Plain values, fit for a mail and for JSON."""
        return {
            "kind": self.kind,
            "where": self.where,
            "entries": self.entries,
            "skipped": self.skipped,
            "more": self.is_more,
        }


@dataclass(slots=True)
class _Place:
    """What is remembered of one place."""

    described: dict[int, BadEntry] = field(default_factory=dict)
    last_seen_ms: dict[int, int] = field(default_factory=dict)
    """Of each entry, by its hash."""
    skipped: int = 0
    uncounted_at_ms: int | None = None
    """When an entry was seen last for which there was no room."""

    def forget(self, before_ms: int) -> None:
        for mark in [mark for mark, seen_ms in self.last_seen_ms.items() if seen_ms < before_ms]:
            del self.last_seen_ms[mark]
            self.described.pop(mark, None)
        if self.uncounted_at_ms is not None and self.uncounted_at_ms < before_ms:
            self.uncounted_at_ms = None

    @property
    def is_empty(self) -> bool:
        return not self.last_seen_ms and self.uncounted_at_ms is None


class Quarantine:
    """The bad entries that one process knows of."""

    def __init__(
        self, clock: Clock | None = None, on_new: Callable[[BadEntry], None] = lambda _entry: None
    ) -> None:
        """`on_new` is called once for each that is described: to log it."""
        self._clock = clock or SystemClock()
        self._on_new = on_new
        self._places: dict[tuple[str, str], _Place] = {}
        self._total = 0
        self._forgot_at_ms = 0
        self._homeless_at_ms: int | None = None
        """When something was skipped last in a place for which there was no room."""

    def note(
        self, kind: str, where: str, why: object, entry: bytes | None = None, *, remove_by: str | None = None
    ) -> bool:
        """Something was skipped; `remove_by` is the command that takes `entry` out of the key `where`.

        Whether it is new, and described.
        """
        self._total += 1
        now_ms = self._clock.now_ms()
        self._forget_old(now_ms)
        place = self._places.get((kind, where))
        if place is None:
            if len(self._places) >= MOST_PLACES:
                self._homeless_at_ms = now_ms
                return False
            place = self._places[kind, where] = _Place()
        place.skipped += 1
        mark = hash(entry)
        if place.last_seen_ms and mark not in place.last_seen_ms and self._counted >= MOST_COUNTED:
            place.uncounted_at_ms = now_ms
            return False
        place.last_seen_ms[mark] = now_ms
        if mark in place.described:
            place.described[mark].count += 1
            return False
        if place.described and self._described >= MOST_ENTRIES:
            return False
        removal = _removal(where, entry, remove_by)
        name = "" if entry is None else shown(entry)
        new = BadEntry(kind, where[:_LONGEST_TEXT], name, _words(why), now_ms, removal)
        place.described[mark] = new
        self._on_new(new)
        return True

    def facts(self) -> dict[str, Any]:
        """For the status screen; empty while there is nothing to tell."""
        self._forget_old(self._clock.now_ms(), at_once=True)
        if not self._places:
            return {}
        described = [bad for place in self._places.values() for bad in place.described.values()]
        return {
            "quarantine": {
                "skipped": self._total,
                "entries": [entry.as_fields() for entry in described],
                "places": [
                    BadPlace(
                        kind,
                        where[:_LONGEST_TEXT],
                        len(place.last_seen_ms),
                        place.skipped,
                        place.uncounted_at_ms is not None,
                    ).as_fields()
                    for (kind, where), place in self._places.items()
                ],
                "more_places": self._homeless_at_ms is not None,
            }
        }

    @property
    def _counted(self) -> int:
        return sum(len(place.last_seen_ms) for place in self._places.values())

    @property
    def _described(self) -> int:
        return sum(len(place.described) for place in self._places.values())

    def _forget_old(self, now_ms: int, *, at_once: bool = False) -> None:
        # Not each time: thousands may be noted one after the other.
        if not at_once and 0 <= now_ms - self._forgot_at_ms < _FORGET_EVERY_MS:
            return
        self._forgot_at_ms = now_ms
        before_ms = now_ms - FORGOTTEN_AFTER_MS
        for place in self._places.values():
            place.forget(before_ms)
        for key in [key for key, place in self._places.items() if place.is_empty]:
            del self._places[key]
        if self._homeless_at_ms is not None and self._homeless_at_ms < before_ms:
            self._homeless_at_ms = None


def _removal(where: str, entry: bytes | None, command: str | None) -> Removal | None:
    if entry is None or command is None or len(entry) > _LONGEST_REMOVABLE_BYTES:
        return None
    return Removal(command, where, entry)


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


def place_of(fields: Mapping[str, Any]) -> BadPlace | None:
    """A place as it stands in a node's snapshot; None when it is not one."""
    match fields:
        case {
            "kind": str(kind),
            "where": str(where),
            "entries": int(entries),
            "skipped": int(skipped),
            "more": bool(is_more),
        }:
            return BadPlace(kind, where, entries, skipped, is_more)
        case _:
            return None


def merged(places: Iterable[BadPlace]) -> list[BadPlace]:
    """What several processes say of the same places: they read the same entries, each on its own."""
    found: dict[tuple[str, str], BadPlace] = {}
    for place in places:
        key = (place.kind, place.where)
        known = found.get(key, place)
        found[key] = BadPlace(
            place.kind,
            place.where,
            max(known.entries, place.entries),
            max(known.skipped, place.skipped),
            known.is_more or place.is_more,
        )
    return list(found.values())


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
