"""The server of a command about queues or messages: its store, queues by name, the search for a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from mqworker.cli.connect import connect
from mqworker.cli.shared_options import JSON_HELP, REDIS_URL_HELP
from mqworker.cli.status.model_lines import ModelQueue, model_queues
from mqworker.errors import UnknownQueue
from mqworker.model.names import queue_name
from mqworker.operate.system import System, close_names
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.snapshots import read_nodes
from mqworker.settings import load_settings

REDIS_URL = click.option("-r", "--redis-url", help=REDIS_URL_HELP)
JSON = click.option("--json", "is_json", is_flag=True, help=JSON_HELP)
QUEUE = click.option("-q", "--queue", "queue", help="Queue to look in.  [default: all of them]")


class Server(System):
    """An open store with its queues; of queues of other models it tells what their nodes say."""

    def queue(self, name: str) -> WorkQueue:
        """The work queue of this name; raises UnknownQueue with the names that come close."""
        queue_name(name)
        known = self.queue_names()
        if name in known:
            return self.open_queue(name)
        others = self.model_queues()
        if name in others:
            raise others[name].refusal()
        raise UnknownQueue(f"there is no queue {name!r}; {close_names(name, [*known, *others])}")

    def model_queues(self) -> dict[str, ModelQueue]:
        """Queues of other models, by name, that a node consumes: only nodes report them."""
        return model_queues(read_nodes(self.store, self.settings.namespace))


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
