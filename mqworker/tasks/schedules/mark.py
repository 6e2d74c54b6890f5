"""The mark of a schedule: since when it is paused, or since when it goes on. In the hash `marks`.

`1700000000000` says that it is paused since then; `-1700000000000` that it went on then: ticks before that
instant, which came due in the pause, are not caught up. `-1700000000000 1700003600000` says that it goes on
by a clock that was set back: instead of the tick in the future that is noted.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.model.instant import LATEST_MS
from mqworker.model.names import parse_whole


@dataclass(frozen=True, slots=True)
class Mark:
    """Since when a schedule is paused; or, when it is not, since when it goes on."""

    at_ms: int
    is_pause: bool
    instead_of_ms: int = 0
    """What lay in the future when the server's clock had been set back."""


def encode_mark(mark: Mark) -> str:
    """As it is stored."""
    return f"{'' if mark.is_pause else '-'}{mark.at_ms}" + (
        f" {mark.instead_of_ms}" if mark.instead_of_ms else ""
    )


def decode_mark(text: bytes | None) -> Mark | None:
    """What was stored; None where nothing was, or something that nobody can read."""
    if not text:
        return None
    first, _, second = text.partition(b" ")
    at_ms = parse_whole(first.removeprefix(b"-"), most=LATEST_MS)
    instead_of_ms = parse_whole(second, most=LATEST_MS) if second else 0
    if at_ms is None or instead_of_ms is None:
        return None
    return Mark(at_ms, not text.startswith(b"-"), instead_of_ms)
