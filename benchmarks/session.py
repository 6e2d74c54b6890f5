"""A session: one peer on a server, a board and a producer that nobody used before; workers when asked for."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil
import redis

from benchmarks.environments import Environment, PeerUnavailable, prepare
from benchmarks.peer import Peer
from benchmarks.peers.bench_board import Board
from benchmarks.private_server import loopback_server
from benchmarks.producer import PeerFailed, Producer
from benchmarks.worker_tree import WorkerTree

ADAPTERS = Path(__file__).parent / "peers"
ROOT = Path(__file__).parents[1]
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where it exists, the board never touches a disk
NO_WORK = "nothing"
FILL_LIMIT_S = 120.0
POLL_S = 0.02
FAILURES = (PeerFailed, PeerUnavailable, OSError, ValueError, redis.RedisError, psutil.Error)
"""What a foreign program can do to a measure; such a peer costs a line, and the others go on."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a peer is set up for a measure."""

    workers: int = 2
    queues: int = 1
    body: str = NO_WORK
    variant: str = ""
    """Other than the usual one of the peer, such as `safe`."""
    capacity: int = 2_000_000
    """How many tasks the board has room for."""


class Session:
    """What is there during one measure. Tasks are numbered in the order in which they are sent."""

    def __init__(
        self, peer: Peer, arrangement: Arrangement, environment: Environment, url: str, directory: Path
    ) -> None:
        self.peer = peer
        self.arrangement = arrangement
        self.board = Board.create(directory / "board", arrangement.capacity)
        self.server = redis.Redis.from_url(url, socket_timeout=60)
        self._environment = environment
        self._directory = directory
        self._variables = self._environment_variables(url)
        program = _producer_program(peer)
        self.producer = Producer([environment.interpreter, *program], self._variables, directory)
        self.about = self.producer.describe()
        self._next = 0
        self._trees: list[WorkerTree] = []

    def take_numbers(self, count: int) -> int:
        """The first of so many numbers for tasks to be sent."""
        first = self._next
        self._next += count
        if self._next > self.arrangement.capacity:
            raise PeerFailed(f"the board has room for {self.arrangement.capacity:,} tasks only")
        return first

    def fill(self, count: int, limit_s: float = FILL_LIMIT_S) -> range:
        """Queue so many tasks in bulk, or as many as the time allows; their numbers."""
        first = self.take_numbers(count)
        sent = self.producer.bulk(self.arrangement.body, first, count, limit_s)
        self._next = first + sent.count
        return range(first, self._next)

    def start_workers(self) -> WorkerTree:
        """Start the workers of the peer."""
        program, *rest = self.about.argv
        arguments = [str(ADAPTERS / each) if each.endswith(".mjs") else each for each in rest]
        tree = WorkerTree(
            [self._environment.program(program), *arguments],
            self.about.copies,
            {**self._variables, **self.about.environment},
            self._directory,
        )
        self._trees.append(tree)
        return tree

    def wait_until_run(self, numbers: range, limit_s: float) -> bool:
        """Until all of these tasks ran, or the time is over."""
        positions = [numbers.start]

        def have_all_run() -> bool:
            # What ran is not looked at again: a look must cost nothing beside what is measured.
            positions[0] = self.board.first_missing(positions[0], numbers.stop)
            return positions[0] == numbers.stop

        return self.wait_for(have_all_run, limit_s)

    def wait_until_some_run(self, numbers: range, count: int, limit_s: float) -> bool:
        """Until so many of these tasks ran, or the time is over; for short queues."""
        return self.wait_for(lambda: self.board.done(numbers.start, numbers.stop) >= count, limit_s)

    def wait_for(self, is_true: Callable[[], bool], limit_s: float) -> bool:
        """Until something is true, or the time is over; a peer whose workers are gone has failed."""
        deadline = time.monotonic() + limit_s
        while not is_true():
            if time.monotonic() > deadline:
                return False
            if all(tree.has_ended() for tree in self._trees):
                raise PeerFailed(f"its workers ended by themselves: {self._last_words()}")
            time.sleep(POLL_S)
        return True

    def server_cpu_seconds(self) -> float:
        """Processor time of the server."""
        info = self._info("cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"])

    def server_memory_bytes(self) -> int:
        """What the server has allocated."""
        return int(self._info("memory")["used_memory"])

    def close(self) -> None:
        """Kill whatever still runs: the session is over, nobody needs an orderly end."""
        for tree in self._trees:
            tree.kill()
        self.producer.close()
        self.server.close()

    # Any: INFO has fields of many types.
    def _info(self, section: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self.server.info(section))

    def _environment_variables(self, url: str) -> dict[str, str]:
        arrangement = self.arrangement
        # Settings of the user's own mqworker would not be the defaults.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join([str(ADAPTERS), *_packages_of(self.peer)]),
            "PYTHONDONTWRITEBYTECODE": "",  # whoever sets it would see slower starts
            "BENCH_REDIS_URL": url,
            "BENCH_BOARD": str(self._directory / "board"),
            "BENCH_VARIANT": arrangement.variant or self.peer.variant,
            "BENCH_QUEUES": str(arrangement.queues),
            "BENCH_WORKERS": str(min(arrangement.workers, self.peer.most_workers)),
            "BENCH_BODY": arrangement.body,
            "BENCH_MODULES": str(self._environment.folder / "node_modules"),
            "MQWORKER_REDIS_URL": url,
        }

    def _last_words(self) -> str:
        log = self._directory / "workers.log"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "they said nothing"


@contextmanager
def open_session(peer: Peer, arrangement: Arrangement | None = None) -> Iterator[Session]:
    """A session of this peer; everything in it ends with the block."""
    environment = prepare(peer)
    shared = str(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="mqw-bench-", dir=shared))
    try:
        with loopback_server() as url:
            session = Session(peer, arrangement or Arrangement(), environment, url, directory)
            try:
                yield session
            finally:
                session.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _packages_of(peer: Peer) -> list[str]:
    """Where mqworker is; a peer has it nowhere. In front of what is installed."""
    if peer.requirements:
        return []
    return [str(ROOT)] if not peer.checkout else [peer.checkout, str(Path(peer.checkout) / "services")]


def _producer_program(peer: Peer) -> list[str]:
    if peer.is_node:
        return [str(ADAPTERS / peer.adapter), "produce"]
    return [str(ADAPTERS / "bench_driver.py"), peer.adapter.removesuffix(".py")]
