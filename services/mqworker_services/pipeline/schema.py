"""The event row: one recorded fact about one message, the same in Arrow, in Spark and in the lake.

`shard`, `block` and `seq` together name a row for good: the stream of a queue, the entry in that stream, the
position in that entry. Terminal events carry all times, so that a report needs no join.
"""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = 1
"""Written to `schema_v`, so that a reader years later knows which columns to expect."""

ARROW_INSTANT: Final = pa.timestamp("us", tz="UTC")

ARROW_SCHEMA: Final = pa.schema(
    [
        ("shard", pa.int32()),
        ("block", pa.string()),
        ("seq", pa.int32()),
        ("event", pa.string()),
        ("ts", ARROW_INSTANT),
        ("task_id", pa.string()),
        ("task", pa.string()),
        ("queue", pa.string()),
        ("model", pa.string()),
        ("worker", pa.string()),
        ("node", pa.string()),
        ("attempt", pa.int32()),
        ("enqueued_at", ARROW_INSTANT),
        ("started_at", ARROW_INSTANT),
        ("wait_ms", pa.float64()),
        ("run_ms", pa.float64()),
        ("deadline_at", ARROW_INSTANT),
        ("error", pa.string()),
        ("error_msg", pa.string()),
        ("schema_v", pa.int32()),
    ]
)

QUEUE_SCHEMA: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("model", pa.string()),
        ("ready", pa.int64()),
        ("delayed", pa.int64()),
        ("leased", pa.int64()),
        ("delivered", pa.int64()),
        ("dead", pa.int64()),
        ("is_paused", pa.bool_()),
        ("length_limit", pa.int64()),
        ("enqueued_total", pa.int64()),
        ("succeeded_total", pa.int64()),
        ("retried_total", pa.int64()),
        ("buried_total", pa.int64()),
    ]
)
DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        ("task_id", pa.string()),
        ("task", pa.string()),
        ("queue", pa.string()),
        ("buried_at", ARROW_INSTANT),
        ("enqueued_at", ARROW_INSTANT),
        ("attempt", pa.int32()),
        ("reason", pa.string()),
        ("error", pa.string()),
        ("error_msg", pa.string()),
        ("traceback", pa.string()),
    ]
)

_SPARK_TYPES: Final = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    ARROW_INSTANT: "TIMESTAMP",
}


def spark_schema(schema: pa.Schema) -> str:
    """An Arrow schema in the words of Spark SQL."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)


EVENT_KEY: Final = ("shard", "block", "seq")


def shard_of(queue: str) -> int:
    """The number of a queue's stream: made from its name, so that everybody finds the same without asking."""
    return zlib.crc32(queue.encode()) & 0x7FFFFFFF
