"""The server of a command about queues or messages: its store, queues by name, the search for a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def stored_name(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    """A queue as it was typed, by the name that stands in keys."""
    return None if name is None else queue_name(name)


QUEUE = click.option(
    "-q", "--queue", "queue", callback=stored_name, help="Queue to look in.  [default: all of them]"
)


class Server(System):
    """An open store with its queues; of queues of other models it tells what their nodes say."""

    def queue(self, name: str) -> WorkQueue:
        """The work queue of this name; raises UnknownQueue with the names that come close."""
        name = queue_name(name)
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


def server_group(name: str) -> Callable[[Callable[[], None]], click.Group]:
    """A command whose subcommands all use one server: they are given its `Target`."""

    def decorate(described: Callable[[], None]) -> click.Group:
        @click.group(name, help=described.__doc__)
        @REDIS_URL
        @click.pass_context
        def group(context: click.Context, redis_url: str | None) -> None:
            context.obj = Target(redis_url)

        return group

    return decorate


def confirm(question: str, *, is_yes: bool) -> None:
    """Ask before something cannot be undone; where nobody can answer, --yes is needed."""
    if not is_yes:
        click.confirm(question, abort=True, err=True)
