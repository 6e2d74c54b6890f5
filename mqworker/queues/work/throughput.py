"""How busy a queue was lately: samples of its counters, and how long messages waited and ran.

Samples are kept in Redis, so that `status` knows rates at a glance:

    samples   list   'at_ms entered left buried', the newest first; written by any node's heartbeat reaper

Any number of nodes may take one every second: the first one in a second writes, on the server's clock. Waits
are read from the events of the queue: for people, not for the hot path.
"""

from __future__ import annotations

import math
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mqworker.model.event import IDS, SUCCEEDED, decode_block
from mqworker.model.throughput import Sample
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.script import Call, scripts_of

if TYPE_CHECKING:  # `status` reads samples, and must not wait for redis-py to be imported
    from mqworker.queues.work.queue import WorkQueue

script = scripts_of(__package__)

KEPT = 60
COUNTERS = ("enqueued", "revived", "succeeded", "buried", "cancelled", "expired")
"""The fields of meta that sample.lua adds up."""


def sample(keys: WorkQueueKeys) -> Call[bool]:
    """Note the counters of a queue, if it is time to; whether they were noted."""
    return Call(script("sample"), (keys.meta, keys.named("samples")), (KEPT,), bool)


def decode_sample(text: bytes) -> Sample | None:
    """A sample as it is stored; None for foreign bytes."""
    parts = text.split()
    try:
        at_ms, entered, left, buried = map(int, parts)
    except ValueError:
        return None
    return Sample(at_ms, entered, left, buried)


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
    entries = queue.store.send([("XREVRANGE", keys.events, "+", "-", "COUNT", _ENTRIES)], keys.meta)[0]
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
