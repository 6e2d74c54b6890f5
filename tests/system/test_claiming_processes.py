"""Real processes on one queue: nothing claimed twice, nothing lost, however often they are killed."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqworker.model.message import Message
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.claiming_process import QUEUE
from tests.support.deadline import wait_until
from tests.support.ledger import read_lines
from tests.support.messages import open_store, some_messages
from tests.support.real_server import RealServer

PROJECT = Path(__file__).parents[2]
MESSAGES = 10_000
SHORT_LEASE_MS = 150
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Entry:
    """A line of the ledger."""

    what: str
    id: str
    fence: int
    pid: int


class Claimers:
    """The processes, a ledger of each, and how often they were struck."""

    def __init__(self, server: RealServer, folder: Path, *, has_names: bool, lease_ms: int) -> None:
        self._server = server
        self._folder = folder
        self._has_names = has_names
        self._lease_ms = lease_ms
        self._names = (f"claimer-{number}" for number in itertools.count())
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: list[int] = []

    def start(self) -> None:
        """One more process."""
        name = next(self._names)
        arguments = [self._server.url, str(self._ledger(name)), name if self._has_names else ""]
        arguments += [str(self._lease_ms), str(self._folder / "stop")]
        self._running[name] = subprocess.Popen(
            [sys.executable, "-m", "tests.support.claiming_process", *arguments], cwd=PROJECT
        )

    def kill_one_in_the_act(self, is_worth_waiting: Callable[[], bool]) -> str:
        """SIGKILL for one that has messages in hand, if need be for the oldest; the name of the dead."""
        while is_worth_waiting():
            for name, process in self._running.items():
                process.send_signal(signal.SIGSTOP)
                if self._has_messages_in_hand(name):
                    return self._kill(name)
                process.send_signal(signal.SIGCONT)
        return self._kill(next(iter(self._running)))

    def stop(self) -> None:
        """Ask all to end, and wait for them."""
        (self._folder / "stop").touch()
        for process in self._running.values():
            assert process.wait(DEADLINE_S) == 0

    def end(self) -> None:
        """Leave nobody behind, even when the test failed."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def entries(self) -> list[Entry]:
        """All that was written; no kill can tear a line, for each is one write."""
        return [entry for ledger in self._folder.glob("*.ledger") for entry in _read(ledger)]

    def _kill(self, name: str) -> str:
        process = self._running.pop(name)
        process.kill()
        process.wait()
        self.killed.append(process.pid)
        return name

    def _has_messages_in_hand(self, name: str) -> bool:
        entries = _read(self._ledger(name))
        return bool(entries) and entries[-1].what == "E"

    def _ledger(self, name: str) -> Path:
        return self._folder / f"{name}.ledger"


def _read(ledger: Path) -> list[Entry]:
    return [Entry(what, message, int(fence), int(pid)) for what, message, fence, pid in read_lines(ledger)]


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def store(server: RealServer) -> Iterator[Store]:
    opened = open_store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def queue(store: Store) -> WorkQueue:
    return WorkQueue(QUEUE, store)


def test_eight_processes_share_ten_thousand_messages_without_overlap(
    server: RealServer, queue: WorkQueue, tmp_path: Path
) -> None:
    claimers = Claimers(server, tmp_path, has_names=False, lease_ms=60_000)
    messages = some_messages(MESSAGES)
    queue.pause()
    queue.enqueue(*messages)
    try:
        for _ in range(8):
            claimers.start()
        queue.resume()
        wait_until(lambda: _is_drained(queue), "all messages were settled", DEADLINE_S)
        claimers.stop()
    finally:
        claimers.end()

    entries = claimers.entries()
    executed = Counter(entry.id for entry in entries if entry.what == "E")
    acked = Counter(entry.id for entry in entries if entry.what == "A")
    assert executed == acked == Counter(message.id for message in messages)
    assert queue.counts().totals["succeeded"] == MESSAGES
    assert len({entry.pid for entry in entries}) > 1, "one process did all the work: nothing was shared"


@pytest.mark.parametrize(
    ("has_names", "kills"), [(True, 50), (False, 20)], ids=["leases-by-heartbeat", "leases-for-a-time"]
)
def test_kills_lose_nothing_and_ack_nothing_twice(
    server: RealServer,
    queue: WorkQueue,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    has_names: bool,
    kills: int,
) -> None:
    claimers = Claimers(server, tmp_path, has_names=has_names, lease_ms=SHORT_LEASE_MS)
    messages = some_messages(MESSAGES, max_crashes=None)
    try:
        for _ in range(4):
            claimers.start()
        _work_under_fire(queue, claimers, messages, has_names=has_names, kills=kills)
        wait_until(lambda: _is_drained(queue, claimers), "all messages were settled", DEADLINE_S)
        claimers.stop()
    finally:
        claimers.end()

    entries = claimers.entries()
    _check(entries, messages, set(claimers.killed))
    executed = Counter(entry.id for entry in entries if entry.what == "E")
    redelivered = sum(times - 1 for times in executed.values())
    not_noted = sum(1 for entry in _unfinished(entries) if entry.pid in claimers.killed) - redelivered
    with capsys.disabled():
        print(  # noqa: T201 - a drill says how often it struck
            f"\n  kills {len(claimers.killed)}, redelivered {redelivered}, acked but not noted {not_noted}"
        )
    assert queue.counts().totals["succeeded"] == MESSAGES, "each message is acked once, as the server counts"
    assert len(claimers.killed) == kills
    assert redelivered > 0, "no kill struck a process with a message in hand: nothing was proved"


def _work_under_fire(
    queue: WorkQueue, claimers: Claimers, messages: list[Message], *, has_names: bool, kills: int
) -> None:
    """Feeds the messages in portions; during each, one process is killed and another begins."""
    portion = MESSAGES // kills
    for number in range(kills):
        queue.enqueue(*messages[number * portion : (number + 1) * portion])
        name = claimers.kill_one_in_the_act(lambda: queue.counts().waiting > 0)
        claimers.start()
        if has_names:
            queue.reap(name, silent_ms=0)
        else:
            queue.reclaim()


def _is_drained(queue: WorkQueue, claimers: Claimers | None = None) -> bool:
    if claimers is not None:
        queue.reclaim()
        time.sleep(0.02)
    counts = queue.counts()
    return counts.waiting == 0 and counts.leased == 0


def _unfinished(entries: list[Entry]) -> list[Entry]:
    ended = {(entry.id, entry.fence) for entry in entries if entry.what in {"A", "L"}}
    return [entry for entry in entries if entry.what == "E" and (entry.id, entry.fence) not in ended]


def _check(entries: list[Entry], messages: list[Message], killed: set[int]) -> None:
    ids = {message.id for message in messages}
    executed = {entry.id for entry in entries if entry.what == "E"}
    acked = Counter(entry.id for entry in entries if entry.what == "A")

    assert ids - executed == set(), "lost"
    assert executed - ids == set(), "came from nowhere"
    assert [message for message, times in acked.items() if times > 1] == [], "acked twice"
    # Who was killed between the server's ack and the ledger's line left no A: its pid explains it.
    unexplained = ids - set(acked) - {entry.id for entry in _unfinished(entries) if entry.pid in killed}
    assert unexplained == set(), "never acked"
