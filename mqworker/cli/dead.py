"""`mqworker dead`: messages that were given up: look at them, put them back in line, throw them away."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

import click

from mqworker.cli.audited import audited, who
from mqworker.cli.dead_causes import act_on_cause, causes_command
from mqworker.cli.job import echo_facts, record_lines
from mqworker.cli.server import JSON, QUEUE, Server, Target, confirm, server_group, stored_name
from mqworker.cli.status.model_lines import CELERY, RSMQ, ModelQueue
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.cli.text import counted, duration, escaped, moment, safe, short_duration
from mqworker.errors import MqworkerError
from mqworker.model.dead_letter import DeadLetter
from mqworker.model.names import MessageId, message_id
from mqworker.operate.actions import Request, act
from mqworker.operate.body import Secrets, body_lines, masked_arguments, read_secrets
from mqworker.operate.documents import letter_document
from mqworker.operate.edit import edit_letter, editable
from mqworker.queues.celery.queue import CeleryBurial, CeleryTaskQueue
from mqworker.queues.rsmq.calls import RsmqOptions
from mqworker.queues.rsmq.queue import RsmqBurial, RsmqQueue
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.trace import read_letter
from mqworker.redaction import masked_traceback
from mqworker.store.store import Store

YES = click.option("--yes", "is_yes", is_flag=True, help="Do not ask.")
CAUSE = click.option("--cause", help="All of one cause, as `mqworker dead causes` names it.")
ONE_QUEUE = click.option(
    "-q", "--queue", "queue", callback=stored_name, required=True, help="Queue that holds the dead letters."
)

_COLUMNS = (
    Column("id", "<", is_whole=True),
    Column("queue", "<"),
    Column("task", "<"),
    Column("dead for"),
    Column("reason", "<"),
    Column("error", "<"),
)
_PAGE = 1_000


@server_group("dead")
def dead_command() -> None:
    """Look at dead letters; put them back in line or throw them away."""


@dead_command.command("list")
@QUEUE
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many of each queue."
)
@JSON
@click.pass_obj
def list_some(target: Target, queue: str | None, limit: int, *, is_json: bool) -> None:
    """List dead letters, the newest first."""
    with target.open() as server:
        now_ms = server.now_ms()
        letters, total = [], 0
        for each in dead_letter_sources(server, queue):
            count = each.count()
            total += count
            newest = each.letters(max(0, count - limit), limit) if count else []
            letters += [(each.name, letter) for letter in reversed(newest)]
    if is_json:
        found = [letter_document(name, letter) for name, letter in letters]
        click.echo(json.dumps({"letters": found, "total": total}))
        return
    if not letters:
        click.echo("no dead letters")
        return
    rows = [_row(name, letter, now_ms) for name, letter in letters]
    click.echo("\n".join(table(_COLUMNS, rows, width=terminal_width())))
    if total > len(letters):
        click.echo(click.style(f"… {total - len(letters):,} more; --limit shows more of them", dim=True))


@dead_command.command()
@click.argument("id_", metavar="ID")
@QUEUE
@click.option("--args", "is_args", is_flag=True, help="Show the arguments too; secrets are masked by name.")
@JSON
@click.pass_obj
def show(target: Target, id_: str, queue: str | None, *, is_args: bool, is_json: bool) -> None:
    """Show why one was given up, with the traceback."""
    with target.open() as server:
        source, letter = _find(server, id_, queue)
        now_ms = server.now_ms()
        secrets = read_secrets(server.store, server.settings.namespace)
    if is_json:
        click.echo(json.dumps(_document(source.name, letter, secrets if is_args else None)))
        return
    since = f"{moment(letter.buried_at_ms, now_ms)} ({duration(now_ms - letter.buried_at_ms)} ago)"
    lines = [
        ("id", letter.id),
        ("queue", source.name),
        ("dead since", since),
        ("reason", safe(letter.reason)),
    ]
    if letter.error:
        lines.append(("error", safe(f"{letter.error}: {letter.error_message}")))
    lines += [(safe(name), safe(str(text))) for name, text in letter.evidence.items()]
    if letter.message is not None:
        lines += record_lines(letter.message, now_ms)
        lines += body_lines(letter.message, secrets) if is_args else []
    echo_facts(lines)
    for line in masked_traceback(letter.traceback).splitlines():
        click.echo(f"    | {escaped(line)}")


@dead_command.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@QUEUE
@CAUSE
@click.option("--all", "is_all", is_flag=True, help="All dead letters of the queue.")
@click.pass_obj
def retry(
    target: Target,
    ids: tuple[str, ...],
    queue: str | None,
    cause: str | None,
    is_all: bool,  # noqa: FBT001 - click's way
) -> None:
    """Put dead letters back in line, their counts beginning anew."""
    if is_all + bool(ids) + bool(cause) != 1:
        raise click.UsageError("give either the ids of dead letters, or --cause or --all with --queue")
    if cause is not None:
        act_on_cause(target, Request("retry-cause", _needed(queue), cause), is_yes=True)
        return
    if is_all and queue is None:
        raise click.UsageError("--all needs --queue, so that no other queue is meant by mistake")
    with target.open() as server:
        if queue is not None and is_all:
            (source,) = dead_letter_sources(server, queue)
            with audited(server, "dead retry", "--all", "-q", queue, queue=queue) as doing:
                count = _revive_all(source)
                doing.tell(f"{counted(count, 'dead letter')} of queue {queue} back in line", count)
            return
        for id_ in ids:
            source, letter = _find(server, id_, queue)
            words = (letter.id, "-q", source.name)
            with audited(server, "dead retry", *words, queue=source.name, what=letter.id) as doing:
                source.revive([letter.id])
                doing.tell(f"{letter.id} is back in line in queue {source.name}")


@dead_command.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@ONE_QUEUE
@CAUSE
@YES
@click.pass_obj
def drop(target: Target, ids: tuple[str, ...], queue: str, cause: str | None, is_yes: bool) -> None:  # noqa: FBT001 - click's way
    """Throw single dead letters away, or all of one cause."""
    if bool(ids) == bool(cause):
        raise click.UsageError("give either the ids of dead letters, or --cause")
    if cause is not None:
        act_on_cause(target, Request("drop-cause", queue, cause), is_yes=is_yes)
        return
    confirm(f"Throw away {counted(len(ids), 'dead letter')} of queue {queue}?", is_yes=is_yes)
    with target.open() as system:
        for id_ in ids:
            click.echo(act(system, Request("drop", queue, id_), who()))


@dead_command.command()
@click.argument("id_", metavar="ID")
@ONE_QUEUE
@click.option("--args", default="", metavar="JSON", help="Arguments by position, all of them: '[7]'.")
@click.option(
    "--kwargs", default="", metavar="JSON", help="""Arguments by name, all of them: '{"to": "x"}'."""
)
@click.option("--retry", "is_retry", is_flag=True, help="Put it back in line afterwards.")
@click.pass_obj
def edit(target: Target, id_: str, *, queue: str, args: str, kwargs: str, is_retry: bool) -> None:
    """Give a dead letter other arguments.

    Without JSON, show those that it has. Secrets are shown masked; a mask that comes back unchanged leaves
    what is stored.
    """
    with target.open() as system:
        if not args and not kwargs:
            click.echo(json.dumps(editable(system, queue, id_), ensure_ascii=False))
            return
        click.echo(edit_letter(system, queue, id_, who(), args=args, kwargs=kwargs))
        if is_retry:
            click.echo(act(system, Request("retry", queue, id_), who()))


dead_command.add_command(causes_command)


@dead_command.command()
@ONE_QUEUE
@YES
@click.pass_obj
def purge(target: Target, queue: str, is_yes: bool) -> None:  # noqa: FBT001 - how click passes a flag
    """Throw away all dead letters of a queue."""
    with target.open() as server:
        work = server.queue(queue)
        count = work.counts().dead
        confirm(f"Throw away {counted(count, 'dead letter')} of queue {queue}?", is_yes=is_yes)
        with audited(server, "dead purge", "-q", queue, queue=queue) as doing:
            count = work.purge_dead()
            doing.tell(f"{counted(count, 'dead letter')} of queue {queue} thrown away", count)


def _row(queue: str, letter: DeadLetter, now_ms: int) -> list[Cell | str]:
    text = f"{letter.error}: {letter.error_message}" if letter.error_message else letter.error
    return [
        safe(letter.id),
        queue,
        letter.message.task if letter.message else "?",
        short_duration(now_ms - letter.buried_at_ms),
        safe(letter.reason, longest=20),
        Cell(safe(text), is_dim=True),
    ]


# Any: what JSON can hold.
def _document(queue: str, letter: DeadLetter, secrets: Secrets | None) -> dict[str, Any]:
    """With the arguments, where it is known which of them are secret."""
    message = letter.message
    return {
        **letter_document(queue, letter),
        "traceback": masked_traceback(letter.traceback),
        "evidence": letter.evidence,
        "arguments": masked_arguments(message, secrets)
        if message is not None and secrets is not None
        else None,
    }


def _needed(queue: str | None) -> str:
    if queue is None:
        raise click.UsageError("--cause needs --queue: a cause is one of a queue")
    return queue


def _find(server: Server, id_: str, queue: str | None) -> tuple[DeadLetterSource, DeadLetter]:
    wanted = message_id(id_)
    for source in dead_letter_sources(server, queue):
        letter = source.find(wanted)
        if letter is not None:
            return source, letter
    where = f"in queue {queue}" if queue else "in any queue"
    raise MqworkerError(f"no dead letter {wanted} {where}; `mqworker job explain {wanted}` tells where it is")


def _revive_all(source: DeadLetterSource) -> int:
    """Page by page from the front; one that cannot be read stays, and the next page begins behind it."""
    revived, unreadable = 0, 0
    while True:
        letters = source.letters(unreadable, _PAGE)
        if not letters:
            return revived
        back = source.revive([letter.id for letter in letters])
        revived, unreadable = revived + back, unreadable + len(letters) - back


class DeadLetterSource(Protocol):
    """The dead letters of one queue."""

    name: str

    def count(self) -> int:
        """How many there are."""

    def letters(self, start: int, count: int) -> list[DeadLetter]:
        """Some of them, the oldest first."""

    def find(self, message: MessageId) -> DeadLetter | None:
        """One of them."""

    def revive(self, ids: Sequence[str]) -> int:
        """Enqueue some of them again; how many."""


def dead_letter_sources(server: Server, queue: str | None) -> list[DeadLetterSource]:
    """The source of one queue, or all of them; raises UnknownQueue."""
    found: list[DeadLetterSource] = []
    others = server.model_queues()
    if queue in others and others[queue].title in (RSMQ, CELERY) and queue not in server.queue_names():
        return [_ModelLetters(others[queue], server.store)]
    found += [_WorkQueueLetters(each) for each in server.queues(queue)]
    if queue is None:
        with_letters = [each for each in others.values() if each.title in (RSMQ, CELERY)]
        found += [_ModelLetters(each, server.store) for each in with_letters]
    return found


class _WorkQueueLetters:
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


class _ModelLetters:
    def __init__(self, queue: ModelQueue, store: Store) -> None:
        self.name = queue.name
        self._queue: RsmqQueue | CeleryTaskQueue = (
            CeleryTaskQueue(queue.name, store, queue.celery_options)
            if queue.title == CELERY
            else RsmqQueue(queue.name, store, RsmqOptions(queue.namespace))
        )

    def count(self) -> int:
        return self._queue.counts()["dead"]

    def letters(self, start: int, count: int) -> list[DeadLetter]:
        return [_letter(each) for each in self._queue.burials(start, count)]

    def find(self, message: MessageId) -> DeadLetter | None:
        burial = self._queue.burial(message)
        return None if burial is None else _letter(burial)

    def revive(self, ids: Sequence[str]) -> int:
        return sum(self._queue.revive(*ids))


def _letter(burial: RsmqBurial | CeleryBurial) -> DeadLetter:
    """The body is not shown: it may hold anything, and was not written by us."""
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
