"""Liveness: whether a child's main loop turns. Pure.

One ping is out at a time: a worker that runs a task for hours finds one in its pipe, not thousands. A child
that leaves it unanswered is told to show its stack and end; if it cannot even do that, it is killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class LivenessLimits:
    """How long a child may take to start, to answer a ping, and to die."""

    ping_every_ms: int = 1_000
    silent_after_ms: int = 5_000
    kill_after_abort_ms: int = 2_000
    ready_within_ms: int = 10_000
    worker_ready_within_ms: int = 120_000  # it imports user code, and some libraries take their time


class ChildAction(Enum):
    """What to do about a child now."""

    FINE = auto()
    PING = auto()
    ABORT = auto()
    KILL = auto()


@dataclass(slots=True)
class Vitals:
    """What is known about the life of one process."""

    started_at_ms: int
    ready_at_ms: int | None = None
    pinged_at_ms: int | None = None
    """When the ping was sent that has no answer yet."""
    ponged_at_ms: int | None = None
    aborted_at_ms: int | None = None
    pings: int = 0
    starved_ms: int = 0
    """How much of its present silence it waited for a CPU: that does not count."""


def check_process(vitals: Vitals, limits: LivenessLimits, now_ms: int) -> ChildAction:
    """For a child that must answer."""
    lively_ms = now_ms - vitals.starved_ms
    if vitals.aborted_at_ms is not None:
        return _over(vitals.aborted_at_ms, limits.kill_after_abort_ms, now_ms, ChildAction.KILL)
    if vitals.ready_at_ms is None:
        return _over(vitals.started_at_ms, limits.ready_within_ms, lively_ms, ChildAction.ABORT)
    if vitals.pinged_at_ms is not None:
        return _over(vitals.pinged_at_ms, limits.silent_after_ms, lively_ms, ChildAction.ABORT)
    return _ping_due(vitals, limits, now_ms)


def check_worker(vitals: Vitals, limits: LivenessLimits, now_ms: int) -> ChildAction:
    """For a child that runs user code: only its start is limited."""
    lively_ms = now_ms - vitals.starved_ms
    if vitals.aborted_at_ms is not None:
        return _over(vitals.aborted_at_ms, limits.kill_after_abort_ms, now_ms, ChildAction.KILL)
    if vitals.ready_at_ms is None:
        return _over(vitals.started_at_ms, limits.worker_ready_within_ms, lively_ms, ChildAction.ABORT)
    return ChildAction.FINE if vitals.pinged_at_ms is not None else _ping_due(vitals, limits, now_ms)


def check_server(vitals: Vitals, limits: LivenessLimits, now_ms: int) -> ChildAction:
    """For the keeper of a server, which may take as long to load as it has data."""
    if vitals.ready_at_ms is None or vitals.pinged_at_ms is not None:
        return ChildAction.FINE
    return _ping_due(vitals, limits, now_ms)


def _ping_due(vitals: Vitals, limits: LivenessLimits, now_ms: int) -> ChildAction:
    since_ms = vitals.ponged_at_ms if vitals.ponged_at_ms is not None else vitals.ready_at_ms
    return (
        ChildAction.PING
        if vitals.pings == 0
        else _over(since_ms, limits.ping_every_ms, now_ms, ChildAction.PING)
    )


def _over(since_ms: int | None, limit_ms: int, now_ms: int, verdict: ChildAction) -> ChildAction:
    return verdict if since_ms is not None and now_ms - since_ms >= limit_ms else ChildAction.FINE
