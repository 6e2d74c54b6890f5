"""Where dead letters lie: beside each work queue, and beside each RSMQ queue that a node consumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mqworker.cli.site import Site
from mqworker.cli.status.model_lines import RSMQ, ModelQueue
from mqworker.model.dead_letter import DeadLetter
from mqworker.model.names import MessageId
from mqworker.queues.rsmq.calls import RsmqOptions
from mqworker.queues.rsmq.queue import RsmqBurial, RsmqQueue
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.trace import read_letter
from mqworker.store.store import Store


class Graveyard(Protocol):
    """The dead letters of one queue."""

    name: str

    def count(self) -> int:
        """How many there are."""

    def letters(self, start: int, count: int) -> list[DeadLetter]:
        """Some of them, the oldest first."""

    def find(self, message: MessageId) -> DeadLetter | None:
        """One of them."""

    def revive(self, ids: Sequence[str]) -> int:
        """Put some back in line; how many it were."""


def graveyards(site: Site, queue: str | None) -> list[Graveyard]:
    """That of a queue, or all of them; raises what tells that there is no such queue, or no such thing."""
    found: list[Graveyard] = []
    others = site.model_queues()
    if queue in others and others[queue].title == RSMQ and queue not in site.queue_names():
        return [_OfRsmqQueue(others[queue], site.store)]
    found += [_OfWorkQueue(each) for each in site.queues(queue)]
    if queue is None:
        found += [_OfRsmqQueue(each, site.store) for each in others.values() if each.title == RSMQ]
    return found


class _OfWorkQueue:
    def __init__(self, queue: WorkQueue) -> None:
        self.name = str(queue.name)
        self._queue = queue

    def count(self) -> int:
        return self._queue.counts().dead

    def letters(self, start: int, count: int) -> list[DeadLetter]:
        return self._queue.dead_letters(start, count)

    def find(self, message: MessageId) -> DeadLetter | None:
        return read_letter(self._queue, message)

    def revive(self, ids: Sequence[str]) -> int:
        return len(self._queue.revive(*ids))


class _OfRsmqQueue:
    def __init__(self, queue: ModelQueue, store: Store) -> None:
        self.name = queue.name
        self._queue = RsmqQueue(queue.name, store, RsmqOptions(queue.namespace))

    def count(self) -> int:
        return self._queue.counts()["dead"]

    def letters(self, start: int, count: int) -> list[DeadLetter]:
        return [_letter(each) for each in self._queue.burials(start, count)]

    def find(self, message: MessageId) -> DeadLetter | None:
        burial = self._queue.burial(message)
        return None if burial is None else _letter(burial)

    def revive(self, ids: Sequence[str]) -> int:
        return sum(self._queue.revive(*ids))


def _letter(burial: RsmqBurial) -> DeadLetter:
    """Its text is not shown: it may hold anything, and was not written by us."""
    details = burial.details
    evidence = details.get("evidence")
    return DeadLetter(
        MessageId(burial.id),
        burial.buried_at_ms,
        burial.reason,
        str(details.get("error", "")),
        str(details.get("error_msg", "")),
        str(details.get("traceback", "")),
        {str(name): str(text) for name, text in evidence.items()} if isinstance(evidence, dict) else {},
    )
