"""Days, as the folders of the lake are named, and moments: in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def day_of(at_ms: int) -> str:
    """The day of an instant."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def moment_of(at_ms: int) -> str:
    """An instant for people, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
