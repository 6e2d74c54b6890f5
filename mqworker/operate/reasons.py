"""Why a job does not run: the sentences of `mqworker job explain` and of the console. Pure.

Instants stand in the sentences as marks until the end: a terminal shows its own time, a page its viewer's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mqworker.model.delivery import Delivery
from mqworker.model.event import PARKED
from mqworker.model.limits import limit_told
from mqworker.model.view import NodeView, QueueView, SystemView
from mqworker.operate.wording import counted, duration, moment, safe
from mqworker.queues.work.steps import WAITING
from mqworker.queues.work.trace import PastEvent, Trace

_SILENT_MS = 15_000
_FAILED = {"retried", "buried", "crashed"}
_MARK = re.compile(r"⟨(\d{13})⟩")
_ENDED = {"succeeded", "cancelled", "expired", "buried", "purged"}


def reasons(trace: Trace, queue: QueueView, view: SystemView) -> list[str]:
    """The sentences, the answer first and what helps after it; instants in local time."""
    return [
        with_instants(each, lambda at_ms: moment(at_ms, view.at_ms))
        for each in marked_reasons(trace, queue, view)
    ]


def with_instants(sentence: str, show: Callable[[int], str]) -> str:
    """The sentence with its instants as `show` writes them."""
    return _MARK.sub(lambda found: show(int(found[1])), sentence)


def split_at_instants(sentence: str) -> list[str | int]:
    """The sentence in parts: text, and instants in ms, for whoever shows these in an element of its own."""
    parts = _MARK.split(sentence)
    return [int(part) if position % 2 else part for position, part in enumerate(parts) if part]


def marked_reasons(trace: Trace, queue: QueueView, view: SystemView) -> list[str]:
    """The sentences with marks for instants."""
    match trace.where.state:
        case "delayed" | "limited":
            sentences = [*_delayed(trace, view.at_ms), *_obstacles(queue, view)]
        case "ready":
            sentences = [_ready(trace, queue), *_obstacles(queue, view), *_turn(trace, queue, view)]
        case "leased":
            sentences = [*_leased(trace, queue, view)]
        case "delivered":
            sentences = ["handed to a client by pop; it stays there until that client acknowledges it"]
        case "dead":
            sentences = [*_dead(trace, view.at_ms)]
        case "absent":
            sentences = [_gone(trace, view.at_ms)]
        case state:
            sentences = [_finished(trace, state, view.at_ms)]
    return [*sentences, *_company(trace), *_deadline(trace)]


def _at(at_ms: int) -> str:
    return f"⟨{at_ms:013}⟩"


def last_failure(trace: Trace) -> PastEvent | None:
    """The latest attempt that went wrong, as far back as events are kept."""
    return next((past for past in trace.past if past.event in _FAILED), None)


def _delayed(trace: Trace, now_ms: int) -> Iterator[str]:
    due_at_ms, attempt = trace.where.due_at_ms or 0, _attempt(trace)
    if (parked := _parked(trace)) is not None:
        yield parked
    elif trace.where.state == "limited":
        yield "waits for its limits, or its turn among others; it occupies no worker"
        if trace.limits:
            told = "; ".join(map(limit_told, trace.limits.split("|")))
            yield f"its limits: {safe(told)} (mqworker limit show {safe(trace.queue)})"
    elif due_at_ms > now_ms:
        yield f"delayed until {_at(due_at_ms)} (in {duration(due_at_ms - now_ms)}){attempt}"
    else:
        yield f"was due {duration(now_ms - due_at_ms)} ago and waits to be moved into the line{attempt}"


def _parked(trace: Trace) -> str | None:
    """Why no node runs it, if it was parked last."""
    last = trace.past[0] if trace.past else None
    if last is None or last.event != PARKED or trace.delivery is None:
        return None
    task = safe(trace.delivery.task)
    if last.facts.get("error") == "UnknownTask":
        return (
            f"waits for its task: no node that saw it knows {task}; "
            "it runs at once when a node that does is started"
        )
    problem = safe(str(last.facts.get("error_msg", "")), longest=200)
    return f"waits for another version of task {task}, which its arguments do not fit: {problem}"


def _attempt(trace: Trace) -> str:
    if trace.delivery is None or trace.delivery.deliveries == 0:
        return ""
    failure = last_failure(trace)
    after = f" after {_error(failure)}" if failure else ""
    return f": attempt {trace.delivery.attempt}{after}"


def _error(past: PastEvent) -> str:
    error, text = past.facts.get("error"), past.facts.get("error_msg")
    if not error:
        return past.event
    return safe(f"{error}: {text}" if text else str(error), longest=200)


def _ready(trace: Trace, queue: QueueView) -> str:
    before = trace.where.position or 0
    place = "at the front of the line" if before == 0 else f"{before:,} before it"
    return f"ready in queue {queue.name}, {place}{_attempt(trace)}"


def _obstacles(queue: QueueView, view: SystemView) -> Iterator[str]:
    if queue.is_paused:
        since = f" since {_at(queue.paused_at_ms)}" if queue.paused_at_ms else ""
        yield f"queue {queue.name} is paused{since}; `mqworker queue resume {queue.name}` ends that"
    if not view.nodes:
        yield "no node beats: start `mqworker run`"
    elif not view.is_consumed(queue, silent_ms=_SILENT_MS):
        yield f"nobody consumes queue {queue.name}: {_consumed_instead(view)}"


def _consumed_instead(view: SystemView) -> str:
    consumed = sorted({name for node in view.nodes for name in node.queues})
    nodes = counted(len(view.nodes), "node")
    return f"{nodes} up, consuming {', '.join(consumed)}" if consumed else f"{nodes} up, consuming nothing"


def _turn(trace: Trace, queue: QueueView, view: SystemView) -> Iterator[str]:
    if queue.is_paused or not view.is_consumed(queue, silent_ms=_SILENT_MS):
        return
    pace = queue.throughput
    if pace is None:
        yield "how quickly the queue drains is not known yet"
    elif pace.out_per_s > 0:
        wait_ms = (trace.where.position or 0) / pace.out_per_s * 1000
        yield f"the queue drains at {pace.out_per_s:,.1f}/s: its turn comes in about {duration(wait_ms)}"
    else:
        yield f"nothing left the queue in the last {duration(pace.span_ms)}: {_busy(queue, view)}"


def _busy(queue: QueueView, view: SystemView) -> str:
    held = sum(sum(node.held_by_worker.values()) for node in view.nodes if queue.name in node.queues)
    return f"its workers hold {counted(held, 'message')}"


def _leased(trace: Trace, queue: QueueView, view: SystemView) -> Iterator[str]:
    consumer = trace.where.consumer
    attempt = f", attempt {trace.delivery.attempt}" if trace.delivery else ""
    if consumer is None:
        yield f"held under a lease that expires{attempt}"
    else:
        node = _node_of(consumer, view)
        name = f"node {safe(node.name)}" if node else f"consumer {safe(consumer)}"
        yield f"held by {name}{attempt}{_begun(trace, view.at_ms)}"
        yield from _heard(consumer, queue)
        if node is not None:
            yield from _workers(node)
    if trace.is_stop_requested:
        yield "somebody asked to stop it; it will not come back if it fails"


def _node_of(consumer: str, view: SystemView) -> NodeView | None:
    """A node's consumers are called `<node>.<boot>.<generation>`."""
    name = consumer.rsplit(".", 2)[0]
    return next((node for node in view.nodes if node.name == name), None)


def _begun(trace: Trace, now_ms: int) -> str:
    return f"; enqueued {duration(now_ms - trace.delivery.enqueued_at_ms)} ago" if trace.delivery else ""


def _heard(consumer: str, queue: QueueView) -> Iterator[str]:
    for each in queue.consumers:
        if each.name == consumer:
            fate = "; a reaper will release what it holds" if each.silent_ms > _SILENT_MS else ""
            yield f"its last heartbeat was {duration(each.silent_ms)} ago, it holds {each.held:,} here{fate}"


def _workers(node: NodeView) -> Iterator[str]:
    held = {name: count for name, count in node.held_by_worker.items() if count}
    if held:
        shares = ", ".join(f"{safe(name)} has {count:,}" for name, count in held.items())
        yield f"it holds now: {shares}"


def _dead(trace: Trace, now_ms: int) -> Iterator[str]:
    letter = trace.letter
    if letter is None:
        yield "dead"
        return
    text = f"{letter.error}: {letter.error_message}" if letter.error_message else letter.error
    since = f"{_at(letter.buried_at_ms)} ({duration(now_ms - letter.buried_at_ms)} ago)"
    yield safe(f"dead since {since}: {letter.reason}{f'; {text}' if text else ''}", longest=300)
    yield f"`mqworker job retry {trace.id}` puts it back in line"


def _finished(trace: Trace, state: str, now_ms: int) -> str:
    end = next((past for past in trace.past if past.event in _ENDED), None)
    when = f" {_at(end.at_ms)} ({duration(now_ms - end.at_ms)} ago)" if end else ""
    run_ms = end.facts.get("run_ms") if end else None
    took = f", it ran for {duration(run_ms)}" if isinstance(run_ms, int | float) else ""
    return f"finished{when}: {state}{took}"


def _gone(trace: Trace, now_ms: int) -> str:
    end = next((past for past in trace.past if past.event in _ENDED), None)
    if end is not None:
        return f"{_finished(trace, end.event, now_ms)}; no result was kept"
    return "not in the queue any more: purged, moving just now, or its end is no longer among the events"


def _company(trace: Trace) -> Iterator[str]:
    delivery = trace.delivery
    if delivery is None or trace.where.state not in {*WAITING, "leased"}:
        return
    if delivery.is_suspect:
        yield (
            "it ran beside others when their worker died: it runs alone in a worker, or with half its batch, "
            "until it has ended once"
        )
    elif delivery.crashes:
        times = counted(delivery.crashes, "time")
        yield f"a worker died over it {times}{_limit(delivery)}: it runs alone in a worker"
    if delivery.losses:
        times = counted(delivery.losses, "time")
        yield f"its node vanished with it {times}; from `max_losses` on it runs alone, and is then given up"


def _limit(delivery: Delivery) -> str:
    return "" if delivery.max_crashes is None else f" of {delivery.max_crashes}"


def _deadline(trace: Trace) -> Iterator[str]:
    deadline_at_ms = trace.delivery.deadline_at_ms if trace.delivery else None
    if deadline_at_ms is not None and trace.where.state in WAITING:
        yield f"unless it starts until {_at(deadline_at_ms)}, it expires"
