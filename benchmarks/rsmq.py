"""RSMQ beside PyRSMQ on the same server and the same keys: a message sent, received and deleted."""

from __future__ import annotations

import redis
from rsmq import RedisSMQ

from benchmarks.private_server import private_server
from benchmarks.rounds import interleave, rate
from benchmarks.table import heading, row
from mqworker.queues.rsmq.client import RsmqClient
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store

BODY = "x" * 100
BATCH = 100
SINGLES = 1_500
BULK = 15_000
OURS, THEIRS = "bench-ours", "bench-theirs"


class RsmqBench:
    """One server, one queue for each client."""

    def __init__(self, url: str) -> None:
        connection = open_connection(
            parse_address(url), connect_timeout_s=2, read_timeout_s=30, client_name="bench"
        )
        self.ours = RsmqClient(Store(connection))
        self.theirs = RedisSMQ(client=redis.Redis.from_url(url), qname=THEIRS)
        for queue in (OURS, THEIRS):
            self.ours.create_queue(queue)

    def their_singles(self) -> float:
        """PyRSMQ, one after the other: it has no other way."""
        return rate(SINGLES, lambda: [self._their_turn() for _ in range(SINGLES)])

    def our_singles(self) -> float:
        """One after the other."""
        return rate(SINGLES, lambda: [self._our_turn() for _ in range(SINGLES)])

    def our_batches(self) -> float:
        """A hundred in each call."""
        return rate(BULK, lambda: [self._our_batch() for _ in range(BULK // BATCH)])

    def _their_turn(self) -> None:
        self.theirs.sendMessage().message(BODY).execute()
        received = self.theirs.receiveMessage().execute()
        self.theirs.deleteMessage(id=received["id"]).execute()

    def _our_turn(self) -> None:
        self.ours.send_message(OURS, BODY)
        received = self.ours.receive_message(OURS)
        if received is not None:
            self.ours.delete_message(OURS, received.id)

    def _our_batch(self) -> None:
        self.ours.send_messages(OURS, [BODY] * BATCH)
        received = self.ours.receive_messages(OURS, BATCH)
        self.ours.delete_messages(OURS, [message.id for message in received])


def run(rounds: int) -> None:
    """Print the table of this benchmark."""
    with private_server(aof=False) as url:
        bench = RsmqBench(url)
        figures = interleave(
            {
                "PyRSMQ, one by one": bench.their_singles,
                "mqworker, one by one": bench.our_singles,
                "mqworker, batches of 100": bench.our_batches,
            },
            rounds,
        )
    heading(f"RSMQ: messages sent, received and deleted per second, median (range) of {rounds} rounds")
    theirs, *ours = figures.values()
    row(theirs.name, theirs.spread)
    for series in ours:
        row(series.name, series.spread, f"{series.ratio_to(theirs):.1f} times PyRSMQ")
