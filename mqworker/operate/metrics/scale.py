"""How many workers a queue wants, for an autoscaler such as KEDA: its work now and soon, and how fast it is done.

    workers = run time × (arrivals a second + work ÷ target wait) ÷ slots of a worker, rounded up

Work that keeps coming needs so many workers to keep pace; what waits needs the rest to be begun within the
target. The run time is the mean of the newest runs in the queue's event stream, so that it is known to every node
and after every restart. Where nothing ran yet, one worker is wanted as soon as there is work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mqworker.errors import InvalidArgument, StoreRefused
from mqworker.model.event import runs_in_block
from mqworker.model.names import QueueName, queue_name
from mqworker.model.view import QueueView
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.queues.work.snapshots import read_queues
from mqworker.store.script import RawReply
from mqworker.store.store import Store

_BLOCKS = 20
_MOST_RUNS = 1_000
HOUR_S = 3_600.0
MOST_WORKERS = 100_000


@dataclass(frozen=True, slots=True)
class ScaleQuestion:
    """What an autoscaler may choose."""

    queue: str
    target_wait_s: float = 10.0
    """How long a message should wait at the most."""
    soon_s: float = 30.0
    """Delayed messages that are due within so long count as work: it is about what a new worker takes to start."""
    slots: int = 1
    """How many runs a worker has at once: its threads, or its concurrency if the tasks are async."""

    @classmethod
    def of(cls, queue: str, query: Mapping[str, str]) -> ScaleQuestion:
        """From a path and a query string; raises InvalidArgument."""
        queue_name(queue)
        unknown = sorted(query.keys() - {"target_wait_s", "soon_s", "slots"})
        if unknown:
            raise InvalidArgument(f"{unknown[0][:40]!r} is unknown; accepted are target_wait_s, soon_s, slots")
        return cls(
            queue,
            _number(query, "target_wait_s", cls.target_wait_s, 0.1, HOUR_S),
            _number(query, "soon_s", cls.soon_s, 0.0, HOUR_S),
            int(_number(query, "slots", cls.slots, 1, 10_000)),
        )


@dataclass(frozen=True, slots=True)
class Work:
    """What a queue has to do."""

    ready: int
    held: int
    due_soon: int
    in_per_s: float
    run_s: float | None
    """The mean of the newest runs; None: nothing ran."""


def workers_wanted(work: Work, question: ScaleQuestion) -> int:
    """The formula above. Pure."""
    waiting = work.ready + work.due_soon
    messages = waiting + work.held
    if not messages and not work.in_per_s:
        return 0
    if work.run_s is None:
        return 1
    # What is held is being done: it needs the workers that it has, and not to wait.
    slots = max(
        work.run_s * (work.in_per_s + waiting / question.target_wait_s), min(work.held, waiting) and 1
    )
    wanted = math.ceil(round(slots / question.slots, 6))
    return max(1 if messages else 0, min(wanted, MOST_WORKERS))


def read_scale(store: Store, namespace: str, question: ScaleQuestion) -> dict[str, Any]:
    """The document for one queue; a queue that was never used has no work."""
    keys = WorkQueueKeys.of(namespace, QueueName(question.queue))
    view = read_queues(store, namespace, [question.queue])[0]
    if view.trouble is not None:
        raise StoreRefused(view.trouble)
    now, blocks = store.read([("TIME",), ("XREVRANGE", keys.events, "+", "-", "COUNT", _BLOCKS)], keys.events)
    work = _work(store, keys, view, now, blocks, question)
    return {
        "queue": question.queue,
        "messages": work.ready + work.held + work.due_soon,
        "ready": work.ready,
        "held": work.held,
        "due_soon": work.due_soon,
        "oldest_wait_s": round((view.oldest_ms or 0) / 1000, 3),
        "in_per_s": round(work.in_per_s, 3),
        "run_s": None if work.run_s is None else round(work.run_s, 6),
        "target_wait_s": question.target_wait_s,
        "workers": 0 if view.is_paused else workers_wanted(work, question),
        "paused": view.is_paused,
    }


def _work(
    store: Store,
    keys: WorkQueueKeys,
    view: QueueView,
    now: RawReply,
    blocks: RawReply,
    question: ScaleQuestion,
) -> Work:
    seconds, microseconds = map(int, now)
    until_ms = seconds * 1000 + microseconds // 1000 + int(question.soon_s * 1000)
    delayed = keys.named("delayed")
    due_soon: RawReply = store.read([("ZCOUNT", delayed, "-inf", until_ms)], delayed)[0]
    pace = view.throughput
    return Work(
        ready=view.ready,
        held=view.leased,
        # Those that wait for a permit are not due at any instant: more workers would not help them.
        due_soon=int(due_soon),
        in_per_s=0.0 if pace is None else pace.in_per_s,
        run_s=_mean_run_s(blocks),
    )


def _mean_run_s(blocks: Sequence[RawReply]) -> float | None:
    runs_ms: list[float] = []
    for _, fields in blocks:
        with suppress(ValueError):  # an entry of another kind, or of a later version
            runs_ms += runs_in_block(dict(zip(fields[::2], fields[1::2], strict=True)))
        if len(runs_ms) >= _MOST_RUNS:
            break
    return sum(runs_ms) / len(runs_ms) / 1000 if runs_ms else None


def _number(query: Mapping[str, str], name: str, default: float, lowest: float, highest: float) -> float:
    text = query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not lowest <= value <= highest:
        raise InvalidArgument(
            f"{name}: got {text[:40]!r}; accepted: a number from {lowest:g} to {highest:g}"
        )
    return value
