"""How long messages waited lately, from the events of a queue: for people, not for the hot path."""

from __future__ import annotations

import math
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mqworker.model.event import IDS, SUCCEEDED, decode_block
from mqworker.queues.work.queue import WorkQueue

_ENTRIES = 50
_NO_RUNS = {b"n", b"v", IDS.encode()}
_P95 = 0.95


@dataclass(frozen=True, slots=True)
class Waits:
    """Of the latest runs: how many, and how long all but the slowest twentieth waited and ran."""

    runs: int
    wait_p95_ms: float
    run_p95_ms: float


def recent_waits(queue: WorkQueue) -> Waits | None:
    """From the last few entries of the stream; None when no task ran lately.

    Only first attempts count: a retry waits on purpose.
    """
    keys = queue.calls.keys
    entries = queue.store.read([("XREVRANGE", keys.events, "+", "-", "COUNT", _ENTRIES)], keys.meta)[0]
    events: list[dict[str, Any]] = []  # Any: as an event's line of JSON has them
    for entry in entries if isinstance(entries, list) else []:
        events += _first_runs(entry)
    if not events:
        return None
    return Waits(
        len(events), _p95([event["wait_ms"] for event in events]), _p95([event["run_ms"] for event in events])
    )


def _first_runs(entry: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - the shape of XREVRANGE's reply
    fields = dict(zip(entry[1][::2], entry[1][1::2], strict=True))
    found: list[dict[str, Any]] = []
    for codec in fields.keys() - _NO_RUNS:
        with suppress(KeyError, ValueError, zlib.error):  # an entry of another kind, or of a later version
            found += decode_block(codec.decode(), fields[codec])
    return [
        event
        for event in found
        if event.get("event") == SUCCEEDED and event.get("attempt") == 1 and "wait_ms" in event
    ]


def _p95(values: list[float]) -> float:
    return sorted(values)[math.ceil(_P95 * len(values)) - 1]
