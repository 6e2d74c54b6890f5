"""Samples: a queue's counters second by second, kept in Redis so that `status` knows rates at a glance.

    samples   list   'at_ms entered left buried', the newest first; written by any node's heartbeat reaper

Any number of nodes may call this every second: the first one in a second writes, on the server's clock.
"""

from __future__ import annotations

from mqworker.model.throughput import Sample
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.script import Call, scripts_of

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
