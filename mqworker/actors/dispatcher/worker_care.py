"""Care for workers: who overran is killed, who sits on work is nudged, who may leave is let go."""

from __future__ import annotations

from collections.abc import Iterator

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.workers import Crew, Hand
from mqworker.actors.mail import Drain, KillWorker, NudgeWorker
from mqworker.actors.run_slot import Running, RunSlots

WORKER = "worker:"
"""How the names of workers begin; behind it stands the number of their slot."""
NUDGE_AFTER_MS = 20
"""So long may a worker with several deliveries in its hands be silent before it is asked to return some."""


def look_after(crew: Crew, slots: RunSlots, now_ms: int) -> Iterator[Post]:
    """What has to be said to or about workers at this moment."""
    for hand in crew:
        if not hand.flights and hand.is_heard:
            if hand.is_leaving and hand.is_ready:
                hand.is_ready = False
                yield Post(hand.name, Drain(0))
            continue
        running = slots.running(slot_of(hand.name))
        if running is not None and running.is_over(now_ms) and _is_seen_to_run(hand, running):
            yield Post(SUPERVISOR, KillWorker(hand.name, "hard time-out"))
        if _sits_on_work(hand, now_ms):
            hand.was_nudged = True
            yield Post(SUPERVISOR, NudgeWorker(hand.name))


def slot_of(worker: str) -> int:
    """The number of a worker's slot."""
    return int(worker.removeprefix(WORKER))


def _is_seen_to_run(hand: Hand, running: Running) -> bool:
    """Whether it is this worker that its slot speaks of, and not one before it."""
    return not hand.is_heard or any(map(running.is_of, hand.flights))


def _sits_on_work(hand: Hand, now_ms: int) -> bool:
    in_order = len(hand.flights) - hand.asynchronous
    is_silent = now_ms - hand.last_report_ms > NUDGE_AFTER_MS
    return in_order > hand.threads and is_silent and not hand.was_nudged
