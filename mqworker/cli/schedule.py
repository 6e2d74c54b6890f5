"""`mqworker schedule`: when each schedule fires, what it fired last; make, pause, run and delete them."""

from __future__ import annotations

import json

import click

from mqworker.cli.audited import audited, who
from mqworker.cli.schedule_screen import FIRING_COLUMNS, SCHEDULE_COLUMNS, facts, firing_row, schedule_row
from mqworker.cli.server import JSON, Target, server_group
from mqworker.cli.table import table
from mqworker.cli.terminal import terminal_width
from mqworker.errors import InvalidArgument
from mqworker.operate.actions import Request, act
from mqworker.operate.calls import Caller, call_of
from mqworker.operate.documents import schedule_document, schedules_document
from mqworker.operate.schedules import (
    LARGEST_PAGE,
    delete_schedule_of_code,
    read_history,
    read_schedule,
    read_schedules,
)

NAME = click.argument("name", metavar="NAME")


@server_group("schedule")
def schedule_command() -> None:
    """Look at schedules; make, pause, run and delete them."""


@schedule_command.command("list")
@click.option("--prefix", default="", help="Only names that begin so, in the order of names.")
@click.option("--after", default="", help="With --prefix: go on behind this name.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Pass over so many that fire sooner.")
@click.option("--limit", type=click.IntRange(1, LARGEST_PAGE), default=LARGEST_PAGE, help="How many.")
@JSON
@click.pass_obj
def list_all(  # noqa: PLR0917 - click's way
    target: Target,
    prefix: str,
    after: str,
    offset: int,
    limit: int,
    is_json: bool,  # noqa: FBT001
) -> None:
    """Show schedules, the one that fires next first."""
    with target.open() as system:
        found = read_schedules(system, prefix=prefix, after=after, offset=offset, limit=limit)
    if is_json:
        click.echo(json.dumps(schedules_document(found)))
        return
    rows = [schedule_row(view, found.at_ms) for view in found.schedules]
    nobody = (
        f"no schedule begins with {prefix}"
        if prefix
        else "no app has published a schedule, and nobody put one"
    )
    lines = table(SCHEDULE_COLUMNS, rows, width=terminal_width()) if rows else [nobody]
    lines += [f"and {found.left_out:,} more: --offset {offset + limit}"] if found.left_out else []
    lines += [f"there may be more: --after {found.after}"] if found.after else []
    lines += [f"{found.unreadable:,} cannot be read: see `mqworker doctor`"] if found.unreadable else []
    click.echo("\n".join(lines))


@schedule_command.command()
@NAME
@JSON
@click.pass_obj
def show(target: Target, name: str, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Show one schedule.

    Whose it is, its next firings, its last one and the job that it became.
    """
    with target.open() as system:
        at_ms, view = read_schedule(system, name)
    if is_json:
        click.echo(json.dumps({"at_ms": at_ms, **schedule_document(view)}))
        return
    for label, text in facts(view, at_ms):
        click.echo(f"{label:<12}  {text}".rstrip())


@schedule_command.command()
@NAME
@JSON
@click.pass_obj
def history(target: Target, name: str, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Show its last firings, the newest first: twenty at the most."""
    with target.open() as system:
        at_ms, view = read_schedule(system, name)
        firings = read_history(system, view.name)
    if is_json:
        click.echo(json.dumps({"at_ms": at_ms, **schedule_document(view, firings)}))
        return
    rows = [firing_row(view, each, at_ms) for each in firings]
    lines = table(FIRING_COLUMNS, rows, width=terminal_width()) if rows else ["it has fired nothing so far"]
    click.echo("\n".join(lines))


@schedule_command.command()
@NAME
@click.option("--task", required=True, help="What is called; its workers must have published it.")
@click.option("--cron", help="Five fields: minute hour day-of-month month day-of-week.")
@click.option("--every", type=float, help="Seconds, instead of --cron.")
@click.option("--timezone", default="UTC", show_default=True, help="Of the cron line.")
@click.option("--jitter", type=float, default=0, help="Put each tick off by up to so many seconds.")
@click.option("--catch-up", type=click.Choice(["skip", "one", "all"]), default="skip", show_default=True)
@click.option("--args", "args_json", default="[]", help="Arguments as a JSON list.")
@click.option("--kwargs", "kwargs_json", default="{}", help="Keyword arguments as a JSON object.")
@JSON
@click.pass_obj
def put(  # noqa: PLR0917 - click's way
    target: Target,
    name: str,
    task: str,
    cron: str | None,
    every: float | None,
    timezone: str,
    jitter: float,
    catch_up: str,
    args_json: str,
    kwargs_json: str,
    is_json: bool,  # noqa: FBT001
) -> None:
    """Make a schedule, or change the one of this name.

    It stays until it is deleted, whatever is deployed. Names that the code of an app has are refused.
    """
    call = call_of(task, {"args": _json("--args", args_json), "kwargs": _json("--kwargs", kwargs_json)})
    given = {"--cron": cron, "--every": every, "--timezone": timezone, "--jitter": jitter or None}
    given |= {
        "--catch-up": catch_up,
        "--args": "…" if call.args else None,
        "--kwargs": "…" if call.kwargs else None,
    }
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    # Arguments may be secret: the audit says that there were some.
    words = [name, "--task", task, *words]
    with target.open() as system, audited(system, "schedule put", *words, what=name) as doing:
        caller = Caller(system.settings)
        try:
            caller.schedule(
                name, call, cron=cron, every=every, timezone=timezone, jitter=jitter, catch_up=catch_up
            )
        finally:
            caller.close()
        at_ms, view = read_schedule(system, name)
        if is_json:
            doing.count, doing.outcome = 1, f"schedule {name} is stored"
            click.echo(json.dumps({"at_ms": at_ms, **schedule_document(view)}))
        else:
            doing.tell(f"schedule {name} calls {view.task} in queue {view.queue}: {view.timing}")


@schedule_command.command()
@NAME
@JSON
@click.pass_obj
def pause(target: Target, name: str, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Fire nothing until resumed. What comes due meanwhile is not caught up."""
    _act(target, "pause-schedule", name, is_json=is_json)


@schedule_command.command()
@NAME
@JSON
@click.pass_obj
def resume(target: Target, name: str, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Fire again, from the next tick on."""
    _act(target, "resume-schedule", name, is_json=is_json)


@schedule_command.command("run-now")
@NAME
@JSON
@click.pass_obj
def run_now(target: Target, name: str, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Make its call once, now.

    Beside its ticks, and also while it is paused.
    """
    _act(target, "run-schedule", name, is_json=is_json)


@schedule_command.command()
@NAME
@click.option("--of-code", is_flag=True, help="Also one of an app's code: of an app that no longer runs.")
@JSON
@click.pass_obj
def delete(target: Target, name: str, of_code: bool, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """End a schedule and forget its history.

    Calls that are in line already run.
    """
    if not of_code:
        _act(target, "delete-schedule", name, is_json=is_json)
        return
    with target.open() as system, audited(system, "schedule delete", name, "--of-code", what=name) as doing:
        is_gone = delete_schedule_of_code(system, name)
        doing.count = int(is_gone)
        doing.outcome = f"schedule {name} is deleted" if is_gone else f"there was no schedule {name}"
        click.echo(json.dumps({"outcome": doing.outcome}) if is_json else doing.outcome)


@schedule_command.command()
@NAME
@click.argument("start", metavar="FROM")
@click.argument("end", metavar="TO")
@JSON
@click.pass_obj
def backfill(target: Target, name: str, start: str, end: str, is_json: bool) -> None:  # noqa: FBT001
    """Make its call for each tick from one moment up to before another.

    Whether it was fired then or not. Moments are written like 2026-03-01T04:00Z. Asked for again it stores no
    call twice as long as ids are remembered (dedup_window_s).
    """
    _act(target, "backfill-schedule", name, start, end, is_json=is_json)


def _act(target: Target, action: str, name: str, *more: str, is_json: bool) -> None:
    with target.open() as system:
        _, view = read_schedule(system, name)
        outcome = act(system, Request(action, view.queue, " ".join([view.name, *more])), who())
        click.echo(json.dumps({"outcome": outcome}) if is_json else outcome)


def _json(option: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{option} is {text!r}: {error}; accepted is JSON") from error
