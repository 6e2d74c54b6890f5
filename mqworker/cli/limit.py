"""`mqworker limit`: see how many run at once, say another number, close a key for a while and open it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from mqworker.cli.audited import audited
from mqworker.cli.server import JSON, Target, server_group
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.operate.job_filter import duration_ms
from mqworker.operate.limits import read_limits
from mqworker.operate.running_limits import SlotView, close_limit, set_limit
from mqworker.operate.wording import NOTHING, duration, safe

_COLUMNS = (
    Column("queue", "<"),
    Column("limit", "<", is_whole=True),
    Column("running", ">"),
    Column("of", ">"),
    Column("state", "<"),
)


@server_group("limit")
def limit_command() -> None:
    """Look at how many run at once; set, close and open limits."""


@limit_command.command()
@click.argument("queue", required=False)
@JSON
@click.pass_obj
def show(target: Target, queue: str | None, *, is_json: bool) -> None:
    """Show what runs, what may, and what is closed."""
    with target.open() as system:
        found = [each for each in read_limits(system).queues if queue in (None, each.queue)]
    if is_json:
        click.echo(json.dumps([asdict(each) for each in found]))
        return
    rows: list[list[Cell | str]] = [
        [
            safe(each.queue),
            safe(slot.name),
            f"{slot.running:,}",
            NOTHING if slot.most is None else f"{slot.most:,}",
            _state(slot),
        ]
        for each in found
        for slot in each.slots
    ]
    click.echo("\n".join(table(_COLUMNS, rows, width=terminal_width())) if rows else "no limits are in use")


@limit_command.command("set")
@click.argument("queue")
@click.argument("limit")
@click.argument("count", type=int)
@click.pass_obj
def set_(target: Target, queue: str, limit: str, count: int) -> None:
    """Let COUNT run at once, whatever the code says, until it is lifted."""
    with target.open() as system:
        system.queue(queue)
        with audited(system, "limit set", queue, limit, str(count), queue=queue, what=limit) as doing:
            set_limit(system, queue, limit, count)
            doing.tell(f"{safe(limit)} in {safe(queue)}: {count:,} at once from now on")


@limit_command.command()
@click.argument("queue")
@click.argument("limit")
@click.pass_obj
def lift(target: Target, queue: str, limit: str) -> None:
    """Go by what the code says again."""
    with target.open() as system:
        system.queue(queue)
        with audited(system, "limit lift", queue, limit, queue=queue, what=limit) as doing:
            set_limit(system, queue, limit, None)
            doing.tell(f"{safe(limit)} in {safe(queue)}: as the code says")


@limit_command.command()
@click.argument("queue")
@click.argument("limit")
@click.option("--for", "for_", metavar="DURATION", required=True, help="30s, 10m, 2h.")
@click.pass_obj
def close(target: Target, queue: str, limit: str, for_: str) -> None:
    """Start nothing of this limit for a while."""
    for_ms = duration_ms("for", for_)
    with target.open() as system:
        system.queue(queue)
        with audited(system, "limit close", queue, limit, "--for", for_, queue=queue, what=limit) as doing:
            is_longer = close_limit(system, queue, limit, for_ms, "closed by hand")
            doing.tell(
                f"{safe(limit)} in {safe(queue)} is closed for {duration(for_ms)}"
                if is_longer
                else f"{safe(limit)} in {safe(queue)} is closed for longer than that",
                int(is_longer),
            )


@limit_command.command("open")
@click.argument("queue")
@click.argument("limit")
@click.pass_obj
def open_(target: Target, queue: str, limit: str) -> None:
    """Let calls of a closed limit start again."""
    with target.open() as system:
        system.queue(queue)
        with audited(system, "limit open", queue, limit, queue=queue, what=limit) as doing:
            was_closed = close_limit(system, queue, limit, 0, "opened by hand")
            doing.tell(
                f"{safe(limit)} in {safe(queue)} {'is open' if was_closed else 'was not closed'}",
                int(was_closed),
            )


def _state(slot: SlotView) -> str:
    states = [
        *(["set at run time"] if slot.is_set else []),
        *([f"closed for {duration(slot.closed_ms)}"] if slot.closed_ms else []),
        *(["half open: one may try"] if slot.is_half_open else []),
    ]
    return ", ".join(states) or NOTHING
