"""What topics do, step by step: checks and batches around the calls, once for both stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mqworker.errors import ConfigurationError
from mqworker.queues.topics import arguments as accept
from mqworker.queues.topics.arguments import LARGEST_BATCH, TopicOptions
from mqworker.queues.topics.calls import Dispatched, Moved, Swept, TopicCalls, TopicRecord, foreign_key
from mqworker.store.procedure import Commands, Procedure

_LARGEST_BATCH_BYTES = 4 * 1024 * 1024
_SWEPT_AT_ONCE = 100


class TopicSteps:
    """The procedures of one prefix; they remember only that the server is not a cluster."""

    def __init__(self, options: TopicOptions) -> None:
        self.calls = TopicCalls(options)
        self._is_checked = False

    def publish(self, key: str, payloads: Sequence[bytes | str]) -> Procedure[list[str]]:
        """Publish payloads, a batch at a time."""
        accept.topic_key(key)
        checked = [accept.payload_bytes(payload) for payload in payloads]
        yield from self.refuse_cluster()
        ids: list[str] = []
        for batch in _batches(checked):
            ids += yield self.calls.publish(key, batch)
        return ids

    def subscribe(self, key: str, consumer: str, peer: str) -> Procedure[None]:
        """Let a peer listen."""
        call = self.calls.subscribe(
            accept.topic_key(key), accept.consumer_id(consumer), accept.peer_name(peer)
        )
        yield from self.refuse_cluster()
        yield call

    def unsubscribe(self, key: str, consumer: str) -> Procedure[bool]:
        """End listening for a consumer."""
        call = self.calls.unsubscribe(accept.topic_key(key), accept.consumer_id(consumer))
        yield from self.refuse_cluster()
        was_subscribed: bool = yield call
        return was_subscribed

    def observe(self, consumer: str, peer: str) -> Procedure[list[TopicRecord]]:
        """Take what is there for a peer."""
        call = self.calls.observe(accept.consumer_id(consumer), accept.peer_name(peer))
        yield from self.refuse_cluster()
        records: list[TopicRecord] = yield call
        return records

    def dispatch(self) -> Procedure[int]:
        """Move records of every topic that has listeners; trouble with one does not stop the others."""
        moves = yield from self._dispatch_all((yield from self._listened_to()))
        return sum(moved.count for moved in moves)

    def dispatch_waiting(self) -> Procedure[Dispatched]:
        """The same for those topics alone in which something waits: two round trips when there is none."""
        keys = yield from self._listened_to()
        if not keys:
            return Dispatched(0, 0, None)
        # EXISTS and not LLEN: under a key of another type the script is to say what is wrong with it.
        asked = tuple(("EXISTS", self.calls.keys.queue_of(key)) for key in keys)
        found = yield Commands(asked, self.calls.keys.subscribed)
        moves = yield from self._dispatch_all(
            [key for key, is_there in zip(keys, found, strict=True) if is_there]
        )
        waits = [moved.wait_ms for moved in moves if moved.left or moved.wait_ms]
        return Dispatched(sum(moved.count for moved in moves), len(keys), min(waits, default=None))

    def sweep(self) -> Procedure[int]:
        """Drop silent peers of all consumers; trouble with one does not stop the others."""
        yield from self.refuse_cluster()
        consumers = yield from self._members(self.calls.keys.side)
        total, problem = 0, ""
        for start in range(0, len(consumers), _SWEPT_AT_ONCE):
            swept: Swept = yield self.calls.sweep(consumers[start : start + _SWEPT_AT_ONCE])
            total += swept.count
            problem = problem or swept.problem
        if problem:
            raise foreign_key(problem)
        return total

    def refuse_cluster(self) -> Procedure[None]:
        """Ask the server once whether it is part of a cluster, where topics cannot be."""
        if self._is_checked:
            return
        told: bytes = (yield Commands((("INFO", "cluster"),), self.calls.keys.subscribed))[0]
        if b"cluster_enabled:1" in told:
            raise ConfigurationError(
                "topics need a single server, with replicas or not: their documented keys lie in different "
                "slots of a cluster, and this server is part of one"
            )
        self._is_checked = True

    def _listened_to(self) -> Procedure[list[bytes]]:
        yield from self.refuse_cluster()
        names = yield from self._members(self.calls.keys.subscribed)
        topics = (self.calls.keys.topic_of(name) for name in names)
        return [key for key in topics if key is not None]  # the others are not ours

    def _dispatch_all(self, keys: Sequence[bytes]) -> Procedure[list[Moved]]:
        moves: list[Moved] = []
        for key in keys:
            moves += [(yield from self._dispatch(key))]
        problem = next((moved.problem for moved in moves if moved.problem), "")
        if problem:
            raise foreign_key(problem)
        return moves

    def _dispatch(self, key: bytes) -> Procedure[Moved]:
        wanted = self.calls.options.dispatched_at_once
        total = 0
        while True:
            moved: Moved = yield self.calls.dispatch(key, wanted - total)
            total += moved.count
            if total == wanted or moved.left == 0:
                return replace(moved, count=total)

    def _members(self, key: str) -> Procedure[list[bytes]]:
        names: list[bytes] = (yield Commands((("SMEMBERS", key),), key))[0]
        return sorted(names)


def _batches(payloads: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    batch: list[bytes] = []
    batch_bytes = 0
    for payload in payloads:
        if batch and (len(batch) == LARGEST_BATCH or batch_bytes + len(payload) > _LARGEST_BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(payload)
        batch_bytes += len(payload)
    if batch:
        yield batch
