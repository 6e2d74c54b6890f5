"""Verdict: healthy, degraded or down, and why, in words. A pure function of what `status` sees.

Only what an operator should act on counts. A paused queue is paused on purpose; a backlog that drains is
work, and no trouble; a worker may run one task for hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mqworker.model.outbox_view import outbox_in
from mqworker.model.view import (
    LIVE_STATE,
    PARKED_STATE,
    ChildView,
    NodeView,
    QueueView,
    ServerView,
    SystemView,
)
from mqworker.model.waits import DELAYED, FURTHER, READY, circular


class Health(Enum):
    """The three words, and the exit code of each."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"

    @property
    def exit_code(self) -> int:
        """What `mqworker status` exits with; 3 is left for: no Redis."""
        return {Health.HEALTHY: 0, Health.DEGRADED: 1, Health.DOWN: 2}[self]


@dataclass(frozen=True, slots=True)
class VerdictLimits:
    """From when on something is worth a word."""

    silent_ms: int = 5_000
    restart_loop: int = 3
    unconsumed_ms: int = 5_000
    standstill_ms: int = 5_000
    """Something waits, nothing went out for so long, and a worker runs nothing: the queue stands still."""
    unanswered_ms: int = 2_000
    """How long a worker may take to say which deliveries it has."""
    oldest_ms: int = 300_000
    drain_s: float = 60.0
    """An old message at the front is no trouble where the whole line will be gone so soon."""
    memory_share: float = 0.9
    length_share: float = 0.95
    clock_step_ms: int = 600_000
    """How long `status` says that the server's clock was set; most leases that end by time last no longer."""


_LONG_S = 120

USUAL_LIMITS = VerdictLimits()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word, and the reasons for it, the most important first."""

    health: Health
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """What an operator should know of, though it may be intended."""

    @property
    def text(self) -> str:
        """As one line."""
        return f"{self.health.value}: {'; '.join(self.reasons)}" if self.reasons else self.health.value


def judge(view: SystemView, limits: VerdictLimits = USUAL_LIMITS) -> Verdict:
    """The verdict on everything behind one server."""
    remarks = (*_remarks(view.server), *_of_clock(view, limits))
    if not view.nodes and not view.is_partial:
        reason = "no node beats, nothing runs; start `mqworker run`"
        return Verdict(Health.DOWN, (reason, *_backlog(view)), remarks)
    reasons = [*_of_server(view.server, limits)]
    if view.nodes and all(node.is_draining for node in view.nodes):
        reasons.append("every node is draining, nothing new is taken")
    for node in view.nodes:
        reasons += _of_node(node, limits)
    reasons += _of_waits(view, limits)
    reasons += _of_quarantine(view)
    for queue in view.queues:
        reasons += _of_queue(queue, view, limits)
    return Verdict(Health.DEGRADED if reasons else Health.HEALTHY, tuple(reasons), remarks)


def _remarks(server: ServerView) -> Iterator[str]:
    if not server.is_append_only:
        yield "the server has no append-only file (appendonly no): what it holds is lost when it dies"


def _of_clock(view: SystemView, limits: VerdictLimits) -> Iterator[str]:
    """Said once, however many nodes have seen it."""
    steps = [child.facts.get("server_clock_step") for node in view.nodes for child in node.children]
    known = [
        (step["ago_ms"], step["by_ms"])
        for step in steps
        if isinstance(step, dict) and all(isinstance(step.get(name), int) for name in ("ago_ms", "by_ms"))
    ]
    if not known:
        return
    ago_ms, by_ms = min(known)
    if ago_ms > limits.clock_step_ms:
        return
    way, when, what = (
        ("forward", "sooner", "may run twice") if by_ms > 0 else ("back", "later", "wait longer")
    )
    step = _time(round(abs(by_ms), -3))
    yield (
        f"the server's clock was set {way} by {step}, {_time(ago_ms)} ago: leases that end by "
        f"time (claims without a consumer, RSMQ, gq) end so much {when}, and their messages {what}"
    )


def _backlog(view: SystemView) -> Iterator[str]:
    waiting = sum(queue.waiting for queue in view.queues)
    if waiting:
        yield f"{waiting:,} {'message waits' if waiting == 1 else 'messages wait'}"


def _of_server(server: ServerView, limits: VerdictLimits) -> Iterator[str]:
    yield from server.troubles
    if server.limit_bytes and server.used_bytes >= limits.memory_share * server.limit_bytes:
        yield f"the server's memory is {server.used_bytes / server.limit_bytes:.0%} full"


def _of_quarantine(view: SystemView) -> Iterator[str]:
    found = view.quarantined
    if not found:
        return
    places = view.bad_places
    count = sum(place.entries for place in places)
    has_more = view.has_more_bad_places or any(place.is_more for place in places)
    things = "1 thing is" if count == 1 else f"{'more than ' * has_more}{count:,} things are"
    first = f"{found[0].kind} in {found[0].where}: {found[0].why}"
    yield f"{things} quarantined, see `mqworker doctor`; {first}"


def _of_waits(view: SystemView, limits: VerdictLimits) -> Iterator[str]:
    """Tasks that wait for what cannot run: their workers are not idle, and nothing will ever come of it."""
    circles = circular(view.long_waits)
    for wait in view.long_waits:
        queue = next((each for each in view.queues if each.name == wait.queue), None)
        if wait in circles:
            yield f"{wait.text}, which waits for this one in turn"
        elif wait.state == DELAYED and queue is not None and queue.parked:
            yield f"{wait.text}, which is put off, as tasks of that queue cannot be run"
        elif wait.state in {READY, FURTHER} and _stands_still(queue, limits):
            paused = ", and the queue is paused" if queue is not None and queue.is_paused else ""
            yield f"{wait.text}, which nobody runs{paused}"


def _stands_still(queue: QueueView | None, limits: VerdictLimits) -> bool:
    pace = None if queue is None else queue.throughput
    return pace is None or (pace.out_per_s <= 0 and pace.span_ms >= limits.standstill_ms)


def _of_node(node: NodeView, limits: VerdictLimits) -> Iterator[str]:
    if node.age_ms > limits.silent_ms:
        yield f"node {node.name} was last heard {_time(node.age_ms)} ago"
        return  # what it says of its children is as old
    if node.is_draining:
        return  # children that end are what draining is about
    if node.problem is not None:
        yield f"node {node.name} keeps its workers, the code on disk does not start: {node.problem}"
    for child in node.children:
        trouble = _of_child(child, limits)
        if trouble is not None:
            yield f"{child.name} of node {node.name} {trouble}"
        outbox = outbox_in(child.facts)
        for problem in () if outbox is None else outbox.problems:
            yield f"{child.name} of node {node.name} {problem}"
    for worker, unanswered_ms in node.unanswered_ms_by_worker.items():
        if unanswered_ms > limits.unanswered_ms:
            does = "runs a task" if worker in node.running_workers else "runs nothing"
            held = node.held_by_worker.get(worker, 0)
            yield (
                f"{worker} of node {node.name} holds {held:,}, {does} and does not answer "
                f"since {_time(unanswered_ms)}"
            )
    for name, facts in node.models.items():
        if facts.get("trouble"):
            yield f"queue {name} is in trouble on node {node.name}: {facts['trouble']}"


def _of_child(child: ChildView, limits: VerdictLimits) -> str | None:
    if child.state == LIVE_STATE:
        return None if child.is_worker else _of_live_actor(child, limits)
    because = f": {child.last_exit}" if child.last_exit else ""
    if child.state == PARKED_STATE:
        again = "" if child.retry_in_ms is None else f", next try in {_time(child.retry_in_ms)}"
        return f"is down, parked after {child.restarts} restarts{again}{because}"
    if child.restarts >= limits.restart_loop:
        return f"does not stay up, {child.restarts} restarts{because}"
    # Otherwise it is starting, or its turn has not come.
    return f"is down{because}" if child.state == "waiting" else None


def _of_live_actor(actor: ChildView, limits: VerdictLimits) -> str | None:
    if actor.silent_ms is not None and actor.silent_ms > limits.silent_ms:
        return f"makes no progress since {_time(actor.silent_ms)}"
    if actor.facts.get("is_listening") is False:
        return "does not listen; its listener ended and is being built anew"
    return "cannot reach the server" if actor.facts.get("is_store_up") is False else None


def _of_queue(queue: QueueView, view: SystemView, limits: VerdictLimits) -> Iterator[str]:
    if queue.trouble is not None:
        yield f"queue {queue.name} cannot be read: {queue.trouble}"
    if queue.limit and queue.waiting >= limits.length_share * queue.limit:
        yield f"queue {queue.name} is full: {queue.waiting:,} of {queue.limit:,}"
    if queue.throughput is not None and queue.throughput.buried:
        span_s = max(1, round(queue.throughput.span_ms / 1000))
        yield f"queue {queue.name} buried {queue.throughput.buried:,} in the last {span_s} s"
    for parked in queue.parked:
        yield f"queue {queue.name}: {parked.text}"
    for consumer in queue.consumers:
        if consumer.held and consumer.silent_ms > 3 * limits.silent_ms:
            silence = _time(consumer.silent_ms)
            yield f"consumer {consumer.name} is silent since {silence} and holds {consumer.held:,}"
    if queue.ready and not queue.is_paused:
        yield from _of_line(queue, view, limits)


def _of_line(queue: QueueView, view: SystemView, limits: VerdictLimits) -> Iterator[str]:
    oldest_ms = queue.oldest_ms or 0
    if not view.is_consumed(queue, silent_ms=3 * limits.silent_ms):
        if queue.oldest_ms is None or oldest_ms > limits.unconsumed_ms:
            yield f"queue {queue.name} has {queue.ready:,} ready and nobody consumes it"
        return
    yield from _of_standstill(queue, view, limits)
    drain_s = queue.drain_s
    if oldest_ms > limits.oldest_ms and (drain_s is None or drain_s > limits.drain_s):
        yield f"queue {queue.name} is late: its front message is {_time(oldest_ms)} old"


def _of_standstill(queue: QueueView, view: SystemView, limits: VerdictLimits) -> Iterator[str]:
    """Something waits, nothing goes out, and not because all workers have their hands full."""
    pace = queue.throughput
    if pace is None or pace.out_per_s > 0 or pace.span_ms < limits.standstill_ms:
        return
    if (queue.oldest_ms or 0) < limits.standstill_ms:
        return
    free: list[str] = []
    for node in view.consuming_nodes(queue):
        if node.age_ms > limits.silent_ms:
            continue  # its own reason
        workers = sorted(child.name for child in node.children if child.is_worker)
        free += [f"{name} of node {node.name}" for name in workers if name not in node.running_workers]
        if not workers:
            free.append(f"node {node.name}, which has no worker,")
    if free:
        others = f" and {len(free) - 1} more" if len(free) > 1 else ""
        verb = "run" if len(free) > 1 else "runs"
        yield (
            f"queue {queue.name} has {queue.ready:,} ready and nothing went out for "
            f"{_time(pace.span_ms)}, though {free[0]}{others} {verb} nothing"
        )


def _time(ms: int) -> str:
    seconds = ms // 1000
    return f"{seconds} s" if seconds < _LONG_S else f"{seconds // 60:,} min"
