"""The pause of a schedule, beside its newest tick in the hash `ticks` of its queue, field pause:<schedule>.

`1700000000000` says that it is paused since then; `-1700000000000` that it went on then: ticks before that
instant, which came due in the pause, are not caught up. No schedule has a colon in its name.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.model.instant import LATEST_MS
from mqworker.model.names import parse_whole


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when a schedule is paused; or, when it is not, when it went on."""

    at_ms: int
    is_on: bool


def pause_field(schedule: str) -> str:
    """The field of a schedule."""
    return f"pause:{schedule}"


def encode_pause(pause: Pause) -> str:
    """As it is stored."""
    return f"{'' if pause.is_on else '-'}{pause.at_ms}"


def decode_pause(text: bytes | None) -> Pause | None:
    """What was stored; None where nothing was, or something that nobody can read."""
    if text is None:
        return None
    at_ms = parse_whole(text.removeprefix(b"-"), most=LATEST_MS)
    return None if at_ms is None else Pause(at_ms, is_on=not text.startswith(b"-"))
