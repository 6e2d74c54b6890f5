"""Producers, movers, nodes and servers are killed at any moment: each commit runs, nothing else, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.exc import SQLAlchemyError

from mqworker.model.names import queue_name
from tests.support.deadline import wait_until
from tests.support.ledger import read_ledger
from tests.support.node_process import ROOT, NodeProcess
from tests.support.real_server import RealServer
from tests.support.sql_connections import end_connections
from tests.system.model_sites import DatabaseOf, database_of, mariadb, postgres
from tests.system.outbox_app import LEDGER_VARIABLE, ORDERS, QUEUES

__all__ = ["database_of", "mariadb", "postgres"]  # fixtures

DEADLINE_S = 90.0
STRIKES = 14


class Shop:
    """A database, a Redis that syncs every write, two nodes and a producer."""

    def __init__(self, folder: Path, url: str, server: RealServer, *, nodes: int = 2) -> None:
        self.folder, self.url, self.server = folder, url, server
        self.ledger = folder / "ledger"
        self.ledger.mkdir()
        self.nodes = [self._node(f"n{number}") for number in range(nodes)]
        self._producer: subprocess.Popen[bytes] | None = None
        self.engine = create_engine(url)

    def _environment(self, name: str) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": str(ROOT),
            "MQWORKER_REDIS_URL": self.server.url,
            "MQWORKER_OUTBOX_URL": self.url,
            "MQWORKER_OUTBOX_KEEP_S": "2",
            "MQWORKER_NODE": name,
            "MQWORKER_WORKERS": "1",
            "MQWORKER_DATA_DIR": str(self.folder / name),
            "MQWORKER_QUEUES": ",".join(QUEUES),
            LEDGER_VARIABLE: str(self.ledger),
        }

    def _node(self, name: str) -> NodeProcess:
        command = [sys.executable, "-m", "tests.support.patient_node", "--quick-pings"]
        return NodeProcess(
            [*command, "tests.system.outbox_app:app"],
            self._environment(name),
            log_path=self.folder / f"{name}.log",
            data_dir=self.folder / name,
        )

    def start(self) -> None:
        self.start_producer()
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_complete(DEADLINE_S)

    def start_producer(self, pause_s: float = 0.01) -> None:
        self.kill_producer()
        with (self.folder / "producer.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.system.outbox_app", self.url, str(pause_s)]
            environment = self._environment("producer")
            self._producer = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def kill_producer(self) -> None:
        if self._producer is not None:
            self._producer.kill()
            self._producer.wait()

    def goes_on(self, count: int) -> bool:
        """Whether so many orders are committed; a producer whose connection was cut is started anew."""
        if self._producer is None or self._producer.poll() is not None:
            self.start_producer()
        return len(self.committed()) >= count

    def mover_pid(self, node: int) -> int | None:
        return self.nodes[node].live_children().get("outbox_mover")

    def signal_mover(self, node: int, number: signal.Signals) -> int | None:
        pid = self.mover_pid(node)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid

    def committed(self) -> set[str]:
        try:
            with self.engine.connect() as connection:
                return set(connection.execute(select(ORDERS.c.number)).scalars())
        except SQLAlchemyError:  # the producer has not made its table yet, or the connection was cut
            return set()

    def ran(self) -> Counter[str]:
        return Counter(line[1] for line in read_ledger(self.ledger) if line[0] == "ran")

    def enqueued(self) -> int:
        """As the scripts counted it."""
        with self.server.client() as redis:
            metas = [f"mqw:{{{queue_name(queue)}}}:meta" for queue in QUEUES]
            return sum(int(redis.hget(meta, "enqueued") or 0) for meta in metas)

    def outbox_facts(self, node: int) -> dict[str, object]:
        facts: dict[str, object] = self.nodes[node].child("outbox_mover").get("facts", {}).get("outbox", {})
        return facts

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mqworker", *words]
        return subprocess.run(
            command, env=self._environment("cli"), cwd=ROOT, capture_output=True, text=True, check=False
        )

    def close(self) -> None:
        self.kill_producer()
        for node in self.nodes:
            if node.is_running:
                node.kill()
        self.engine.dispose()


@pytest.fixture
def server() -> Iterator[RealServer]:
    """A Redis of this test's."""
    with RealServer(aof="always") as running:
        yield running


@pytest.fixture
def open_shop(server: RealServer, tmp_path: Path, database_of: DatabaseOf) -> Iterator[Callable[..., Shop]]:
    """Makes shops on a database of a kind."""
    with ExitStack() as shops:

        def opened(kind: str, *, nodes: int = 2) -> Shop:
            shop = Shop(tmp_path, database_of(kind) or "", server, nodes=nodes)
            shops.callback(shop.close)
            return shop

        yield opened


def strikes(shop: Shop, kind: str, chance: random.Random) -> list[Callable[[], object]]:
    """What may happen at any moment."""

    def kill_server() -> None:
        shop.server.kill()
        shop.server.start()

    def stop_mover() -> None:
        number = chance.randrange(2)
        pid = shop.signal_mover(number, signal.SIGSTOP)
        time.sleep(chance.uniform(0.5, 2.0))
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill_node() -> None:
        node = shop.nodes[chance.randrange(2)]
        node.kill()
        node.start()

    found: list[Callable[[], object]] = [
        lambda: shop.signal_mover(0, signal.SIGKILL),
        lambda: shop.signal_mover(1, signal.SIGKILL),
        shop.start_producer,
        kill_server,
        stop_mover,
        kill_node,
    ]
    return found if kind == "sqlite" else [*found, lambda: end_connections(shop.url)]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_commits_are_runs_whoever_is_killed(kind: str, open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(kind)
    shop.start()
    wait_until(lambda: len(shop.ran()) > 20, "orders run", DEADLINE_S)
    chance = random.Random(44)  # noqa: S311 - the same strikes each time

    for _ in range(STRIKES):
        chance.choice(strikes(shop, kind, chance))()
        before = len(shop.committed())
        wait_until(lambda before=before: shop.goes_on(before + 3), "orders are committed", DEADLINE_S)
    shop.kill_producer()

    committed = shop.committed()
    wait_until(lambda: committed <= set(shop.ran()), "all orders ran", DEADLINE_S)
    assert set(shop.ran()) == committed
    assert shop.enqueued() == len(committed)
    assert len(committed) > 3 * STRIKES


def test_status_doctor_and_metrics_tell_of_an_outbox_whose_database_is_away(
    open_shop: Callable[..., Shop],
) -> None:
    shop = open_shop("sqlite", nodes=1)
    shop.start()
    wait_until(lambda: shop.outbox_facts(0).get("trouble") == "", "the mover works", DEADLINE_S)
    wait_until(lambda: len(shop.ran()) > 5, "orders run", DEADLINE_S)
    healthy = shop.cli("status", "--json")
    shop.kill_producer()
    shop.engine.dispose()
    for name in ("line.db", "line.db-wal", "line.db-shm"):
        (shop.folder / name).unlink(missing_ok=True)
    (shop.folder / "line.db").mkdir()
    shop.signal_mover(0, signal.SIGKILL)

    wait_until(lambda: "database" in str(shop.outbox_facts(0).get("trouble")), "it says so", DEADLINE_S)
    wait_until(lambda: shop.cli("status").returncode == 1, "status says so", DEADLINE_S)
    told = shop.cli("status").stdout

    assert json.loads(healthy.stdout)["nodes"]
    assert "outbox_mover of node n0 cannot move the outbox" in " ".join(told.split())
    assert "outbox" in shop.cli("doctor").stdout


def test_the_other_node_takes_over_when_a_mover_stands_still(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop("postgres")
    shop.start()
    wait_until(lambda: len(shop.ran()) > 5, "orders run", DEADLINE_S)
    moving = next(number for number in range(2) if shop.outbox_facts(number).get("is_standby") is False)

    pid = shop.signal_mover(moving, signal.SIGSTOP)
    assert pid is not None
    before = len(shop.ran())
    wait_until(lambda: len(shop.ran()) > before + 20, "the other one moves", DEADLINE_S)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    shop.kill_producer()

    committed = shop.committed()
    wait_until(lambda: committed <= set(shop.ran()), "all orders ran", DEADLINE_S)
    assert shop.enqueued() == len(committed)
