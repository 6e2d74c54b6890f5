"""The outbox as one node tells of it: for verdict, doctor and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LATE_MS = 30_000
"""An outbox is emptied in well under a second: so old a row is worth a word."""


@dataclass(frozen=True, slots=True)
class OutboxView:
    """What its mover last knew."""

    is_standby: bool
    """Another node moves its rows."""
    rows: int
    lag_ms: int
    """How long ago the oldest row that waits was written; counted on while the database does not answer."""
    bad: int
    why_bad: str
    trouble: str

    @property
    def problems(self) -> Iterator[str]:
        """What an operator should act on."""
        if self.trouble:
            yield f"cannot move the outbox: {self.trouble}"
        elif self.lag_ms > LATE_MS:
            since_s = self.lag_ms // 1000
            yield f"is late: {self.rows:,} rows wait in the outbox, the oldest since {since_s:,} s"
        if self.bad:
            rows = "1 row" if self.bad == 1 else f"{self.bad:,} rows"
            yield f"left {rows} of the outbox aside, see `mqworker outbox show`: {self.why_bad}"


# Any: plain values of a snapshot.
def outbox_in(facts: Mapping[str, Any]) -> OutboxView | None:
    """What a child says; None for one that moves no outbox, or says something else."""
    told = facts.get("outbox")
    if not isinstance(told, Mapping):
        return None
    rows, lag_ms, bad = (_count(told.get(name)) for name in ("rows", "lag_ms", "bad"))
    why_bad, trouble = (str(told.get(name) or "") for name in ("why_bad", "trouble"))
    return OutboxView(told.get("is_standby") is True, rows, lag_ms, bad, why_bad, trouble)


def outboxes_of(children: Sequence[Mapping[str, Any]]) -> list[OutboxView]:
    """Of all children of a snapshot; one at most, as a rule."""
    return [found for child in children if (found := outbox_in(child["facts"])) is not None]


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
