"""What `status` sees of a node: from the moment it says that it is ready, and whichever actor is down."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from mqworker.model.verdict import Health, judge
from mqworker.model.view import SystemView
from mqworker.queues.work.keys import SNAPSHOT_TTL_MS
from mqworker.queues.work.snapshots import read_system
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store
from tests.support.node_process import ROOT, NodeProcess
from tests.support.real_server import RealServer

DEADLINE_S = 60.0
SETTINGS = {"MQWORKER_WORKERS": "1", "MQWORKER_LOG_FORMAT": "json", "PYTHONPATH": str(ROOT)}


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def store(server: RealServer) -> Iterator[Store]:
    address = parse_address(server.url)
    opened = Store(open_connection(address, connect_timeout_s=10, read_timeout_s=10, client_name="test"))
    yield opened
    opened.close()


def seen(store: Store) -> SystemView:
    return read_system(store, "mqw")


@pytest.fixture
def node(server: RealServer, tmp_path: Path) -> Iterator[NodeProcess]:
    """As an operator starts it: who dies too often is parked."""
    made = NodeProcess(
        [sys.executable, "-m", "mqworker", "run", "tests.system.foreign_app:app"],
        {**os.environ, **SETTINGS, "MQWORKER_REDIS_URL": server.url},
        log_path=tmp_path / "log",
        data_dir=tmp_path / ".mqworker",
        directory=tmp_path,
    )
    yield made
    if made.is_running:
        made.kill()


def test_a_node_that_says_it_is_ready_is_seen_at_once(node: NodeProcess, store: Store) -> None:
    node.start()
    ends_at = time.monotonic() + DEADLINE_S
    while '"node_ready"' not in node.log_path.read_text():
        assert node.is_running, node.log_end()
        assert time.monotonic() < ends_at, node.log_end()
    view = seen(store)

    assert judge(view).health is Health.HEALTHY, judge(view).text
    assert {child.state for child in view.nodes[0].children} == {"live"}
    assert node.snapshot()["complete"]
    assert node.stop(DEADLINE_S) == 0
    assert seen(store).nodes == ()  # it took its leave


def test_a_node_without_redis_says_that_it_is_ready_all_the_same(
    node: NodeProcess, server: RealServer
) -> None:
    server.kill()

    node.start()

    node.wait_complete(DEADLINE_S)


@pytest.mark.parametrize(
    "killed",
    [("heartbeat_reaper",), ("heartbeat_reaper", "recovery_scanner", "broker")],
    ids=["reaper", "three of them"],
)
def test_a_node_whose_actors_keep_dying_is_seen_and_says_which(
    node: NodeProcess, store: Store, killed: tuple[str, ...]
) -> None:
    node.start()
    node.wait_complete(DEADLINE_S)
    _kill_until_parked(node, killed)
    ages_ms, told = [], set[str]()
    while any(node.child(name)["state"] == "parked" for name in killed):
        view = seen(store)
        ages_ms.append(view.nodes[0].age_ms)
        told |= {reason.partition(" of node")[0] for reason in judge(view).reasons if "parked" in reason}
        time.sleep(0.05)

    assert told == set(killed)
    assert max(ages_ms) < SNAPSHOT_TTL_MS / 3
    node.wait_complete(DEADLINE_S)  # nobody kills them any more
    assert node.stop(DEADLINE_S) == 0
    assert seen(store).nodes == ()


def _kill_until_parked(node: NodeProcess, names: Sequence[str]) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while not all(node.child(name)["state"] == "parked" for name in names):
        assert time.monotonic() < ends_at, node.log_end()
        for name in names:
            child = node.child(name)
            if child["pid"] is not None and child["state"] == "live":
                with suppress(ProcessLookupError):
                    os.kill(child["pid"], signal.SIGSEGV)
        time.sleep(0.02)
