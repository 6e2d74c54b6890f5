"""The attempts of a job to scale: waits, runs and pauses as bars on one axis. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.operate.job_view import Attempt, JobView

WIDTH = 1_000
LEAST = 3.0
"""A run of a millisecond after a wait of an hour is to be seen, too."""
MOST_ATTEMPTS = 60


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time: where it begins and how wide it is, of WIDTH."""

    kind: str
    x: float
    width: float
    row: int
    title: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """All bars, one row for each attempt, and the instants at both ends."""

    bars: tuple[Bar, ...]
    attempts: tuple[Attempt, ...]
    begins_at_ms: int
    ends_at_ms: int
    left_out: int

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return max(1, len(self.attempts) + any(bar.kind == "now" for bar in self.bars))


def timeline_of(job: JobView) -> Timeline | None:
    """The timeline; None where nothing is known of its past."""
    attempts = job.attempts[-MOST_ATTEMPTS:]
    delivery = job.trace.delivery
    instants = [each.waiting_since_ms for each in attempts] + [each.ended_at_ms for each in attempts]
    is_over = job.place == "settled"
    if delivery is not None:
        instants.append(delivery.enqueued_at_ms)
    if not instants:
        return None
    begins, ends = min(instants), max(instants) if is_over else job.at_ms
    scale = WIDTH / max(1, ends - begins)
    bars: list[Bar] = []
    for row, each in enumerate(attempts):
        wait = _bar("wait", (each.waiting_since_ms, each.started_at_ms), row, begins, scale)
        run = _bar(f"run {each.outcome}", (each.started_at_ms, each.ended_at_ms), row, begins, scale)
        bars += [wait, run]
    if not is_over:
        since = attempts[-1].ended_at_ms if attempts else begins
        bars.append(_bar("now", (since, ends), len(attempts), begins, scale))
    return Timeline(tuple(bars), tuple(attempts), begins, ends, len(job.attempts) - len(attempts))


def _bar(kind: str, span: tuple[int, int], row: int, begins: int, scale: float) -> Bar:
    start_ms, end_ms = span
    width = max(LEAST, (end_ms - start_ms) * scale)
    x = min(WIDTH - width, max(0.0, (start_ms - begins) * scale))
    return Bar(kind, round(x, 1), round(width, 1), row, f"{kind}: {max(0, end_ms - start_ms):,} ms")
