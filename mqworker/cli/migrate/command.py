"""`mqworker migrate`: see what of a Celery project carries over, and give back what was taken."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from mqworker.cli.audited import audited
from mqworker.cli.migrate.findings import Finding, Verdict
from mqworker.cli.migrate.source import Survey, survey
from mqworker.cli.server import JSON, Target, server_group
from mqworker.cli.status.model_lines import CELERY
from mqworker.cli.text import counted, safe
from mqworker.errors import InvalidArgument
from mqworker.queues.celery.queue import CeleryTaskQueue

_COLOUR_BY_VERDICT = {Verdict.SAME: "green", Verdict.MAPS: "yellow", Verdict.NOT: "red"}
_MEANING_BY_VERDICT = {
    Verdict.SAME: "as it is",
    Verdict.MAPS: "by another name",
    Verdict.NOT: "to be decided by you",
}


@server_group("migrate")
def migrate_command() -> None:
    """Come from Celery: see what carries over, or go back."""


@migrate_command.command()
@click.argument("app", metavar="APP")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Where the source is; by default here.",
)
@JSON
def celery(app: str, directory: Path, *, is_json: bool) -> None:
    """List what a Celery project uses, and what it is here.

    APP is what Celery's own -A takes: proj.celery:app. Each use has its file and line. Only the source is
    read: nothing of it is imported or run, and Celery need not be installed. What is built while the program
    runs is not seen.
    """
    found = survey(directory.resolve(), app)
    if is_json:
        tasks = [{"path": path, "line": line, "name": name} for path, line, name in found.tasks]
        findings = [asdict(each) for each in found.findings]
        unread = [{"path": path, "problem": problem} for path, problem in found.unread]
        click.echo(json.dumps({"tasks": tasks, "findings": findings, "unread": unread}))
        return
    click.echo("\n".join(_lines(found)))


@migrate_command.command("back")
@click.argument("queue", metavar="QUEUE")
@click.pass_obj
def back(target: Target, queue: str) -> None:
    """Put what waits for its time or next try into Celery's lists.

    For the way back to Celery, when no node of ours goes on. What a living node holds is not touched.
    """
    with target.open() as server:
        others = server.model_queues()
        if queue not in others or others[queue].title != CELERY:
            known = ", ".join(name for name, each in others.items() if each.title == CELERY) or "none"
            raise InvalidArgument(
                f"QUEUE is {queue}; accepted are queues of Celery that a node has consumed of late: {known}"
            )
        with audited(server, "migrate back", queue, queue=queue) as doing:
            given = CeleryTaskQueue(queue, server.store, others[queue].celery_options).give_back()
            doing.tell(f"{counted(given, 'message')} of queue {queue} back in Celery's lists", given)


def _lines(found: Survey) -> list[str]:
    lines = [f"{safe(path)}:{line}  task {safe(name)}" for path, line, name in found.tasks]
    if not found.tasks:
        lines.append("no tasks were found: is --directory the root of the project?")
    lines += [_line(each) for each in found.findings]
    lines += [f"{safe(path)}  not read: {safe(problem)}" for path, problem in found.unread]
    by_verdict = Counter(each.verdict for each in found.findings)
    told = ", ".join(f"{by_verdict[verdict]} {meaning}" for verdict, meaning in _MEANING_BY_VERDICT.items())
    return [*lines, "", f"{counted(found.files, 'file')}, {counted(len(found.tasks), 'task')}; {told}"]


def _line(finding: Finding) -> str:
    verdict = click.style(f"{finding.verdict:<4}", fg=_COLOUR_BY_VERDICT[finding.verdict])
    return f"{safe(finding.path)}:{finding.line}  {verdict}  {safe(finding.name)}: {finding.ours}"
