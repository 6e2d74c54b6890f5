"""Events as the scripts write them, by the thousand, without running the tasks."""

from __future__ import annotations

import redis

from mqworker.model.delivery import Delivery
from mqworker.model.event import Block, enqueued_block, settled_block
from mqworker.model.message import Message
from mqworker.model.names import MessageId, QueueName, TaskName
from mqworker.model.settlement import Ack, Bury, Failure, RetryAt, Run, Settlement
from mqworker.queues.work.keys import WorkQueueKeys, queues_key

START_MS = 1_790_000_000_000


def append_events(
    client: redis.Redis,
    queue: str,
    count: int,
    *,
    per_block: int = 500,
    namespace: str = "mqw",
    first: int = 0,
) -> int:
    """Append `count` enqueued and as many settled events; how many that makes."""
    keys = WorkQueueKeys.of(namespace, QueueName(queue))
    client.sadd(queues_key(namespace), queue)
    pipeline = client.pipeline(transaction=False)
    for begin in range(first, first + count, per_block):
        ids = [MessageId(f"{queue}-{n}") for n in range(begin, min(begin + per_block, first + count))]
        for block in (_enqueued(ids), settled_block(_settled(ids, begin))):
            pipeline.xadd(keys.events, {b"n": len(ids), block.codec.encode(): block.data})
        if begin % (per_block * 50) == 0:
            pipeline.execute()
    pipeline.execute()
    return 2 * count


def _enqueued(ids: list[MessageId]) -> Block:
    return enqueued_block([Message(each, b"", TaskName("report")) for each in ids])


def _settled(ids: list[MessageId], begin: int) -> list[Settlement]:
    """All succeeded, but in every tenth block some were retried and one was buried."""
    settlements: list[Settlement] = []
    has_failures = (begin // max(1, len(ids))) % 10 == 9
    for position, each in enumerate(ids):
        at_ms = START_MS + begin + position
        delivery = Delivery(position, each, TaskName("report"), b"", at_ms)
        run = Run("worker:0", "node-1", at_ms + position % 50, 1.0 + position % 100)
        if has_failures and position % 20 == 0:
            failure = Failure("ValueError", "no such thing", "Traceback")
            settlements.append(
                Bury(delivery, "failed", failure, run=run)
                if position == 0
                else RetryAt(delivery, failure=failure, run=run)
            )
        else:
            settlements.append(Ack(delivery, b"", run))
    return settlements


def append_block_at(client: redis.Redis, queue: str, at_ms: int, ids: list[str]) -> None:
    """Append one block of enqueued events as if it had happened then."""
    client.sadd(queues_key("mqw"), queue)
    block = _enqueued([MessageId(each) for each in ids])
    keys = WorkQueueKeys.of("mqw", QueueName(queue))
    client.xadd(keys.events, {b"n": len(ids), block.codec.encode(): block.data}, id=f"{at_ms}-0")
