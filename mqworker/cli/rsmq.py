"""`mqworker rsmq`: RSMQ queues by hand, with the commands and options of `rsmqctl`.

What a program may want to read (lists, attributes, messages, ids) goes to standard output, as JSON or bare;
sentences for people go to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import click

from mqworker.cli.audited import Doing, audited
from mqworker.errors import MqworkerError
from mqworker.operate.system import System
from mqworker.queues.rsmq.arguments import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mqworker.queues.rsmq.calls import RsmqMessage, RsmqOptions
from mqworker.queues.rsmq.client import RsmqClient
from mqworker.settings import Settings, load_settings
from mqworker.store.embedded.share import ensure_server
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store


@dataclass(frozen=True, slots=True)
class Target:
    """Which queues are meant: found once the command is known to be right."""

    redis_url: str | None
    namespace: str

    @contextmanager
    def open(self) -> Iterator[RsmqClient]:
        """A client, for as long as the command takes."""
        with self._open_system() as system:
            yield self._client(system)

    @contextmanager
    def change(
        self, command: str, name: str, *words: str, what: str = ""
    ) -> Iterator[tuple[RsmqClient, Doing]]:
        """The same, for what is to be written to the audit."""
        words = ("-n", name, *words)
        with (
            self._open_system() as system,
            audited(system, f"rsmq {command}", *words, queue=name, what=what) as doing,
        ):
            yield self._client(system), doing

    @contextmanager
    def _open_system(self) -> Iterator[System]:
        settings = load_settings(flags={"redis_url": self.redis_url})
        store = _open_store(settings)
        try:
            yield System(settings, store)
        finally:
            store.close()

    def _client(self, system: System) -> RsmqClient:
        return RsmqClient(system.store, RsmqOptions(namespace=self.namespace))


NAME = click.option("-n", "--name", required=True, help="Name of the queue.")
MESSAGE_ID = click.option("-i", "--message-id", required=True, help="Id of the message, as send printed it.")


@click.group("rsmq")
@click.option("-r", "--redis-url", help="Server to use.  [default: as configured, else the embedded one]")
@click.option("--ns", default="rsmq", show_default=True, help="Namespace: what the keys begin with.")
@click.pass_context
def rsmq_command(context: click.Context, redis_url: str | None, ns: str) -> None:
    """Look after RSMQ queues and messages, as rsmqctl does."""
    context.obj = Target(redis_url, ns)


@rsmq_command.group()
def queue() -> None:
    """Create, list, describe and delete queues."""


@queue.command()
@NAME
@click.option(
    "-t",
    "--visibility-timeout",
    "vt",
    default=DEFAULT_VT,
    show_default=True,
    help="Seconds for which a received message is hidden from others.",
)
@click.option(
    "-d",
    "--delay",
    default=DEFAULT_DELAY,
    show_default=True,
    help="Seconds until a new message can be received.",
)
@click.option(
    "-m",
    "--maxsize",
    default=DEFAULT_MAXSIZE,
    show_default=True,
    help="Largest message in bytes, 1024 to 65536; -1 for any.",
)
@click.pass_obj
def create(target: Target, name: str, vt: int, delay: int, maxsize: int) -> None:
    """Make a new queue."""
    words = ("-t", str(vt), "-d", str(delay), "-m", str(maxsize))
    with target.change("queue create", name, *words) as (rsmq, doing):
        rsmq.create_queue(name, vt=vt, delay=delay, maxsize=maxsize)
        doing.tell(f"queue {name} is ready", to_stderr=True)


@queue.command("list")
@click.pass_obj
def list_all(target: Target) -> None:
    """Print the names of all queues, as a JSON list."""
    with target.open() as rsmq:
        click.echo(json.dumps(rsmq.list_queues()))


@queue.command()
@NAME
@click.pass_obj
def describe(target: Target, name: str) -> None:
    """Print settings and counters of a queue, as a JSON object."""
    with target.open() as rsmq:
        click.echo(json.dumps(asdict(rsmq.get_queue_attributes(name))))


@queue.command("delete")
@NAME
@click.pass_obj
def delete_queue(target: Target, name: str) -> None:
    """Delete a queue and all messages in it."""
    with target.change("queue delete", name) as (rsmq, doing):
        rsmq.delete_queue(name)
        doing.tell(f"queue {name} and its messages are gone", to_stderr=True)


@rsmq_command.group()
def message() -> None:
    """Send, receive, pop, hide and delete messages."""


@message.command()
@NAME
@click.option("-m", "--message", "text", required=True, help="What the message says.")
@click.option("-d", "--delay", type=int, help="Seconds until it can be received.  [default: the queue's]")
@click.pass_obj
def send(target: Target, name: str, text: str, delay: int | None) -> None:
    """Send a message and print its id."""
    with target.open() as rsmq:
        click.echo(rsmq.send_message(name, text, delay=delay))


@message.command()
@NAME
@click.option(
    "-t",
    "--visibility-timeout",
    "vt",
    type=int,
    help="Seconds for which it is hidden.  [default: the queue's]",
)
@click.pass_obj
def receive(target: Target, name: str, vt: int | None) -> None:
    """Print the next message as JSON.

    It comes back unless it is deleted in time.
    """
    with target.open() as rsmq:
        _show(name, rsmq.receive_message(name, vt=vt))


@message.command()
@NAME
@click.pass_obj
def pop(target: Target, name: str) -> None:
    """Print the next message as JSON and delete it."""
    with target.open() as rsmq:
        _show(name, rsmq.pop_message(name))


@message.command("delete")
@NAME
@MESSAGE_ID
@click.pass_obj
def delete_message(target: Target, name: str, message_id: str) -> None:
    """Delete a message, received or not."""
    with target.change("message delete", name, "-i", message_id, what=message_id) as (rsmq, doing):
        if not rsmq.delete_message(name, message_id):
            raise MqworkerError(f"queue {name} has no message {message_id}")
        doing.tell(f"message {message_id} is gone", to_stderr=True)


@message.command()
@NAME
@MESSAGE_ID
@click.option(
    "-t",
    "--visibility-timeout",
    "vt",
    type=int,
    required=True,
    help="Seconds from now for which it is hidden; 0 shows it.",
)
@click.pass_obj
def visibility(target: Target, name: str, message_id: str, vt: int) -> None:
    """Hide a message for longer, or show it again."""
    words = ("-i", message_id, "-t", str(vt))
    with target.change("message visibility", name, *words, what=message_id) as (rsmq, doing):
        if not rsmq.change_message_visibility(name, message_id, vt=vt):
            raise MqworkerError(f"queue {name} has no message {message_id}")
        doing.tell(f"message {message_id} can be received in {vt} s", to_stderr=True)


def _show(name: str, received: RsmqMessage | None) -> None:
    if received is None:
        click.echo(f"queue {name} has no message to give now", err=True)
        return
    shown = {
        "id": received.id,
        "message": received.message.decode(errors="backslashreplace"),
        "rc": received.rc,
        "fr": received.fr,
        "ts": received.ts,
        "sent": received.sent,
    }
    click.echo(json.dumps(shown, ensure_ascii=False))


def _open_store(settings: Settings) -> Store:
    url = settings.redis_url or ensure_server(settings.data_dir)
    connection = open_connection(
        parse_address(url),
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        client_name="mqworker-rsmq",
    )
    return Store(connection, retry_for_ms=int(settings.retry_for_s * 1000))
