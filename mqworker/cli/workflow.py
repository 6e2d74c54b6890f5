"""`mqworker workflow`: one workflow with its members and where each of them is; and its end."""

from __future__ import annotations

import json

import click

from mqworker.cli.audited import audited
from mqworker.cli.server import JSON, Target, server_group
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.errors import MqworkerError
from mqworker.operate.documents import workflow_document, workflows_document
from mqworker.operate.wording import duration, safe
from mqworker.operate.workflows import (
    WorkflowView,
    cancel_workflow,
    read_workflow,
    read_workflows,
    workflow_summary,
)

_COLUMNS = (
    Column("member", "<", is_whole=True),
    Column("state", "<"),
    Column("after", "<"),
    Column("queue", "<"),
    Column("task", "<"),
)
_COLOR_BY_STATE = {"succeeded": "green", "failed": "red", "expired": "red", "running": "cyan"}
_MOST_SHOWN = 200


@server_group("workflow")
def workflow_command() -> None:
    """Look at workflows and their members, and cancel them."""


@workflow_command.command("list")
@JSON
@click.pass_obj
def list_all(target: Target, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Show the newest workflows that are still kept."""
    with target.open() as system:
        found = read_workflows(system)
    if is_json:
        click.echo(json.dumps(workflows_document(found)))
        return
    rows: list[list[Cell | str]] = [
        [each.id, Cell(each.state, _COLOR_BY_STATE.get(each.state))] for each in found
    ]
    columns = (Column("workflow", "<", is_whole=True), Column("state", "<"))
    click.echo("\n".join(table(columns, rows, width=terminal_width())) if rows else "no workflow is kept")


@workflow_command.command()
@click.argument("id_", metavar="ID")
@JSON
@click.pass_obj
def show(target: Target, id_: str, is_json: bool) -> None:  # noqa: FBT001 - click's way
    """Show a workflow: its members, and where each of them is."""
    with target.open() as system:
        view = read_workflow(system, id_)
    click.echo(json.dumps(workflow_document(view)) if is_json else "\n".join(workflow_lines(view)))


@workflow_command.command()
@click.argument("id_", metavar="ID")
@click.pass_obj
def cancel(target: Target, id_: str) -> None:
    """Cancel a workflow, or a job with all that it has spawned."""
    with target.open() as system, audited(system, "workflow cancel", id_, what=id_) as doing:
        if not cancel_workflow(system, id_):
            raise MqworkerError(
                f"workflow {safe(id_)} has ended, or there is none: there is nothing to cancel"
            )
        doing.tell(f"workflow {id_} is cancelled")


def workflow_lines(view: WorkflowView) -> list[str]:
    """A workflow on a terminal."""
    failed = f", by member {view.failed_node}" if view.failed_node is not None else ""
    kept = f"; kept for {duration(view.kept_ms)} more" if view.kept_ms and view.state != "running" else ""
    lines = [f"{'workflow':<12}  {view.id}", f"{'state':<12}  {view.state}{failed}{kept}"]
    lines += [f"{'members':<12}  {workflow_summary(view)}", ""]
    before: dict[int, list[str]] = {}
    for node in view.nodes:
        for follower in node.followers:
            before.setdefault(follower, []).append(str(node.node))
    rows: list[list[Cell | str]] = [
        [
            safe(node.id) if not node.is_join else f"  join {node.node}",
            Cell(node.status, _COLOR_BY_STATE.get(node.status)),
            _after(before.get(node.node, [])),
            safe(node.queue),
            safe(node.task) if not node.is_join else f"collects {len(node.inputs):,}",
        ]
        for node in view.nodes[:_MOST_SHOWN]
    ]
    lines += table(_COLUMNS, rows, width=terminal_width())
    left_out = len(view.nodes) - _MOST_SHOWN
    return [*lines, f"and {left_out:,} more: --json has all of them"] if left_out > 0 else lines


def _after(nodes: list[str]) -> str:
    most = 4
    return ", ".join(nodes[:most]) + (f", … {len(nodes):,}" if len(nodes) > most else "")
