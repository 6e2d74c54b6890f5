"""`mqworker outbox`: the calls that wait in a database of the application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mqworker.cli.server import JSON
from mqworker.cli.text import counted, safe
from mqworker.errors import ConfigurationError
from mqworker.settings import load_settings

if TYPE_CHECKING:
    from mqworker.tasks.outbox.rows import OutboxRows

_SHOWN = 20


@click.group("outbox")
def outbox_command() -> None:
    """Look after calls that wait in a database of yours.

    It is the one of the setting outbox_url.
    """


@outbox_command.command("create")
@click.option("--sql", "is_sql", is_flag=True, help="Print the statements instead.")
def create(*, is_sql: bool) -> None:
    """Make the tables of the outbox where they are missing."""
    with _rows() as rows:
        if is_sql:
            click.echo(";\n\n".join(rows.statements()) + ";")
            return
        rows.create()
    click.echo("the outbox is there: mqworker_outbox, mqworker_outbox_state")


@outbox_command.command("show")
@JSON
def show(*, is_json: bool) -> None:
    """How many rows wait to be moved, and which cannot be.

    A row that is numbered already and waits for its queue counts in `mqworker status` alone.
    """
    with _rows() as rows:
        rows.identity()
        waiting, bad = rows.waiting({}), rows.bad(_SHOWN)
    if is_json:
        facts = {"rows": waiting.rows, "oldest_ms": waiting.oldest_ms, "bad": waiting.bad}
        named = [dict(zip(("row", "message", "queue", "reason"), each, strict=True)) for each in bad]
        click.echo(json.dumps(facts | {"quarantined": named}))
        return
    oldest = f", the oldest for {waiting.oldest_ms / 1000:.1f} s" if waiting.rows else ""
    click.echo(f"waiting      {counted(waiting.rows, 'row')}{oldest}")
    click.echo(f"quarantined  {counted(waiting.bad, 'row')}")
    for row, message, queue, reason in bad:
        click.echo(f"  row {row}, message {safe(message)} for queue {safe(queue)}: {safe(reason)}")


@outbox_command.command("retry")
def retry() -> None:
    """Let nodes look at quarantined rows anew."""
    with _rows() as rows:
        rows.identity()
        click.echo(f"{counted(rows.retry_bad(), 'row')} will be looked at anew")


@contextmanager
def _rows() -> Iterator[OutboxRows]:
    settings = load_settings()
    if settings.outbox_url is None:
        raise ConfigurationError(
            "outbox_url is not set; accepted is the URL of the database in MQWORKER_OUTBOX_URL or "
            "MQWORKER_OUTBOX_URL_FILE"
        )
    try:
        from mqworker.tasks.outbox.rows import OutboxRows  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError("the outbox needs SQLAlchemy: pip install 'mqworker[sql]'") from error
    rows = OutboxRows.open(settings.outbox_url)
    try:
        yield rows
    finally:
        rows.close()
