"""What the outbox of a database tells of a job that Redis does not know."""

from __future__ import annotations

from mqworker.model.names import message_id
from mqworker.operate.wording import duration
from mqworker.settings import Settings


def outbox_tells(settings: Settings, message: str) -> str | None:
    """Where its row is; None where this process knows of no outbox, or the outbox of no such row."""
    if settings.outbox_url is None:
        return None
    from mqworker.tasks.outbox.rows import OutboxRows  # noqa: PLC0415 - an extra

    rows = OutboxRows.open(settings.outbox_url)
    try:
        found = rows.find(message_id(message))
    finally:
        rows.close()
    if found is None:
        return None
    queue, position, age_ms, reason = found
    written = f"written in the outbox {duration(age_ms)} ago for queue {queue}"
    if reason:
        return f"{written}, and cannot be moved: {reason}; `mqworker outbox retry` lets nodes look anew"
    if position is None:
        return f"{written}, not moved into Redis yet; `mqworker status` tells whether a node does that"
    return (
        f"{written}; it was moved and is forgotten since, or its queue takes nothing: see `mqworker status`"
    )
