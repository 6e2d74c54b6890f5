"""How topics write dates and ids, read back to compare: scripts write them, nothing of ours reads them."""

from __future__ import annotations

import calendar
import time
from dataclasses import dataclass

_DATE = "%a %b %e %H:%M:%S UTC %Y"


@dataclass(frozen=True, slots=True)
class XidParts:
    """What an id says about where it comes from."""

    seconds: int
    machine: int
    process: int
    count: int


def unix_date(seconds: int) -> str:
    """`Sun Nov 15 23:40:23 UTC 2026`; a day below ten has a space before it."""
    return time.strftime(_DATE, time.gmtime(seconds))


def parse_unix_date(text: str) -> int:
    """The instant of a date, in seconds since 1970."""
    seconds = calendar.timegm(time.strptime(text, "%a %b %d %H:%M:%S UTC %Y"))
    assert unix_date(seconds) == text
    return seconds


def parse_xid(text: str) -> XidParts:
    """The parts of an id of 20 digits in base 32: 96 bits, and four that are padding."""
    whole = (int(text, 32) >> 4).to_bytes(12, "big")
    parts = (whole[:4], whole[4:7], whole[7:9], whole[9:])
    return XidParts(*(int.from_bytes(part, "big") for part in parts))
