"""gq on PostgreSQL beside procrastinate on the same server: calls stored, and calls run by two workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, reload
from pathlib import Path
from typing import Any

from benchmarks.environments import Environment, PeerUnavailable, prepare
from benchmarks.peer import Peer
from benchmarks.private_server import private_server
from benchmarks.rounds import interleave, rate
from benchmarks.table import heading, row
from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.rules import GqStatus
from mqworker.settings import Settings
from tests.support.real_postgres import RealPostgres, postgres_folder

PROCRASTINATE = Peer(
    "procrastinate",
    "procrastinate",
    "procrastinate_gq.py",
    ("procrastinate==3.10.0", "psycopg[binary]==3.3.8"),
)
PROGRAM = Path(__file__).parent / "peers" / PROCRASTINATE.adapter
SINGLES = 500
BULK = 10_000
BATCH = 500
DRAIN = 4_000
WORKERS = 2
CONCURRENCY = 10  # of each procrastinate worker; more of them make it no quicker


class Theirs:
    """procrastinate, each command in a process of its own."""

    def __init__(self, environment: Environment, new_database: Callable[[], str]) -> None:
        self._environment = environment
        self._new_database = new_database

    def singles(self) -> float:
        """One call after the other."""
        return SINGLES / self._run(self._database(), "singles", SINGLES)

    def batches(self) -> float:
        """Many in one statement."""
        return BULK / self._run(self._database(), "batches", BULK, BATCH)

    def drain(self) -> float:
        """Two workers on a full queue; the slower one counts."""
        address = self._database()
        self._run(address, "batches", DRAIN, BATCH)
        workers = [self._start(address, "drain", CONCURRENCY) for _ in range(WORKERS)]
        return DRAIN / max(float(worker.communicate()[0]) for worker in workers)

    def _database(self) -> str:
        address = self._new_database().replace("postgresql+psycopg", "postgresql")
        self._start(address, "setup").communicate()
        return address

    def _run(self, address: str, command: str, *numbers: int) -> float:
        return float(self._start(address, command, *numbers).communicate()[0])

    def _start(self, address: str, command: str, *numbers: int) -> subprocess.Popen[str]:
        words = [self._environment.interpreter, str(PROGRAM), address, command, *map(str, numbers)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


class Ours:
    """mqworker, as users write it."""

    def __init__(self, redis_url: str, new_database: Callable[[], str]) -> None:
        self._redis_url = redis_url
        self._new_database = new_database

    def singles(self) -> float:
        """One call after the other."""
        with self._tasks() as (nothing, _):
            nothing.enqueue(0)
            return rate(SINGLES, lambda: [nothing.enqueue(number) for number in range(SINGLES)])

    def batches(self) -> float:
        """Many at once."""
        with self._tasks() as (nothing, _):
            nothing.enqueue(0)
            calls = [(number,) for number in range(BATCH)]
            return rate(BULK, lambda: [nothing.enqueue_many(calls) for _ in range(BULK // BATCH)])

    def drain(self) -> float:
        """A node with two workers on a full queue, from the first done to the last."""
        with self._tasks() as (nothing, url):
            nothing.enqueue_many([(number,) for number in range(DRAIN)])
            client = GqClient.on_sql("bench", url)
            node = self._start_node()
            try:
                return _pace(client)
            finally:
                node.send_signal(signal.SIGTERM)
                node.wait()
                client.close()

    # Any: a module that is loaded anew for each round.
    @contextmanager
    def _tasks(self) -> Iterator[tuple[Any, str]]:
        url = os.environ["MQW_BENCH_DATABASE"] = self._new_database()
        tasks = reload(import_module("benchmarks.bench_gq_tasks"))  # a new app on a new database
        tasks.app.adopt(Settings(redis_url=self._redis_url))
        yield tasks.nothing, url
        tasks.app.close()

    def _start_node(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mqworker",
                "run",
                "benchmarks.bench_gq_tasks:app",
                "--workers",
                str(WORKERS),
            ],
            env={**os.environ, "MQWORKER_REDIS_URL": self._redis_url},
            stderr=subprocess.DEVNULL,
        )


def _pace(client: GqClient) -> float:
    began: tuple[float, int] | None = None
    while True:
        done = client.counts()[GqStatus.PROCESSED]
        if began is None and done:
            began = (time.perf_counter(), done)
        if began is not None and done == DRAIN:
            return (DRAIN - began[1]) / (time.perf_counter() - began[0])
        time.sleep(0.02)


def run(rounds: int) -> None:
    """Print the table of this benchmark."""
    if postgres_folder() is None:
        print("gq: skipped, no initdb on the PATH or below /usr/lib/postgresql")
        return
    try:
        environment = prepare(PROCRASTINATE)
    except PeerUnavailable as reason:
        print(f"gq: {reason}")
        return
    with RealPostgres() as postgres, private_server(aof=False) as redis_url:
        theirs, ours = Theirs(environment, postgres.new_database), Ours(redis_url, postgres.new_database)
        for title, name in (
            ("enqueued one by one", "singles"),
            (f"enqueued {BATCH} at once", "batches"),
            (f"run by {WORKERS} workers", "drain"),
        ):
            contest = {"procrastinate": getattr(theirs, name), "mqworker, gq": getattr(ours, name)}
            figures = interleave(contest, rounds)
            heading(f"PostgreSQL: calls {title} per second, median (range) of {rounds} rounds")
            peer, own = figures.values()
            row(peer.name, peer.spread)
            row(own.name, own.spread, f"{own.ratio_to(peer):.1f} times procrastinate")
