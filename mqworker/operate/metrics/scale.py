"""How many workers a queue wants, for an autoscaler such as KEDA: its work now and soon, and how it is done.

    workers = run time * (arrivals a second + work / target wait) / slots of a worker, rounded up

Work that keeps coming needs so many workers to keep pace; what waits needs the rest to be begun within the
target. The run time is the mean of the last quarters of an hour, of all nodes (queues/work/figures.py). Where
nothing ran yet, one worker is wanted as soon as there is work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqworker.errors import InvalidArgument, StoreRefused
from mqworker.model.names import QueueName, queue_name
from mqworker.model.view import QueueView
from mqworker.queues.work.figures import QUARTERS, read_figures
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.queues.work.snapshots import read_queues
from mqworker.store.script import RawReply
from mqworker.store.store import Store

TARGET_WAIT_S, SOON_S = 10.0, 30.0
HOUR_S = 3_600.0
MOST_WORKERS = 100_000


@dataclass(frozen=True, slots=True)
class ScaleQuestion:
    """What an autoscaler may choose."""

    queue: str
    target_wait_s: float = TARGET_WAIT_S
    """How long a message should wait at the most."""
    soon_s: float = SOON_S
    """Delayed messages that are due within so long count as work: about what a new worker takes to start."""
    slots: int = 1
    """How many runs a worker has at once: its threads, or its concurrency if the tasks are async."""

    @classmethod
    def of(cls, queue: str, query: Mapping[str, str]) -> ScaleQuestion:
        """From a path and a query string; raises InvalidArgument."""
        queue = queue_name(queue)
        unknown = sorted(query.keys() - {"target_wait_s", "soon_s", "slots"})
        if unknown:
            raise InvalidArgument(
                f"{unknown[0][:40]!r} is unknown; accepted are target_wait_s, soon_s, slots"
            )
        return cls(
            queue,
            _number(query, "target_wait_s", TARGET_WAIT_S, 0.1, HOUR_S),
            _number(query, "soon_s", SOON_S, 0.0, HOUR_S),
            int(_number(query, "slots", 1, 1, 10_000)),
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
    slots = work.run_s * (work.in_per_s + waiting / question.target_wait_s)
    wanted = math.ceil(round(slots / question.slots, 6))
    return max(1 if messages else 0, min(wanted, MOST_WORKERS))


def read_scale(store: Store, namespace: str, question: ScaleQuestion) -> dict[str, Any]:
    """The document for one queue; a queue that was never used has no work."""
    view = read_queues(store, namespace, [question.queue])[0]
    if view.trouble is not None:
        raise StoreRefused(view.trouble)
    work = _work(store, namespace, view, question)
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


def _work(store: Store, namespace: str, view: QueueView, question: ScaleQuestion) -> Work:
    delayed = WorkQueueKeys.of(namespace, QueueName(question.queue)).named("delayed")
    reply: RawReply = store.send([("TIME",)], delayed)[0]
    now_ms = int(reply[0]) * 1000 + int(reply[1]) // 1000
    # Those that wait for a permit are due at no instant: more workers would not help them.
    due: RawReply = store.send([("ZCOUNT", delayed, "-inf", now_ms + int(question.soon_s * 1000))], delayed)[
        0
    ]
    return Work(
        ready=view.ready,
        held=view.leased,
        due_soon=int(due),
        in_per_s=0.0 if view.throughput is None else view.throughput.in_per_s,
        run_s=_mean_run_s(store, namespace, view.name, now_ms),
    )


def _mean_run_s(store: Store, namespace: str, queue: str, now_ms: int) -> float | None:
    newest = QUARTERS.number(now_ms)
    figures = [
        task
        for stretch in read_figures(store, namespace, QUARTERS, [newest - 1, newest])
        for (name, _), task in stretch.by_task.items()
        if name == queue
    ]
    count = sum(sum(task.runs.values()) for task in figures)
    return sum(task.run_sum_ms for task in figures) / count / 1000 if count else None


def _number(query: Mapping[str, str], name: str, default: float, lowest: float, highest: float) -> float:
    text = query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not lowest <= value <= highest:
        raise InvalidArgument(f"{name}: got {text[:40]!r}; accepted: a number from {lowest:g} to {highest:g}")
    return value
