"""Firings as they are kept: the last twenty of each schedule, `<kind>:<tick ms>:<at ms>:<count>` each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mqworker.model.instant import LATEST_MS
from mqworker.model.names import parse_whole

FiringKind = Literal["fired", "kept_out", "noted", "skipped", "waits", "run_now", "backfilled"]

KEPT = 20
"""As in advance_schedules.lua."""

_LETTER: dict[FiringKind, str] = {
    "fired": "F",
    "kept_out": "K",  # an equal call was there: the task is unique
    "noted": "N",  # by a broker that died before it could say more
    "skipped": "S",
    "waits": "W",  # the queue was full; it is tried again
    "run_now": "M",
    "backfilled": "B",
}
_KIND_BY_LETTER = {letter.encode(): kind for kind, letter in _LETTER.items()}
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Firing:
    """What became of a tick, or of several."""

    kind: FiringKind
    tick_ms: int
    """The tick; of a backfill the first, of a call beside the ticks when it was made."""
    at_ms: int
    """When it happened."""
    count: int = 1
    """How many ticks were skipped, or made up for."""


def encode_firings(firings: Sequence[Firing]) -> str:
    """As they are stored; of more than are kept, the newest."""
    return " ".join(
        f"{_LETTER[each.kind]}:{each.tick_ms}:{each.at_ms}:{each.count}" for each in firings[-KEPT:]
    )


def decode_firings(text: bytes | None) -> list[Firing]:
    """What was stored, the oldest first; what another program wrote is passed over."""
    read = (_firing(each.split(b":")) for each in (text or b"").split(b" ")[-KEPT:])
    return [firing for firing in read if firing is not None]


def _firing(parts: list[bytes]) -> Firing | None:
    kind = _KIND_BY_LETTER.get(parts[0])
    if kind is None or len(parts) != _PARTS:
        return None
    tick_ms, at_ms, count = (parse_whole(part, most=LATEST_MS) for part in parts[1:])
    if tick_ms is None or at_ms is None or count is None:
        return None
    return Firing(kind, tick_ms, at_ms, count)


assert set(_LETTER) == set(get_args(FiringKind))  # noqa: S101 - every kind has a letter
