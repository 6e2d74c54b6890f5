"""`mqworker bulk`: retry, drop or cancel all jobs that fit the words of a search."""

from __future__ import annotations

import json

import click

from mqworker.cli.audited import who
from mqworker.cli.job_list import words_of
from mqworker.cli.server import JSON, REDIS_URL, Target, confirm
from mqworker.operate.bulk import HIGHEST_RATE, KINDS, Bulk, preview_bulk, run_bulk
from mqworker.operate.documents import bulk_document


@click.command("bulk")
@click.argument("action", type=click.Choice(list(KINDS)))
@click.argument("words", metavar="WORD...", nargs=-1, required=True)
@click.option("--rate", type=click.IntRange(1, HIGHEST_RATE), help="Jobs in a second at the most.")
@click.option(
    "--before",
    "before_ms",
    type=click.IntRange(0),
    metavar="MS",
    help="Only what was dead, or enqueued, at this instant (ms since 1970); without it, now.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Only count.")
@click.option("--yes", "is_yes", is_flag=True, help="Do not ask.")
@JSON
@REDIS_URL
def bulk_command(
    action: str,
    words: tuple[str, ...],
    *,
    rate: int | None,
    before_ms: int | None,
    is_dry: bool,
    is_yes: bool,
    is_json: bool,
    redis_url: str | None,
) -> None:
    """Retry, drop or cancel all jobs that fit a search, throttled.

    The WORDs are those of `mqworker job list`; retry and drop mean dead letters.

    It counts, asks, and begins. Given again after it was interrupted, with the --before that the audit shows,
    it does what is left and nothing twice.
    """
    with Target(redis_url).open() as system:
        found = preview_bulk(system, Bulk(action, words_of(words), rate, before_ms))
        if is_dry:
            click.echo(
                json.dumps(bulk_document(found)) if is_json else f"{found.effect} {found.bulk.command}"
            )
            return
        if found.count == 0 and found.is_complete:
            click.echo(json.dumps(bulk_document(found) | {"outcome": ""}) if is_json else "nothing fits")
            return
        confirm(f"{found.effect} {found.bulk.kind.verb}?", is_yes=is_yes)
        outcome = run_bulk(system, found.bulk, who())
    click.echo(json.dumps(bulk_document(found) | {"outcome": outcome}) if is_json else outcome)
