"""`mqworker strike`: skip calls of a task with certain arguments for a while; see them, remove them."""

from __future__ import annotations

import json

import click

from mqworker.cli.audited import who
from mqworker.cli.server import JSON, Target, server_group
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.operate.documents import strikes_document
from mqworker.operate.strikes import add_strike, read_strikes, remove_strike
from mqworker.operate.wording import NOTHING, moment, safe

_COLUMNS = (
    Column("id", "<", is_whole=True),
    Column("until", "<"),
    Column("by", "<"),
    Column("skips", "<"),
)


@server_group("strike")
def strike_command() -> None:
    """Skip calls of a task with certain arguments, for a while."""


@strike_command.command()
@click.option("--task", default="*", help="Its name; shop.* for all that begin so.  [default: all]")
@click.option(
    "--where", multiple=True, metavar="WORD=VALUE", help="args.tenant=acme or tag=import; may be repeated."
)
@click.option("--until", metavar="DURATION", default="", help="30m, 2h, 1d.  [default: until it is removed]")
@click.option("--reason", default="", help="A sentence for those who wonder.")
@click.pass_obj
def add(target: Target, task: str, where: tuple[str, ...], until: str, reason: str) -> None:
    """Begin to skip calls.

    What fits becomes a dead letter with the reason `struck`, without being run.
    """
    with target.open() as system:
        strike = add_strike(system, who(), task=task, where=where, until=until, reason=reason)
    click.echo(f"strike {strike.id}: {safe(strike.told)}; what it skips: `mqworker job list error:Struck`")


@strike_command.command("list")
@JSON
@click.pass_obj
def list_(target: Target, *, is_json: bool) -> None:
    """List the strikes that are in force."""
    with target.open() as system:
        now_ms, strikes = system.now_ms(), read_strikes(system)
    if is_json:
        click.echo(json.dumps(strikes_document(strikes)))
        return
    rows: list[list[Cell | str]] = [
        [
            strike.id,
            NOTHING if strike.until_ms is None else moment(strike.until_ms, now_ms),
            safe(strike.by),
            safe(f"{strike.told}  {strike.note}".strip()),
        ]
        for strike in strikes
    ]
    click.echo("\n".join(table(_COLUMNS, rows, width=terminal_width())) if rows else "no strikes")


@strike_command.command()
@click.argument("id_", metavar="ID")
@click.pass_obj
def remove(target: Target, id_: str) -> None:
    """Let those calls run again.

    What was skipped stays dead until it is put back.
    """
    with target.open() as system:
        strike = remove_strike(system, who(), id_)
    click.echo(f"strike {strike.id} is removed: {safe(strike.told)}")
