"""`mqworker job list`: jobs by state, queue, task, id, error, age, tag and argument."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from mqworker.cli.server import JSON, Target
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.operate.documents import search_document
from mqworker.operate.job_filter import parse_filter
from mqworker.operate.lake import search_with_lake
from mqworker.operate.search import MOST_LOOKED_AT, SearchSlice
from mqworker.operate.wording import safe, short_duration

_COLUMNS = (
    Column("id", "<", is_whole=True),
    Column("queue", "<"),
    Column("state", "<"),
    Column("task", "<"),
    Column("age"),
    Column("attempt"),
    Column("tags, error", "<"),
)


@click.command("list")
@click.argument("words", metavar="[WORD]...", nargs=-1)
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many."
)
@click.option(
    "--look-at",
    type=click.IntRange(1),
    default=MOST_LOOKED_AT,
    show_default=True,
    help="Stop after so many messages.",
)
@click.option("--cursor", help="Go on where a search before this one stopped.")
@JSON
@click.pass_obj
def list_command(
    target: Target,
    words: tuple[str, ...],
    *,
    limit: int,
    look_at: int,
    cursor: str | None,
    is_json: bool,
) -> None:
    """List jobs that fit all WORDs.

    state:dead queue:mail task:shop.charge id:01J error:Timeout age:>5m tag:import args.tenant:acme; a plain
    word is part of an id, a task or an error. Without a state: all that is not settled. Ended ones are found
    while their events are kept, and then in the lake, if the setting names one.
    """
    wanted = parse_filter(words_of(words))
    with target.open() as system:
        now_ms = system.now_ms()
        found = search_with_lake(system, wanted, cursor, most=limit, budget=look_at)
    click.echo(json.dumps(search_document(found)) if is_json else "\n".join(_lines(found, now_ms)))


def words_of(words: Iterable[str]) -> str:
    """Words that the shell took apart already, each in one piece for the filter."""
    return " ".join(json.dumps(word, ensure_ascii=False) if " " in word else word for word in words)


def _lines(found: SearchSlice, now_ms: int) -> list[str]:
    rows: list[list[Cell | str]] = [
        [
            safe(job.id),
            safe(job.queue),
            job.state,
            safe(job.task),
            short_duration(None if job.enqueued_at_ms is None else now_ms - job.enqueued_at_ms),
            str(job.attempt),
            Cell(safe(" ".join([*(f"#{tag}" for tag in job.tags), job.error])), is_dim=True),
        ]
        for job in found.jobs
    ]
    lines = table(_COLUMNS, rows, width=terminal_width()) if rows else ["nothing fits"]
    rest = "all there is" if found.cursor is None else f"there is more: --cursor {found.cursor} goes on"
    return [*lines, click.style(f"looked at {found.looked_at:,}; {rest}", dim=True)]
