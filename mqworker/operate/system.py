"""A system: an open store with its queues, as operators see it from outside and act on it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mqworker.errors import InvalidArgument, MqworkerError, UnknownQueue
from mqworker.model.names import MessageId, message_id, queue_name
from mqworker.operate.quick_find import find_in_long_line
from mqworker.operate.server_url import server_url
from mqworker.operate.wording import duration
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.snapshots import read_queue_names
from mqworker.queues.work.trace import Trace, trace
from mqworker.settings import Settings
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.script import RawReply
from mqworker.store.store import Store


@dataclass(frozen=True, slots=True)
class System:
    """An open store with its queues. Safe between threads, as its store is."""

    settings: Settings
    store: Store

    def queue_names(self) -> list[str]:
        """All queues that were ever used, in order; what others wrote among them is passed over."""
        names = read_queue_names(self.store, self.settings.namespace)
        return [name for name in names if is_queue_name(name)]

    def queue(self, name: str) -> WorkQueue:
        """The work queue of this name; raises UnknownQueue with the names that come close."""
        name = queue_name(name)
        known = self.queue_names()
        if name not in known:
            raise UnknownQueue(f"there is no queue {name!r}; {close_names(name, known)}")
        return self.open_queue(name)

    def queues(self, name: str | None) -> list[WorkQueue]:
        """That queue, or all of them."""
        if name is not None:
            return [self.queue(name)]
        return [self.open_queue(each) for each in self.queue_names()]

    def find(self, message: str, queue: str | None) -> tuple[WorkQueue, Trace]:
        """The message and its queue; an error that says what may have become of it."""
        wanted = message_id(message)
        best: tuple[WorkQueue, Trace] | None = None
        for each in self.queues(queue):
            found = trace(each, wanted, find_in_long_line(each, wanted))
            if found is None:
                continue
            if found.where.state != "absent":
                return each, found
            best = best or (each, found)
        if best is not None:
            return best
        raise MqworkerError(self._no_message(wanted, queue))

    def now_ms(self) -> int:
        """The server's clock: all instants that are stored come from it."""
        reply: RawReply = self.store.send([("TIME",)], None)[0]
        seconds, microseconds = map(int, reply)
        return seconds * 1000 + microseconds // 1000

    def open_queue(self, name: str) -> WorkQueue:
        """The queue of this name, whether it was ever used or not."""
        settings = self.settings
        options = WorkQueueOptions(
            namespace=settings.namespace,
            events_kept=settings.events_kept,
            dedup_window_ms=int(settings.dedup_window_s * 1000),
        )
        return WorkQueue(name, self.store, options)

    def _no_message(self, message: MessageId, queue: str | None) -> str:
        where = f"in queue {queue}" if queue else "in any queue"
        kept = duration(self.settings.result_ttl_s * 1000)
        return (
            f"no message {message} {where}: it may have finished more than {kept} ago, or have finished "
            "without a result to keep, or the id is mistyped"
        )


def open_system(settings: Settings, *, client_name: str, retry_for_ms: int) -> System:
    """The system of redis_url, or of the embedded server that runs in this directory; it starts none."""
    connection = open_connection(
        parse_address(server_url(settings)),
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        client_name=client_name,
    )
    return System(settings, Store(connection, retry_for_ms=retry_for_ms))


@contextmanager
def opened(settings: Settings, *, client_name: str, retry_for_ms: int) -> Iterator[System]:
    """The same, for as long as the block runs."""
    system = open_system(settings, client_name=client_name, retry_for_ms=retry_for_ms)
    try:
        yield system
    finally:
        system.store.close()


def is_queue_name(name: str) -> bool:
    """Whether a queue can have this name."""
    try:
        queue_name(name)
    except InvalidArgument:
        return False
    return True


def close_names(name: str, known: Sequence[str]) -> str:
    """What may have been meant instead."""
    if not known:
        return "no queue was ever used here"
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "`mqworker queue list` shows all of them"
