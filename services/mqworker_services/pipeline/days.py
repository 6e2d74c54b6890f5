"""Days, as the folders of the lake are named, and moments: in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from mqworker import App
from mqworker.errors import InvalidArgument

_KEPT: Final = re.compile(r"([1-9][0-9]{0,4})([dw])")
_MS_PER_DAY: Final = 86_400_000


def day_of(at_ms: int) -> str:
    """The day of an instant."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def moment_of(at_ms: int) -> str:
    """An instant for people, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def now_ms() -> int:
    """The instant that it is."""
    return App("pipeline").clock.now_ms()


def first_day_kept(keep: str, at_ms: int) -> str:
    """The oldest day that `--keep` leaves in the lake: of 90d, today and the 89 before."""
    found = _KEPT.fullmatch(keep)
    if found is None:
        raise InvalidArgument(
            f"--keep is {keep!r}; accepted is a number of days or weeks, such as 90d or 12w"
        )
    days = int(found.group(1)) * (7 if found.group(2) == "w" else 1)
    return day_of(max(0, at_ms - (days - 1) * _MS_PER_DAY))
