"""Unix dates: `Sun Nov 15 23:40:23 UTC 2026`, the way in which topics' records tell when they were published.

Always in UTC and in English, whatever the locale. The server writes them (parts/calendar.lua).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(
    rf"(?:{'|'.join(_DAYS)}) (?P<month>{'|'.join(_MONTHS)}) (?P<day>[ 1-3][0-9]) "
    r"(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2}) UTC (?P<year>[0-9]{4})",
    re.ASCII,
)


def unix_date(seconds: int) -> str:
    """The date of an instant, given in seconds since 1970; a day below ten has a space before it."""
    at = _EPOCH + timedelta(seconds=seconds)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day} {month} {at.day:2} {at:%H:%M:%S} UTC {at.year:04}"


def parse_unix_date(text: str) -> int:
    """The instant of a date, in seconds since 1970; raises `InvalidArgument` for any other text."""
    found = _DATE.fullmatch(text)
    if found:
        month = _MONTHS.index(found["month"]) + 1
        try:
            at = datetime.fromisoformat(
                f"{found['year']}-{month:02}-{int(found['day']):02}T{found['time']}+00:00"
            )
        except ValueError:
            pass
        else:
            seconds = (at - _EPOCH) // timedelta(seconds=1)
            if unix_date(seconds) == text:  # a day of the week that does not belong to the date is refused
                return seconds
    raise InvalidArgument(f"date is {shown(text)}; accepted is one like {unix_date(0)!r}")
