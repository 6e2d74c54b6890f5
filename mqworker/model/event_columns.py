"""Columns: how the events of runs that succeeded travel, which nearly all events are.

Lines of text with spaces between the values, most of them a column: written and read in a few steps for a
whole batch, and a fourth of the bytes that have to be compressed:

    worker, node, an instant in milliseconds | the tasks that occur | ids | for each event: which of the
    tasks (empty: the first), attempt (empty: 1), enqueued at and started at in milliseconds after the
    instant, run time in microseconds
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mqworker.model.settlement import Ack, Run

_COLUMNS = 8


def encode_columns(acks: Sequence[Ack], runs: Sequence[Run]) -> bytes:
    """The columns of deliveries that were run by one worker; `runs` belong to them one by one."""
    deliveries = [ack.delivery for ack in acks]
    tasks = [delivery.task for delivery in deliveries]
    distinct = list(dict.fromkeys(tasks))
    instant = runs[0].started_at_ms
    return "\n".join(
        (
            f"{runs[0].worker} {runs[0].node} {instant}",
            " ".join(distinct),
            " ".join([delivery.id for delivery in deliveries]),
            " ".join([str(distinct.index(task)) for task in tasks]) if len(distinct) > 1 else "",
            _attempts([delivery.deliveries for delivery in deliveries]),
            " ".join([str(delivery.enqueued_at_ms - instant) for delivery in deliveries]),
            " ".join([str(run.started_at_ms - instant) for run in runs]),
            " ".join(["%.0f" % (run.run_ms * 1000) for run in runs]),
        )
    ).encode()


def decode_columns(data: bytes) -> list[dict[str, Any]]:
    """The events in columns; raises ValueError when the bytes are none."""
    lines = data.decode().split("\n")
    if len(lines) != _COLUMNS:
        raise ValueError(f"{len(lines)} columns of events; accepted are {_COLUMNS}")
    worker, node, instant = lines[0].split(" ")
    at_ms = int(instant)
    tasks, ids = lines[1].split(" "), lines[2].split(" ")
    which = _numbers(lines[3]) or [0] * len(ids)
    attempts = _numbers(lines[4]) or [1] * len(ids)
    times = zip(ids, which, attempts, *map(_numbers, lines[5:]), strict=True)
    return [
        {
            "event": "succeeded",
            "task_id": task_id,
            "task": tasks[task],
            "attempt": attempt,
            "enqueued_at": at_ms + enqueued_at,
            "worker": worker,
            "node": node,
            "started_at": at_ms + started_at,
            "wait_ms": started_at - enqueued_at,
            "run_ms": run_us / 1000,
        }
        for task_id, task, attempt, enqueued_at, started_at, run_us in times
    ]


def _attempts(deliveries: Sequence[int]) -> str:
    if not any(deliveries):
        return ""  # the first attempt of all of them
    return " ".join([str(earlier + 1) for earlier in deliveries])


def _numbers(column: str) -> list[int]:
    return [int(each) for each in column.split(" ")] if column else []
