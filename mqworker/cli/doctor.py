"""`mqworker doctor`: what is wrong with the server and the data on it, and how to mend it."""

from __future__ import annotations

import string
from collections.abc import Sequence
from contextlib import closing

import click

from mqworker.cli.audited import audited
from mqworker.cli.connect import connect
from mqworker.cli.text import counted, safe
from mqworker.errors import ConfigurationError
from mqworker.model.quarantine import BadEntry, BadPlace, Removal
from mqworker.model.view import NodeView
from mqworker.operate.system import System
from mqworker.queues.work.diagnosis import find_bad_entries, find_unnamed, remove
from mqworker.queues.work.snapshots import read_nodes
from mqworker.settings import load_settings
from mqworker.store.server_check import check_server
from mqworker.store.store import Store

_PLAIN = frozenset((string.ascii_letters + string.digits + string.punctuation).encode()) - frozenset(b'"\\')


@click.command("doctor")
@click.option("-r", "--redis-url", help="Server to ask.  [default: as configured, else the embedded one]")
@click.option("--remove-quarantined", "is_removing", is_flag=True, help="Remove it, asking for each first.")
@click.option("--yes", "is_sure", is_flag=True, help="With --remove-quarantined: do not ask.")
@click.pass_context
def doctor_command(
    context: click.Context,
    redis_url: str | None,
    is_removing: bool,  # noqa: FBT001 - how click passes a flag
    is_sure: bool,  # noqa: FBT001 - same
) -> None:
    """Check the server, and what nodes skip because it is foreign.

    Nothing is changed without --remove-quarantined. Exit code 0: nothing is wrong, 1: something is.
    """
    settings = load_settings(flags={"redis_url": redis_url})
    with closing(connect(settings)) as store:
        is_server_fine = _show_server(store)
        _show_drains(read_nodes(store, settings.namespace))
        found = find_bad_entries(store, settings.namespace)
        unnamed = find_unnamed(store, settings.namespace, found)
        _show_found(found, unnamed)
        system = System(settings, store)
        left = [bad for bad in found if not (is_removing and _is_removed(system, bad, is_sure=is_sure))]
        if is_removing and unnamed:
            click.echo("there are more: run it again in a few seconds, when nodes have named the next")
    context.exit(0 if is_server_fine and not left and not unnamed else 1)


def _show_server(store: Store) -> bool:
    try:
        facts = check_server(store.connection)
    except ConfigurationError as error:
        click.echo(f"server       {safe(str(error))}")
        return False
    kept = "" if facts.is_append_only else "; no append-only file: a crash of the server loses messages"
    click.echo(f"server       {facts.product} {facts.version_text}{kept}")
    return True


def _show_drains(nodes: Sequence[NodeView]) -> None:
    """How long each node lets tasks finish when it is stopped: what they cannot finish runs again."""
    for node in nodes:
        if node.drain_s is not None:
            why = f"; {safe(node.drain_why)}" if node.drain_why else ""
            click.echo(f"drain        {safe(node.name)}: {node.drain_s:g} s{why}")


def _show_found(found: list[BadEntry], unnamed: list[BadPlace]) -> None:
    if not found and not unnamed:
        click.echo("quarantined  nothing")
        return
    count = len(found) + sum(place.entries for place in unnamed)
    click.echo(f"quarantined  {counted(count, 'thing')}, skipped by every node until removed")
    for bad in found:
        times = f", {counted(bad.count, 'time')}" if bad.count > 1 else ""
        click.echo(f"  {described(bad)}: {safe(bad.why)}{times}")
        click.echo(f"      {_advice(bad)}")
    for place in unnamed:
        most = "more than could be counted" if place.is_more else f"{place.entries:,} more"
        click.echo(f"  {safe(place.kind)} in {safe(place.where)}: {most}, not named here")


def described(bad: BadEntry) -> str:
    """What it is and where it lies."""
    entry = f" {safe(bad.entry)}" if bad.entry else ""
    return f"{safe(bad.kind)}{entry} in {safe(bad.where)}" if bad.entry else f"{bad.kind} {safe(bad.where)}"


def _advice(bad: BadEntry) -> str:
    match bad.removal:
        case None if bad.kind == "wake-up":
            return "it came over a channel and is gone; see who publishes there"
        case None:
            return "nothing to remove here; the cause is in the entries above, or in the key that is named"
        case Removal("DEL", key):
            return f"remove it with --remove-quarantined, or: redis-cli DEL {_quoted(key.encode())}"
        case Removal(command, key, member):
            line = f"{command} {_quoted(key.encode())} {_quoted(member)}"
            return f"remove it with --remove-quarantined, or: redis-cli {line}"


def _quoted(text: bytes) -> str:
    """As redis-cli reads it on a line of its own."""
    inside = (chr(each) if each in _PLAIN else f"\\x{each:02x}" for each in text)
    return f'"{"".join(inside)}"'


def _is_removed(system: System, bad: BadEntry, *, is_sure: bool) -> bool:
    if bad.removal is None:
        return bad.kind == "wake-up"
    if not is_sure and not click.confirm(f"remove {described(bad)}?"):
        return False
    with audited(system, "doctor", "--remove-quarantined", what=described(bad)) as doing:
        was_there = remove(system.store, bad)
        outcome = f"removed {described(bad)}" if was_there else f"not there any more: {described(bad)}"
        doing.tell(outcome, int(was_there))
    return True
