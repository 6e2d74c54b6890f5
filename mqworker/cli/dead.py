"""`mqworker dead`: messages that were given up: look at them, put them back in line, throw them away."""

from __future__ import annotations

import click

from mqworker.cli.body_view import body_lines
from mqworker.cli.graveyards import Graveyard, graveyards
from mqworker.cli.job import echo_facts, record_lines
from mqworker.cli.site import QUEUE, REDIS_URL, Site, Target, confirm
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.cli.wording import counted, duration, escaped, moment, safe, short_duration
from mqworker.errors import MqworkerError
from mqworker.model.dead_letter import DeadLetter
from mqworker.model.names import message_id
from mqworker.redaction import masked_text

YES = click.option("--yes", "is_yes", is_flag=True, help="Do not ask.")
ONE_QUEUE = click.option("-q", "--queue", "queue", required=True, help="Queue whose dead letters are meant.")

_COLUMNS = (
    Column("id", "<", is_whole=True),
    Column("queue", "<"),
    Column("task", "<"),
    Column("dead for"),
    Column("reason", "<"),
    Column("error", "<"),
)
_PAGE = 1_000


@click.group("dead")
@REDIS_URL
@click.pass_context
def dead_command(context: click.Context, redis_url: str | None) -> None:
    """Look at dead letters; put them back in line or throw them away."""
    context.obj = Target(redis_url)


@dead_command.command("list")
@QUEUE
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many of each queue."
)
@click.pass_obj
def list_some(target: Target, queue: str | None, limit: int) -> None:
    """List dead letters, the newest first."""
    with target.open() as site:
        now_ms = site.now_ms()
        letters, total = [], 0
        for each in graveyards(site, queue):
            count = each.count()
            total += count
            newest = each.letters(max(0, count - limit), limit) if count else []
            letters += [(each.name, letter) for letter in reversed(newest)]
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
@click.pass_obj
def show(target: Target, id_: str, queue: str | None, is_args: bool) -> None:  # noqa: FBT001 - click's way
    """Show why one was given up, with the traceback."""
    with target.open() as site:
        graves, letter = _find(site, id_, queue)
        now_ms = site.now_ms()
    since = f"{moment(letter.buried_at_ms, now_ms)} ({duration(now_ms - letter.buried_at_ms)} ago)"
    lines = [
        ("id", letter.id),
        ("queue", graves.name),
        ("dead since", since),
        ("reason", safe(letter.reason)),
    ]
    if letter.error:
        lines.append(("error", safe(f"{letter.error}: {letter.error_message}")))
    lines += [(safe(name), safe(str(text))) for name, text in letter.evidence.items()]
    if letter.message is not None:
        lines += record_lines(letter.message, now_ms)
        lines += body_lines(letter.message) if is_args else []
    echo_facts(lines)
    for line in masked_text(letter.traceback).splitlines():
        click.echo(f"    | {escaped(line)}")


@dead_command.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@QUEUE
@click.option("--all", "is_all", is_flag=True, help="All dead letters of the queue.")
@click.pass_obj
def retry(target: Target, ids: tuple[str, ...], queue: str | None, is_all: bool) -> None:  # noqa: FBT001 - click's way
    """Put dead letters back in line, their counts beginning anew."""
    if is_all == bool(ids):
        raise click.UsageError("give either the ids of dead letters, or --all with --queue")
    if is_all and queue is None:
        raise click.UsageError("--all needs --queue, so that no other queue is meant by mistake")
    with target.open() as site:
        if queue is not None and is_all:
            (graves,) = graveyards(site, queue)
            click.echo(f"{counted(_revive_all(graves), 'dead letter')} of queue {queue} back in line")
            return
        for id_ in ids:
            graves, letter = _find(site, id_, queue)
            graves.revive([letter.id])
            click.echo(f"{letter.id} is back in line in queue {graves.name}")


@dead_command.command()
@ONE_QUEUE
@YES
@click.pass_obj
def purge(target: Target, queue: str, is_yes: bool) -> None:  # noqa: FBT001 - how click passes a flag
    """Throw away all dead letters of a queue."""
    with target.open() as site:
        work = site.queue(queue)
        count = work.counts().dead
        confirm(f"Throw away {counted(count, 'dead letter')} of queue {queue}?", is_yes=is_yes)
        click.echo(f"{counted(work.purge_dead(), 'dead letter')} of queue {queue} thrown away")


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


def _find(site: Site, id_: str, queue: str | None) -> tuple[Graveyard, DeadLetter]:
    wanted = message_id(id_)
    for graves in graveyards(site, queue):
        letter = graves.find(wanted)
        if letter is not None:
            return graves, letter
    where = f"in queue {queue}" if queue else "in any queue"
    raise MqworkerError(f"no dead letter {wanted} {where}; `mqworker job explain {wanted}` tells where it is")


def _revive_all(graves: Graveyard) -> int:
    """Page by page from the front; one that cannot be read stays, and the next page begins behind it."""
    revived, unreadable = 0, 0
    while True:
        letters = graves.letters(unreadable, _PAGE)
        if not letters:
            return revived
        back = graves.revive([letter.id for letter in letters])
        revived, unreadable = revived + back, unreadable + len(letters) - back
