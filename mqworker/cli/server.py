"""The server of a command about queues or messages: its store, queues by name, the search for a message."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from mqworker.cli.connect import connect
from mqworker.cli.status.model_lines import ModelQueue, model_queues
from mqworker.cli.text import duration
from mqworker.errors import InvalidArgument, MqworkerError, UnknownQueue
from mqworker.model.names import MessageId, message_id, queue_name
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.snapshots import read_nodes, read_queue_names
from mqworker.queues.work.trace import Trace, trace
from mqworker.settings import Settings, load_settings
from mqworker.store.script import RawReply
from mqworker.store.store import Store

REDIS_URL = click.option(
    "-r", "--redis-url", help="Server to use.  [default: as configured, else the embedded one]"
)
QUEUE = click.option("-q", "--queue", "queue", help="Queue to look in.  [default: all of them]")


@dataclass(frozen=True, slots=True)
class Server:
    """An open store with its settings."""

    settings: Settings
    store: Store

    def queue_names(self) -> list[str]:
        """All queues that were ever used, in order; names that are not valid are skipped."""
        names = read_queue_names(self.store, self.settings.namespace)
        return [name for name in names if _is_queue_name(name)]

    def queue(self, name: str) -> WorkQueue:
        """The work queue of this name; raises UnknownQueue with the names that come close."""
        queue_name(name)
        known = self.queue_names()
        if name in known:
            return self._open(name)
        others = self.model_queues()
        if name in others:
            raise others[name].refusal()
        raise UnknownQueue(f"there is no queue {name!r}; {_hint(name, [*known, *others])}")

    def model_queues(self) -> dict[str, ModelQueue]:
        """Queues of other models, by name, that a node consumes: only nodes report them."""
        return model_queues(read_nodes(self.store, self.settings.namespace))

    def queues(self, name: str | None) -> list[WorkQueue]:
        """That queue, or all of them."""
        if name is not None:
            return [self.queue(name)]
        return [self._open(each) for each in self.queue_names()]

    def find(self, message: str, queue: str | None) -> tuple[WorkQueue, Trace]:
        """The message and its queue; raises MqworkerError that says where it may be."""
        wanted = message_id(message)
        best: tuple[WorkQueue, Trace] | None = None
        for each in self.queues(queue):
            found = trace(each, wanted)
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
        reply: RawReply = self.store.read([("TIME",)], None)[0]
        seconds, microseconds = map(int, reply)
        return seconds * 1000 + microseconds // 1000

    def _open(self, name: str) -> WorkQueue:
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


@dataclass(frozen=True, slots=True)
class Target:
    """Which server to use; opened once the arguments of the command are checked."""

    redis_url: str | None

    @contextmanager
    def open(self) -> Iterator[Server]:
        """Connect for the duration of the command."""
        settings = load_settings(flags={"redis_url": self.redis_url})
        store = connect(settings)
        try:
            yield Server(settings, store)
        finally:
            store.close()


def confirm(question: str, *, is_yes: bool) -> None:
    """Ask before something cannot be undone; where nobody can answer, --yes is needed."""
    if not is_yes:
        click.confirm(question, abort=True, err=True)


def _is_queue_name(name: str) -> bool:
    try:
        queue_name(name)
    except InvalidArgument:
        return False
    return True


def _hint(name: str, known: Sequence[str]) -> str:
    if not known:
        return "no queue was ever used here"
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "`mqworker queue list` shows all of them"
