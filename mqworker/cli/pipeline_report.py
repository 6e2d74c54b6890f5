"""What `mqworker pipeline report` does: check the question, look at the files, then start Spark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqworker.cli.report_screen import report_lines
from mqworker.cli.terminal import terminal_width
from mqworker.errors import InvalidArgument, MqworkerError
from mqworker_services.pipeline.progress import Progress
from mqworker_services.pipeline.report.answers import make_report
from mqworker_services.pipeline.report.document import document
from mqworker_services.pipeline.report.files import look_at_files
from mqworker_services.pipeline.report.page import page as html_page
from mqworker_services.pipeline.report.question import By, Detail, Question, window

if TYPE_CHECKING:
    from mqworker.cli.pipeline import PipelineRun


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The options of the command, as they were given."""

    since: str | None
    until: str | None
    tasks: Sequence[str]
    queues: Sequence[str]
    by: str
    slowest: int
    sla_ms: float | None
    is_json: bool
    html: Path | None


def run_report(pipeline_run: PipelineRun, options: ReportOptions, now_ms: int) -> None:
    """Make the report and show it as was asked."""
    question = _question(pipeline_run, options, now_ms)
    extent = look_at_files(question.lake, question.window)
    spark = pipeline_run.spark(is_light=True)
    with Progress(sys.stderr).watching(spark, "reading the lake"):
        report = make_report(spark, question, extent)
    if options.html is not None:
        write_page(options.html, html_page(report))
    if options.is_json:
        click.echo(json.dumps(document(report)))
    elif options.html is not None:
        click.echo(f"report written to {options.html}")
    else:
        click.echo("\n".join(report_lines(report, terminal_width())))


def write_page(target: Path, text: str) -> None:
    """Write it whole or not at all: a page that was there before stays until the new one is complete."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise MqworkerError(f"the page {target} could not be written: {error.strerror}") from error


def _question(pipeline_run: PipelineRun, options: ReportOptions, now_ms: int) -> Question:
    if options.html is not None and not options.html.absolute().parent.is_dir():
        raise InvalidArgument(f"--html is {str(options.html)!r}; accepted is a file in a folder that exists")
    is_page = options.is_json or options.html is not None
    return Question(
        lake=pipeline_run.lake,
        window=window(options.since, options.until, now_ms),
        by=By(options.by),
        tasks=options.tasks,
        queues=options.queues,
        slowest=options.slowest,
        sla_ms=options.sla_ms,
        detail=Detail.PAGE if is_page else Detail.TABLE,
    )
