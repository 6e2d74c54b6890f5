"""The scene of a drill: a server, an app that publishes, nodes that consume, and one ledger of it all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mqworker.errors import StoreRefused, StoreUnavailable
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import QueueCounts
from mqworker.settings import Settings
from tests.drills.drill_app import QUEUE, build_app
from tests.drills.evidence import ended_pids, endings_of, read_events
from tests.drills.ledger import Account
from tests.drills.node import EVENTS_KEPT, DrillNode
from tests.support.deadline import wait_until
from tests.support.ledger import LedgerWriter, ledger_bytes, read_ledger

DRAIN_DEADLINE_S = 60.0
_BATCH = 200


class Scene:
    """Where a drill takes place."""

    def __init__(self, folder: Path, url: str, **settings: Any) -> None:  # noqa: ANN401 - as Settings
        self.folder = folder
        self.url = url
        self.ledger_folder = folder / "ledger"
        self.ledger_folder.mkdir(parents=True)
        self.ledger = LedgerWriter(self.ledger_folder)
        self.app, self._tasks = build_app(Settings(redis_url=url, events_kept=EVENTS_KEPT, **settings))
        self.nodes: list[DrillNode] = []
        self._closing = ExitStack()
        self._closing.callback(self.app.close)
        self._keys = 0

    # Nodes

    def add_node(self, **options: Any) -> DrillNode:  # noqa: ANN401 - as DrillNode
        """Start a node; it may not be complete yet."""
        node = DrillNode(
            self.folder / f"node-{len(self.nodes)}",
            options.pop("url", self.url),
            self.ledger,
            self.ledger_folder,
            **options,
        )
        self.nodes.append(node)
        self._closing.callback(node.close)
        node.start()
        return node

    def close(self) -> None:
        """End everything."""
        self._closing.close()

    # Publishing

    def publish(self, task: str, count: int, *arguments: object, batch: int = _BATCH) -> int:
        """Publish so many calls of a task, each with a key of its own; how many were acknowledged."""
        known = 0
        for size in [batch] * (count // batch) + [count % batch] * (count % batch > 0):
            keys = [self._next_key(task) for _ in range(size)]
            self.ledger.note_all(("T", key) for key in keys)
            try:
                jobs = self._tasks[task].enqueue_many([(key, *arguments) for key in keys])
            except (StoreUnavailable, StoreRefused):
                self.ledger.note_all(("U", key) for key in keys)
                continue
            self.ledger.note_all(("P", key, job.id) for key, job in zip(keys, jobs, strict=True))
            known += size
        return known

    def publish_beside(
        self, task: str, count: int, *arguments: object, per_s: float, batch: int = 0
    ) -> threading.Thread:
        """Publish in a thread, at about this rate, while the drill strikes."""
        batch = batch or max(1, int(per_s / 20))

        def go() -> None:
            for done in range(0, count, batch):
                self.publish(task, min(batch, count - done), *arguments)
                time.sleep(batch / per_s)

        thread = threading.Thread(target=go, daemon=True)
        thread.start()
        return thread

    def _next_key(self, task: str) -> str:
        self._keys += 1
        return f"{task}-{self._keys}"

    # Looking

    def queue(self, name: str = QUEUE) -> WorkQueue:
        """A queue of the drill."""
        return self.app.work_queue(name)

    def counts(self, name: str = QUEUE) -> QueueCounts:
        """How many messages are in which state."""
        return self.queue(name).counts()

    def executed(self) -> int:
        """Grows while tasks run, the drill's own lines apart."""
        return sum(1 for line in read_ledger(self.ledger_folder) if line[0] == "E")

    def ledger_bytes(self) -> int:
        """As `executed`, at less cost."""
        return ledger_bytes(self.ledger_folder)

    def wait_executed(self, count: int, deadline_s: float = DRAIN_DEADLINE_S) -> None:
        """How many runs have begun."""
        wait_until(lambda: self.executed() >= count, f"{count} runs", deadline_s)

    def wait_drained(self, deadline_s: float = DRAIN_DEADLINE_S, queues: Iterable[str] = (QUEUE,)) -> None:
        """Nothing waits and nobody holds anything, in two looks in a row."""
        for queue in queues:
            wait_until(lambda queue=queue: self._is_empty(queue), f"queue {queue} is drained", deadline_s)

    def _is_empty(self, queue: str) -> bool:
        try:
            looks = [self.counts(queue) for _ in range(2)]
        except StoreUnavailable:
            return False
        time.sleep(0.02)
        return all(each.waiting + each.leased == 0 for each in looks)

    def account(self, queues: Iterable[str] = (QUEUE,)) -> Account:
        """The numbers so far."""
        events = [
            event
            for queue in queues
            for event in read_events(self.queue(queue).store, self.queue(queue).calls.keys)
        ]
        log = [line for node in self.nodes for line in node.log()]
        # A node may have been started twice: generations begin anew, so each start is read on its own.
        causes: dict[int, str] = {}
        for part in _starts(log):
            causes |= ended_pids(part)
        return Account(read_ledger(self.ledger_folder), endings_of(events), causes)


def resumes_within(
    scene: Scene, seconds: float, progress: Callable[[], int], before: int | None = None
) -> float:
    """How long until work goes on; fails the drill when it takes longer.

    `before` is the progress before the last message was published: on a busy machine all may have run by now.
    """
    before, began = progress() if before is None else before, time.monotonic()
    wait_until(lambda: progress() > before, f"work goes on within {seconds} s of {scene.url}", seconds)
    return time.monotonic() - began


def _starts(log: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    parts: list[list[dict[str, Any]]] = [[]]
    for line in log:
        if line.get("event") == "node_starting":
            parts.append([])
        parts[-1].append(line)
    return parts
