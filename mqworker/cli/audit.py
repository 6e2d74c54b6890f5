"""`mqworker audit`: what was done from the console and by commands."""

from __future__ import annotations

import json

import click

from mqworker.cli.server import JSON, REDIS_URL, Target
from mqworker.cli.table import Cell, Column, table
from mqworker.cli.terminal import terminal_width
from mqworker.operate.audit import read_audit
from mqworker.operate.documents import audit_document
from mqworker.operate.wording import moment, safe

_COLUMNS = (Column("when", "<"), Column("who", "<"), Column("how many"), Column("what happened", "<"))


@click.command("audit")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many."
)
@JSON
@REDIS_URL
def audit_command(limit: int, is_json: bool, redis_url: str | None) -> None:  # noqa: FBT001 - click's way
    """Show who did what, the newest first."""
    with Target(redis_url).open() as system:
        now_ms, deeds = system.now_ms(), read_audit(system, limit)
    if is_json:
        click.echo(json.dumps(audit_document(deeds)))
        return
    rows: list[list[Cell | str]] = [
        [
            moment(noted.at_ms, now_ms),
            safe(noted.deed.who),
            f"{noted.deed.count:,}",
            safe(noted.deed.outcome),
        ]
        for noted in deeds
    ]
    click.echo("\n".join(table(_COLUMNS, rows, width=terminal_width())) if rows else "nothing was done yet")
