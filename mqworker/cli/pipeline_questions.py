"""What `mqworker pipeline sql` and `trace` show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mqworker.cli.report_screen import time
from mqworker.cli.table import Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.cli.text import NOTHING, counted, safe
from mqworker.redaction import masked_text
from mqworker_services.pipeline.lake_sql import Found, query, query_on_spark
from mqworker_services.pipeline.trace import trace

if TYPE_CHECKING:
    from mqworker.cli.pipeline import PipelineRun


def run_sql(pipeline_run: PipelineRun, sql: str, *, most: int, is_json: bool) -> None:
    """Ask and show; with `is_json` a document for each row."""
    if pipeline_run.is_on_spark:
        with pipeline_run.trouble():
            found = query_on_spark(pipeline_run.spark(), pipeline_run.lake, sql, most)
    else:
        found = query(pipeline_run.lake, sql, most)
    click.echo("\n".join(_documents(found) if is_json else _lines(found)))
    if found.has_more:
        click.echo(f"only the first {counted(most, 'row')}; --limit shows more", err=True)


def run_trace(pipeline_run: PipelineRun, task_id: str, *, is_json: bool) -> None:
    """Show everything that happened to one message."""
    rows = trace(pipeline_run.engine(), pipeline_run.lake, task_id)
    if is_json:
        click.echo("\n".join(json.dumps(_masked(row), default=str) for row in rows))
        return
    names = ("when", "event", "task", "queue", "attempt", "worker", "wait", "run", "error")
    sides = {"attempt": ">", "wait": ">", "run": ">"}
    columns = [Column(name, sides.get(name, "<"), is_whole=name == "when") for name in names]
    click.echo("\n".join(table(columns, [_event(row) for row in rows], width=terminal_width())))


def _documents(found: Found) -> Iterator[str]:
    for row in found.rows:
        yield json.dumps(dict(zip(found.columns, row, strict=True)), default=str)


def _lines(found: Found) -> list[str]:
    rows = [[NOTHING if value is None else safe(str(value)) for value in row] for row in found.rows]
    return table([Column(safe(name), "<") for name in found.columns], rows, width=terminal_width())


# Any: a row is a value for each column.
def _masked(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "error_msg": None if row["error_msg"] is None else masked_text(row["error_msg"])}


def _event(row: dict[str, Any]) -> list[str]:
    said = ": ".join(filter(None, (row["error"], row["error_msg"] and masked_text(row["error_msg"]))))
    worker = "/".join(filter(None, (row["node"], row["worker"])))
    shown = (row["event"], row["task"], row["queue"], row["attempt"], worker)
    return [
        row["ts"].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
        *(NOTHING if value in {None, ""} else safe(str(value)) for value in shown),
        time(row["wait_ms"]),
        time(row["run_ms"]),
        safe(said) or NOTHING,
    ]
