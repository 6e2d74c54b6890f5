"""Days and hours as the clock on somebody's wall has them, summer time included. Pure.

All offsets from UTC that are in use are whole quarters of an hour. So a column of instants has few different
quarters, and only those are looked up.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from mqworker.errors import InvalidArgument

UTC_NAME: Final = "UTC"
DAY_MS: Final = 86_400_000
_QUARTER_MS: Final = 900_000


def check_zone(name: str) -> str:
    """The name of a time zone, if there is one of that name."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise _unknown(name) from error
    except KeyError as error:
        raise _unknown(name) from error
    return name


def local(at_ms: int, zone: str) -> datetime:
    """An instant as the clock there shows it."""
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))


def instant_ms(wall: datetime, zone: str) -> int:
    """When a clock there shows this; of an hour that comes twice, the first."""
    return int(wall.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def floored(at_ms: int, width_ms: int, zone: str) -> int:
    """The beginning of the hour, the day or the days in which an instant lies.

    A day begins at midnight there and has 23 to 25 hours. An hour that the clock shows twice is two hours.
    """
    here = local(at_ms, zone)
    if width_ms < DAY_MS:
        offset_ms = round((here.utcoffset() or timedelta()).total_seconds() * 1000)
        return (at_ms + offset_ms) // width_ms * width_ms - offset_ms
    days = width_ms // DAY_MS
    first = here.toordinal() - (here.toordinal() - _EPOCH_DAY) % days
    return instant_ms(datetime.fromordinal(first), zone)


def next_step(at_ms: int, width_ms: int, zone: str) -> int:
    """The beginning of the step after the one that begins at an instant."""
    if width_ms < DAY_MS:
        return at_ms + width_ms
    return floored(at_ms + width_ms + DAY_MS // 2, width_ms, zone)


# Any: numpy's arrays of whole numbers, whatever their width.
def floors(at_ms: Any, width_ms: int, zone: str) -> Any:  # noqa: ANN401
    """`floored` for a column."""
    if zone == UTC_NAME or width_ms < _QUARTER_MS:
        return at_ms // width_ms * width_ms
    quarters, places = np.unique(at_ms // _QUARTER_MS, return_inverse=True)
    found = [floored(quarter * _QUARTER_MS, width_ms, zone) for quarter in quarters.tolist()]
    return np.array(found, np.int64)[places]


_EPOCH_DAY: Final = datetime(1970, 1, 1).toordinal()  # noqa: DTZ001 - a day, nowhere


def _unknown(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"--tz is {name!r}; accepted is the name of a time zone, such as Europe/Berlin or UTC"
    )
