"""`mqworker schedule`: when each schedule fires, what it fired last; pause it, resume it, run it now."""

from __future__ import annotations

import json

import click

from mqworker.cli.audited import who
from mqworker.cli.server import JSON, Target, server_group
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.operate.actions import Request, act
from mqworker.operate.documents import schedule_document, schedules_document
from mqworker.operate.schedules import ScheduleView, read_schedule, read_schedules
from mqworker.operate.wording import NOTHING, duration, moment, safe, short_duration

NAME = click.argument("name", metavar="APP/NAME")
_COLUMNS = (
    Column("schedule", "<"),
    Column("fires", "<"),
    Column("next in"),
    Column("last", "<"),
    Column("task", "<"),
)


@server_group("schedule")
def schedule_command() -> None:
    """Look at schedules; pause and resume them, run one now."""


@schedule_command.command("list")
@JSON
@click.pass_obj
def list_all(target: Target, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Show all schedules, the one that fires next first."""
    with target.open() as system:
        found = read_schedules(system)
    if is_json:
        click.echo(json.dumps(schedules_document(found)))
        return
    rows = [_row(view, found.at_ms) for view in found.schedules]
    lines = table(_COLUMNS, rows, width=terminal_width()) if rows else ["no app has published a schedule"]
    lines += [f"and {found.left_out:,} more"] if found.left_out else []
    lines += [f"{found.unreadable:,} cannot be read: see `mqworker doctor`"] if found.unreadable else []
    click.echo("\n".join(lines))


@schedule_command.command()
@NAME
@JSON
@click.pass_obj
def show(target: Target, name: str, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Show one schedule.

    Its next firings, its last one and the job that it became.
    """
    with target.open() as system:
        at_ms, view = read_schedule(system, name)
    if is_json:
        click.echo(json.dumps({"at_ms": at_ms, **schedule_document(view)}))
        return
    for label, text in _facts(view, at_ms):
        click.echo(f"{label:<12}  {text}".rstrip())


@schedule_command.command()
@NAME
@click.pass_obj
def pause(target: Target, name: str) -> None:
    """Fire nothing until resumed. What comes due meanwhile is not caught up."""
    _act(target, "pause-schedule", name)


@schedule_command.command()
@NAME
@click.pass_obj
def resume(target: Target, name: str) -> None:
    """Fire again, from the next tick on."""
    _act(target, "resume-schedule", name)


@schedule_command.command("run-now")
@NAME
@click.pass_obj
def run_now(target: Target, name: str) -> None:
    """Make its call once, now.

    Beside its ticks, and also while it is paused.
    """
    _act(target, "run-schedule", name)


def _act(target: Target, action: str, name: str) -> None:
    with target.open() as system:
        _, view = read_schedule(system, name)
        click.echo(act(system, Request(action, view.queue, view.name), who()))


def _row(view: ScheduleView, at_ms: int) -> list[Cell | str]:
    paused = Cell("paused", "yellow")
    return [
        safe(view.name),
        safe(view.timing),
        paused
        if view.paused_at_ms
        else short_duration(view.next_at_ms[0] - at_ms if view.next_at_ms else None),
        moment(view.last_at_ms, at_ms) if view.last_at_ms else NOTHING,
        safe(view.task),
    ]


def _facts(view: ScheduleView, at_ms: int) -> list[tuple[str, str]]:
    words = f" ({view.words}, {view.timezone})" if view.words else ""
    catch_up = {"skip": "skipped", "one": "made up for by one", "all": "fired late, the newest hundred"}
    facts = [
        ("schedule", safe(view.name)),
        ("fires", safe(f"{view.timing}{words}")),
        ("calls", f"{safe(view.task)} in queue {safe(view.queue)}"),
        ("missed ticks", f"are {catch_up.get(view.catch_up, view.catch_up)}"),
        ("jitter", f"up to {duration(view.jitter_ms)}" if view.jitter_ms else "none"),
        ("published", f"like this since {moment(view.since_ms, at_ms)}"),
    ]
    if view.paused_at_ms is not None:
        since = f"since {moment(view.paused_at_ms, at_ms)}; `mqworker schedule resume {view.name}` ends that"
        facts.append(("paused", since))
    for position, tick_ms in enumerate(view.next_at_ms):
        told = f"{moment(tick_ms, at_ms)} (in {duration(tick_ms - at_ms)})"
        facts.append(("next" if position == 0 else "", told))
    last = NOTHING if view.last_at_ms is None else moment(view.last_at_ms, at_ms)
    return [*facts, ("last", last), ("its job", safe(view.last_job or NOTHING))]
