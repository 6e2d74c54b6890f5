"""Workflows and schedules on real nodes while workers and brokers are killed with -9: exact all the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mqworker import App, JobStatus, chord, group
from mqworker.errors import ResultTimeout
from mqworker.model.event import decode_block
from mqworker.settings import Settings
from mqworker.supervisor.status_socket import read_snapshots
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

ROOT = Path(__file__).parents[2]
MEMBERS = 2_000
# A node halts when its broker died six times in half a minute; deaths of workers it forgives.
MOST_KILLS = {"broker": 4, "worker": 12}
DEADLINE_S = 90.0
TICKS = 12
APP = """
import time
from pathlib import Path
from mqworker import App

app = App("kills", redis_url="{url}")

@app.task(max_crashes=30)
def square(number: int) -> int:
    time.sleep(0.005)
    return number * number

@app.task(queue="callbacks", max_crashes=30)
def collect(squares: list[int]) -> list[int]:
    with Path("collected").open("a") as file:
        print(len(squares), sum(squares), file=file)
    return squares

@app.schedule(every=1)
def tick() -> None:
    ...
"""


class Nodes:
    """Nodes of one application on one server."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self._url = url
        self._running: list[subprocess.Popen[bytes]] = []
        (directory / "kills.py").write_text(APP.format(url=url))

    def start(self, name: str) -> None:
        log = (self.directory / f"{name}.log").open("wb")
        with log:
            self._running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "mqworker", "run", "kills:app", "--workers", "2", "--node", name],
                    cwd=self.directory,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "MQWORKER_REDIS_URL": self._url},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def kill(self, kind: str, node: str, chance: random.Random) -> int:
        """SIGKILL to a child of that kind; 0 when there was none at the moment."""
        snapshots = read_snapshots(self.directory / ".mqworker", 5.0).values()
        pids = [
            child["pid"]
            for snapshot in snapshots
            if snapshot and snapshot["node"] == node
            for child in snapshot["children"]
            if child["name"].partition(":")[0] == kind and child["pid"]
        ]
        if not pids:
            return 0
        with suppress(ProcessLookupError):
            os.kill(chance.choice(pids), signal.SIGKILL)
        return 1

    def close(self) -> None:
        for node in self._running:
            node.terminate()
        for node in self._running:
            try:
                node.wait(15)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()


def _void(fields: dict[bytes, bytes]) -> frozenset[int]:
    """The positions in a block that did not happen: a tick that another broker had fired already."""
    return frozenset(int(each) for each in fields.get(b"v", b"").split(b",") if each)


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def nodes(tmp_path: Path, server: RealServer) -> Iterator[Nodes]:
    made = Nodes(tmp_path, server.url)
    yield made
    made.close()


def test_a_chord_of_thousands_is_exact_while_workers_and_brokers_are_killed(
    nodes: Nodes, server: RealServer
) -> None:
    chance, kills = random.Random(7), Counter[str]()  # noqa: S311 - the same victims each time
    app = App("kills", settings=Settings(redis_url=server.url))
    square = app.task(name="kills.square", max_crashes=30)(lambda number: number)
    collect = app.task(name="kills.collect", queue="callbacks", max_crashes=30)(lambda squares: squares)
    nodes.start("one")
    job = chord(group(square.s(number) for number in range(MEMBERS)), collect.s()).enqueue()

    ends_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends_at and job.status() in (JobStatus.WAITING, JobStatus.RUNNING):
        with suppress(ResultTimeout):
            job.result(timeout=chance.uniform(0.1, 0.6))
        kind = chance.choice(["broker", "worker", "worker"])
        if kills[kind] < MOST_KILLS[kind]:
            kills[kind] += nodes.kill(kind, "one", chance)

    squares = job.result(timeout=0)
    assert squares == [number * number for number in range(MEMBERS)]
    collected = (nodes.directory / "collected").read_text().splitlines()
    assert set(collected) == {f"{MEMBERS} {sum(squares)}"}
    totals = server.client().hgetall("mqw:{callbacks}:meta")
    assert (int(totals[b"enqueued"]), int(totals[b"succeeded"])) == (1, 1)
    assert min(kills["broker"], kills["worker"]) >= 2, kills
    app.close()


def test_two_nodes_fire_each_tick_once_while_brokers_are_killed(nodes: Nodes, server: RealServer) -> None:
    chance = random.Random(11)  # noqa: S311 - same
    nodes.start("one")
    nodes.start("two")
    client = server.client()

    def fired() -> list[int]:
        blocks = [fields for _, fields in client.xrange("mqw:{default}:events") if b"e" in fields]
        events = [event for fields in blocks for event in decode_block("e", fields[b"e"], _void(fields))]
        return [int(event["task_id"].partition("@")[2]) for event in events if "@" in event["task_id"]]

    wait_until(fired, "the first tick", 30)
    to_kill = ["one", "two"] * MOST_KILLS["broker"]
    next_kill = time.monotonic()

    def has_ticked() -> bool:
        nonlocal next_kill
        if to_kill and time.monotonic() >= next_kill:
            nodes.kill("broker", to_kill.pop(), chance)
            next_kill = time.monotonic() + chance.uniform(0.5, 1.5)
        return len(set(fired())) >= TICKS

    wait_until(has_ticked, "a dozen ticks", 60)
    ticks = sorted(fired())

    stored = Counter(ticks)
    assert list(stored) == list(range(ticks[0], ticks[-1] + 1, 1_000))
    assert set(stored.values()) == {1}
