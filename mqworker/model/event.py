"""Events: facts about messages, in the past tense, and the blocks in which they travel.

A block says nothing of what the entry around it says already (the queue by the name of the stream, the time
by the id of the entry). It is newline JSON, one event a line; for what is written for each task, enqueued and
succeeded, there are shorter forms. Above a few hundred bytes it is compressed: zlib level 1 takes about a
quarter of the memory.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never, cast

from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.message import Message
from mqworker.model.settlement import (
    Ack,
    Bury,
    Crash,
    Failure,
    Park,
    Release,
    RetryAt,
    Run,
    Settlement,
    Suspect,
)

ENQUEUED: Final = "enqueued"
SUCCEEDED: Final = "succeeded"
RETRIED: Final = "retried"
RELEASED: Final = "released"
PARKED: Final = "parked"
CRASHED: Final = "crashed"
BURIED: Final = "buried"
RECLAIMED: Final = "reclaimed"
EXPIRED: Final = "expired"
CANCELLED: Final = "cancelled"
REVIVED: Final = "revived"
PURGED: Final = "purged"
CLOSED: Final = "closed"
"""A key starts nothing for a while; the text says which and why."""
OPENED: Final = "opened"

IDS: Final = "e"
"""Messages of one task were enqueued: its name and their ids, with spaces between. Most blocks are that."""
PLAIN: Final = "j"
COMPRESSED: Final = "z"
COLUMNS: Final = "s"
"""Runs that succeeded, as `encode_columns` writes them."""
COMPRESSED_COLUMNS: Final = "c"

_COMPRESS_FROM_BYTES = 400
_LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Block:
    """Events of one batch, ready to be appended to a stream."""

    codec: str
    data: bytes


def enqueued_block(messages: Sequence[Message]) -> Block:
    """One `enqueued` event for each message."""
    task = messages[0].task
    ids = [message.id for message in messages if message.task == task]
    if len(ids) == len(messages):
        return Block(IDS, f"{task} {' '.join(ids)}".encode())
    # Ids and task names were checked: they hold nothing that JSON would escape.
    lines = [f'{{"event":"{ENQUEUED}","task_id":"{m.id}","task":"{m.task}"}}' for m in messages]
    return encode_block(lines)


def settled_block(settlements: Sequence[Settlement]) -> Block:
    """One event for each settlement, with all its times, so that a report needs no join."""
    runs = [
        settlement.run
        for settlement in settlements
        if type(settlement) is Ack
        and settlement.run
        and settlement.delivery.deadline_at_ms is None
        and not settlement.delivery.tags
    ]
    if runs and len(runs) == len(settlements):
        return _block(COLUMNS, COMPRESSED_COLUMNS, encode_columns(cast("Sequence[Ack]", settlements), runs))
    return encode_block([settled_line(settlement) for settlement in settlements])


def settled_line(settlement: Settlement) -> str:
    """The event of one settlement as a line of JSON."""
    match settlement:
        case Ack(delivery, _, run):
            return _line(SUCCEEDED, delivery, run)
        case RetryAt(delivery, _, failure, run):
            return _line(RETRIED, delivery, run, failure)
        case Release(delivery) | Suspect(delivery):
            return _line(RELEASED, delivery, None, _suspicion(settlement))
        case Park(delivery, _, failure):
            return _line(PARKED, delivery, None, failure)
        case Crash(delivery):
            return _line(CRASHED, delivery, None)
        case Bury():
            return _buried_line(settlement)
        case _:
            assert_never(settlement)


def encode_block(lines: Sequence[str]) -> Block:
    """Lines of JSON as a block."""
    return _block(PLAIN, COMPRESSED, "\n".join(lines).encode())


def expand(codec: str, data: bytes) -> bytes:
    """The text of a block, without its compression."""
    return zlib.decompress(data) if codec in {COMPRESSED, COMPRESSED_COLUMNS} else data


def decode_block(codec: str, data: bytes, void: frozenset[int] = frozenset()) -> list[dict[str, Any]]:
    """The events of a block, without those at the void positions, which did not happen after all."""
    text = expand(codec, data)
    if codec == IDS:
        task, *ids = text.decode().split(" ")
        events: list[dict[str, Any]] = [{"event": ENQUEUED, "task_id": each, "task": task} for each in ids]
    elif codec in {COLUMNS, COMPRESSED_COLUMNS}:
        events = decode_columns(text)
    else:
        events = [json.loads(line) for line in text.split(b"\n")]
    return [event for position, event in enumerate(events) if position not in void]


def _block(plain: str, compressed: str, data: bytes) -> Block:
    """Short ones stay plain, for compression would cost more than it saves."""
    if len(data) < _COMPRESS_FROM_BYTES:
        return Block(plain, data)
    return Block(compressed, zlib.compress(data, 1))


def _buried_line(settlement: Bury) -> str:
    delivery, reason = settlement.delivery, settlement.reason
    if isinstance(delivery, UnreadableDelivery):
        return f'{{"event":"{BURIED}","task_id":"unreadable-{delivery.fence}","error":{json.dumps(reason)}}}'
    return _line(BURIED, delivery, settlement.run, settlement.failure or Failure(reason))


def _suspicion(settlement: Release | Suspect) -> Failure | None:
    if isinstance(settlement, Release):
        return None
    told = f"its worker died while it ran there beside others ({settlement.cause}); next time it runs alone"
    return Failure("WorkerLost", told)


def _line(event: str, delivery: Delivery, run: Run | None, failure: Failure | None = None) -> str:
    line = (
        f'{{"event":"{event}","task_id":"{delivery.id}","task":"{delivery.task}",'
        f'"attempt":{delivery.deliveries + 1},"enqueued_at":{delivery.enqueued_at_ms}'
    )
    if run is not None:
        line += (
            f',"worker":"{run.worker}","node":"{run.node}","started_at":{run.started_at_ms},'
            f'"wait_ms":{run.started_at_ms - delivery.enqueued_at_ms},"run_ms":{run.run_ms:.3f}'
        )
    if delivery.deadline_at_ms is not None:
        line += f',"deadline_at":{delivery.deadline_at_ms}'
    if delivery.tags:
        line += f',"tags":{json.dumps(delivery.tags)}'
    if failure is not None:
        line += (
            f',"error":{json.dumps(failure.error)},"error_msg":{json.dumps(failure.message[:_LONGEST_TEXT])}'
        )
    return line + "}"


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
    """The events in columns; raises ValueError when the bytes are not a block."""
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
