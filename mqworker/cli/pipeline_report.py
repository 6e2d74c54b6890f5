"""What `mqworker pipeline report` does: check the question, look at the files, then read them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqworker.cli.report_screen import report_lines
from mqworker.cli.terminal import terminal_width
from mqworker.errors import InvalidArgument, MqworkerError
from mqworker_services.pipeline.report.answers import make_report
from mqworker_services.pipeline.report.document import document
from mqworker_services.pipeline.report.files import look_at_files
from mqworker_services.pipeline.report.page import page as html_page
from mqworker_services.pipeline.report.question import By, Detail, Question, window
from mqworker_services.pipeline.report.time_zones import check_zone
from mqworker_services.pipeline.report.trends import parse_slo

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
    tz: str
    slos: Sequence[str]
    is_compared: bool
    is_forecast: bool
    is_json: bool
    html: Path | None


def run_report(pipeline_run: PipelineRun, options: ReportOptions, now_ms: int) -> None:
    """Make the report and show it as was asked."""
    question = _question(pipeline_run, options, now_ms)
    extent = look_at_files(question.lake, question.window, question.queues)
    report = make_report(pipeline_run.engine(), question, extent)
    for sentence in report.unknown:
        click.echo(f"warning: {sentence}", err=True)
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
    zone = check_zone(options.tz)
    asked = window(options.since, options.until, now_ms, zone)
    if options.is_compared:
        asked.before()  # refuses a window without a beginning
        if options.by in {"hour", "day"}:
            raise InvalidArgument(
                f"--compare is given with --by {options.by}; accepted is task, queue, worker or node"
            )
    return Question(
        lake=pipeline_run.lake,
        window=asked,
        by=By(options.by),
        tasks=options.tasks,
        queues=options.queues,
        slowest=options.slowest,
        sla_ms=options.sla_ms,
        detail=Detail.PAGE if is_page else Detail.TABLE,
        zone=zone,
        slos=[parse_slo(text) for text in options.slos],
        is_compared=options.is_compared,
        is_forecast=options.is_forecast,
    )
