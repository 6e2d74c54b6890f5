"""`mqworker stats`: throughput, failures, wait and run by task, over the last minutes to a day."""

from __future__ import annotations

import json

import click

from mqworker.cli.server import JSON, QUEUE, REDIS_URL, Target
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.operate.documents import statistics_document
from mqworker.operate.figures import Statistics, TaskRow, read_statistics
from mqworker.operate.job_filter import duration_ms
from mqworker.operate.wording import duration, precise_duration, rate, safe, short_count

_COLUMNS = (
    Column("task", "<"),
    Column("queue", "<"),
    Column("runs"),
    Column("per s"),
    Column("failed"),
    Column("wait p95"),
    Column("run p50"),
    Column("run p95"),
)


@click.command("stats")
@click.option("--last", default="15m", show_default=True, metavar="DURATION", help="5m, 1h, up to 1d.")
@QUEUE
@click.option("-t", "--task", help="Only tasks with this in their name.")
@JSON
@REDIS_URL
def stats_command(
    last: str, *, queue: str | None, task: str | None, is_json: bool, redis_url: str | None
) -> None:
    """Show throughput, failures, wait and run by task, up to a day.

    The busiest first. Times are right within an eighth, about; waits are those of first attempts. Nodes write
    every ten seconds.
    """
    last_ms = duration_ms("--last", last)
    with Target(redis_url).open() as system:
        found = read_statistics(system, last_ms, queue=queue, task=task)
    click.echo(json.dumps(statistics_document(found)) if is_json else "\n".join(_lines(found)))


def _lines(found: Statistics) -> list[str]:
    span = duration(found.until_ms - found.from_ms)
    if not found.rows:
        return [f"nothing ran in the last {span}"]
    lines = table(_COLUMNS, [_row(row) for row in found.rows], width=terminal_width())
    return [*lines, click.style(f"the last {span}; waits of first attempts", dim=True)]


def _row(row: TaskRow) -> list[Cell | str]:
    failed = Cell(short_count(row.failed), color="red") if row.failed else Cell("0", is_dim=True)
    times = [row.wait_ms[1], *row.run_ms[:2]]
    head: list[Cell | str] = [safe(row.task), safe(row.queue), short_count(row.runs), rate(row.per_s), failed]
    return [*head, *map(precise_duration, times)]
