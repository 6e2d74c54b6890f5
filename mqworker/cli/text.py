"""The words of the commands: those of the console (`mqworker/operate/wording.py`)."""

from mqworker.operate.wording import (
    LONGEST_TEXT,
    NOTHING,
    counted,
    cut,
    duration,
    escaped,
    moment,
    rate,
    safe,
    short_count,
    short_duration,
    size,
)

__all__ = [
    "LONGEST_TEXT",
    "NOTHING",
    "counted",
    "cut",
    "duration",
    "escaped",
    "moment",
    "rate",
    "safe",
    "short_count",
    "short_duration",
    "size",
]
