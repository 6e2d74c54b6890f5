"""The work queue beside raw redis-py on the same server: enqueue, claim + settle, memory, cost by length."""

from __future__ import annotations

from functools import partial
from typing import cast

import redis

from benchmarks.private_server import private_server
from benchmarks.rounds import interleave, rate
from benchmarks.table import heading, row
from mqworker.model.clock import SystemClock
from mqworker.model.message import Message
from mqworker.model.message_id import MessageIdSource
from mqworker.model.names import ConsumerName, TaskName
from mqworker.model.settlement import Ack
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store

BODY = b"x" * 100
TASK = TaskName("bench.task")
NODE = ConsumerName("bench")
BATCH = 100
SINGLES = 3_000
BULK = 30_000


class StoreBench:
    """One server, one queue of ours, one list of raw redis-py."""

    def __init__(self, url: str) -> None:
        self.raw = redis.Redis.from_url(url)
        connection = open_connection(
            parse_address(url), connect_timeout_s=2, read_timeout_s=30, client_name="bench"
        )
        self.queue = WorkQueue("bench", Store(connection))
        self._ids = MessageIdSource(SystemClock().now_ms)

    def messages(self, count: int) -> list[Message]:
        """Fresh messages with a body of a hundred bytes."""
        return [Message(self._ids.next(), BODY, TASK) for _ in range(count)]

    def raw_single(self) -> float:
        """RPUSH one by one."""
        return rate(SINGLES, lambda: [self.raw.rpush("raw", BODY) for _ in range(SINGLES)])

    def our_single(self) -> float:
        """Enqueue one by one; the messages are there, as the raw values are (see `tasks` for whole calls)."""
        messages = self.messages(SINGLES)
        return rate(SINGLES, lambda: [self.queue.enqueue(message) for message in messages])

    def raw_batch(self) -> float:
        """RPUSH of a hundred."""
        return rate(BULK, lambda: [self.raw.rpush("raw", *[BODY] * BATCH) for _ in range(BULK // BATCH)])

    def our_batch(self) -> float:
        """Enqueue of a hundred; the messages are there, as the raw values are."""
        batches = [self.messages(BATCH) for _ in range(BULK // BATCH)]
        return rate(BULK, lambda: [self.queue.enqueue(*batch) for batch in batches])

    def raw_take(self) -> float:
        """LPOP of a hundred."""
        return rate(BULK, lambda: [self.raw.lpop("raw", BATCH) for _ in range(BULK // BATCH)])

    def our_take(self) -> float:
        """Claim and settle of a hundred, one round trip for both as the dispatcher does it."""
        return rate(BULK, lambda: self.drain(BULK // BATCH))

    def drain(self, turns: int) -> None:
        """Claim and settle so many batches."""
        calls, store = self.queue.calls, self.queue.store
        deliveries = store.run(calls.claim(BATCH, NODE, 1))
        for _ in range(turns):
            acks = [Ack(delivery) for delivery in deliveries]
            _, deliveries = store.run_together([calls.settle(acks, NODE), calls.claim(BATCH, NODE, 1)])
        if deliveries:
            store.run(calls.settle([Ack(delivery) for delivery in deliveries], NODE))

    def used_memory(self) -> int:
        """What the server has allocated."""
        return cast("dict[str, int]", self.raw.info("memory"))["used_memory"]

    def clear(self) -> None:
        """An empty server."""
        self.raw.execute_command("FLUSHALL", "SYNC")


def run(rounds: int) -> None:
    """Print the tables of this benchmark."""
    for aof in (False, True):
        with private_server(aof=aof) as url:
            _compare(StoreBench(url), rounds, "AOF everysec, as embedded" if aof else "no persistence")
    with private_server(aof=False) as url:
        _memory(StoreBench(url))
        _cost_by_length(StoreBench(url))


def _compare(bench: StoreBench, rounds: int, server: str) -> None:
    figures = interleave(
        {
            "RPUSH, one": bench.raw_single,
            "enqueue, one": bench.our_single,
            "RPUSH, batches of 100": bench.raw_batch,
            "enqueue, batches of 100": bench.our_batch,
            "LPOP, batches of 100": bench.raw_take,
            "claim + settle, batches of 100": bench.our_take,
        },
        rounds,
    )
    heading(f"Store: messages per second, median (range) of {rounds} rounds; server: {server}")
    series = list(figures.values())
    for raw, ours in zip(series[::2], series[1::2], strict=True):
        row(raw.name, raw.spread)
        row(ours.name, ours.spread, f"{ours.ratio_to(raw):.0%} of raw")


def _memory(bench: StoreBench) -> None:
    bench.clear()
    before, count = bench.used_memory(), 100_000
    for _ in range(count // 1000):
        bench.queue.enqueue(*bench.messages(1000))
    batched = (bench.used_memory() - before) / count
    bench.clear()
    before = bench.used_memory()
    for _ in range(count):
        bench.queue.enqueue(*bench.messages(1))
    single = (bench.used_memory() - before) / count
    heading("Redis memory per queued message of 100 bytes, its id, header and event included")
    row("enqueued in batches of 1,000", f"{batched:.0f} bytes")
    row("enqueued one by one", f"{single:.0f} bytes")


def _cost_by_length(bench: StoreBench) -> None:
    heading("Claim + settle of 100, by the length of the queue")
    for length in (1_000, 100_000, 1_000_000, 5_000_000):
        bench.clear()
        for _ in range(length // 1000):
            bench.queue.enqueue(*bench.messages(1000))
        turns = min(length // BATCH, 300)
        row(f"{length:,} queued", f"{rate(turns * BATCH, partial(bench.drain, turns)):,.0f} per second")
