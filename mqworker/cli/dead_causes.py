"""`mqworker dead causes`: dead letters in groups that died of the same; and what is done to a whole group."""

from __future__ import annotations

import json

import click

from mqworker.cli.audited import who
from mqworker.cli.server import JSON, QUEUE, Target, confirm
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.operate.actions import Request, act, preview
from mqworker.operate.causes import Causes, read_causes
from mqworker.operate.documents import causes_document
from mqworker.operate.wording import NOTHING, counted, safe, short_duration

_COLUMNS = (
    Column("cause", "<", is_whole=True),
    Column("dead"),
    Column("queue", "<"),
    Column("task", "<"),
    Column("newest"),
    Column("error", "<"),
    Column("where", "<"),
)


@click.command("causes")
@QUEUE
@JSON
@click.pass_obj
def causes_command(target: Target, queue: str | None, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Group dead letters by cause: task, error and first own frame."""
    with target.open() as system:
        now_ms, found = system.now_ms(), read_causes(system, queue)
    if is_json:
        click.echo(json.dumps(causes_document(found)))
        return
    click.echo("\n".join(_lines(found, now_ms)))


def act_on_cause(target: Target, request: Request, *, is_yes: bool) -> None:
    """Do it to the whole group, after a question that names the count."""
    with target.open() as system:
        if not is_yes:
            confirm(f"{preview(system, request).effect} Throw them away?", is_yes=is_yes)
        click.echo(act(system, request, who()))


def _lines(found: Causes, now_ms: int) -> list[str]:
    if not found.causes:
        return ["no dead letters"]
    rows: list[list[Cell | str]] = [
        [
            cause.id,
            f"{cause.count:,}",
            safe(cause.queue),
            safe(cause.task),
            short_duration(now_ms - cause.last_at_ms),
            safe(cause.error or cause.reason),
            Cell(safe(cause.frame) or NOTHING, is_dim=True),
        ]
        for cause in found.causes
    ]
    lines = table(_COLUMNS, rows, width=terminal_width())
    if found.looked_at < found.total:
        rest = counted(found.total - found.looked_at, "older dead letter")
        lines.append(click.style(f"looked at the newest {found.looked_at:,}; {rest} not", dim=True))
    return lines
