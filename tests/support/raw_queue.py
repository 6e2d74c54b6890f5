"""A work queue's keys as they lie in Redis: read without our own code, and aged so that no test waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import redis

from mqworker.queues.work.keys import WorkQueueKeys

LONG_AGO_MS = 1_000_000_000_000

Value: TypeAlias = Any
"""A key's value as redis-py gives it: bytes, a list, a set or a dict."""

_READ_BY_TYPE: dict[bytes, Callable[[Any, bytes], object]] = {
    b"string": lambda pipe, name: pipe.get(name),
    b"hash": lambda pipe, name: pipe.hgetall(name),
    b"list": lambda pipe, name: pipe.lrange(name, 0, -1),
    b"set": lambda pipe, name: pipe.smembers(name),
    b"zset": lambda pipe, name: pipe.zrange(name, 0, -1, withscores=True),
    b"stream": lambda pipe, name: pipe.xrange(name),
}


@dataclass
class RawState:
    """Everything there is, decoded only as far as Redis itself goes."""

    meta: dict[bytes, bytes]
    ready: list[bytes]
    urgent: list[tuple[bytes, float]]
    delayed: list[tuple[bytes, float]]
    parcels: dict[bytes, bytes]
    leases: list[bytes]
    deadlines: dict[bytes, float]
    guards: dict[bytes, bytes]
    dead: list[bytes]
    letters: dict[bytes, bytes]
    results: dict[bytes, bytes]
    consumers: list[bytes]
    delivered: list[bytes]
    popped: dict[bytes, bytes]
    held: list[dict[bytes, bytes]]
    """What each of the consumers holds that were asked for, in that order."""


class RawQueue:
    """One queue on one server."""

    def __init__(self, client: redis.Redis, keys: WorkQueueKeys) -> None:
        self.client: Any = client  # redis-py types every reply as maybe awaitable
        self.keys = keys

    def key(self, name: str) -> str:
        """One of the queue's keys by its last part."""
        return self.keys.named(name)

    def read(self, *consumers: str) -> RawState:
        """All keys in one transaction; of the held ones, those without a consumer and those named."""
        pipe = self.client.pipeline(transaction=True)
        pipe.hgetall(self.key("meta"))
        pipe.lrange(self.key("ready"), 0, -1)
        pipe.zrange(self.key("urgent"), 0, -1, withscores=True)
        pipe.zrange(self.key("delayed"), 0, -1, withscores=True)
        pipe.hgetall(self.key("parcels"))
        pipe.zrange(self.key("leases"), 0, -1)
        pipe.zrange(self.key("deadlines"), 0, -1, withscores=True)
        for name, command in [
            ("guards", "HGETALL"),
            ("dead", "ZRANGE"),
            ("letters", "HGETALL"),
            ("results", "HGETALL"),
            ("consumers", "ZRANGE"),
            ("delivered", "ZRANGE"),
            ("popped", "HGETALL"),
        ]:
            if command == "HGETALL":
                pipe.hgetall(self.key(name))
            else:
                pipe.zrange(self.key(name), 0, -1)
        for consumer in ("", *consumers):
            pipe.hgetall(self.key(f"held:{consumer}"))
        replies = pipe.execute()
        replies[6] = dict(replies[6])
        return RawState(*replies[:14], held=replies[14:])

    def dump(self) -> dict[bytes, Value]:
        """Every key of the server with its value: equal dumps mean that nothing changed.

        Not Redis's own DUMP: that shows the order inside a hash table, which changes while it is resized.
        """
        names = sorted(self.client.keys("*"))
        pipe = self.client.pipeline(transaction=True)
        for name in names:
            pipe.type(name)
        kinds = pipe.execute()
        for name, kind in zip(names, kinds, strict=True):
            _READ_BY_TYPE[kind](pipe, name)
        return dict(zip(names, pipe.execute(), strict=True))

    def dump_without_calls(self) -> dict[bytes, Value]:
        """The dump without what is remembered of calls, which a call that does nothing changes too."""
        dump, meta = self.dump(), self.key("meta").encode()
        if isinstance(dump.get(meta), dict):
            dump[meta] = {name: value for name, value in dump[meta].items() if name[:1] != b"@"}
        return dump

    def end_lease(self, fence: int) -> None:
        """Let a lease be over."""
        self.client.zadd(self.key("leases"), {str(fence): LONG_AGO_MS}, xx=True)

    def end_delay(self, message: str, order: int) -> None:
        """Let a delayed message be due."""
        self.client.zadd(self.key("delayed"), {message: LONG_AGO_MS + order}, xx=True)

    def end_guard(self, key: str) -> None:
        """Let the window or the time of a guard be over."""
        holder = self.client.hget(self.key("guards"), key).split(b" ")[0]
        self.client.hset(self.key("guards"), key, b"%b %d" % (holder, LONG_AGO_MS))

    def pass_deadline(self, message: str, order: int) -> None:
        """Let the deadline of a waiting message pass: in its record, and where deadlines are watched."""
        watched = b"%d" % int(self.client.zscore(self.key("deadlines"), message))
        passed = b"%d" % (LONG_AGO_MS + order)
        self.client.zadd(self.key("deadlines"), {message: int(passed)}, xx=True)
        head = message.encode() + b" "

        def aged(record: bytes) -> bytes | None:
            if record[25:].startswith(head) and b" %b " % watched in record:
                return record.replace(b" %b " % watched, b" %b " % passed, 1)
            return None

        for position, record in enumerate(self.client.lrange(self.key("ready"), 0, -1)):
            if new := aged(record):
                self.client.lset(self.key("ready"), position, new)
        for record, score in self.client.zrange(self.key("urgent"), 0, -1, withscores=True):
            if new := aged(record):
                self.client.zrem(self.key("urgent"), record)
                self.client.zadd(self.key("urgent"), {new: score})
        for name, record in self.client.hgetall(self.key("parcels")).items():
            if new := aged(record):
                self.client.hset(self.key("parcels"), name, new)
