"""`mqworker doctor`: what is wrong with the server and the data on it, and how to mend it."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

import click

from mqworker.cli.audited import audited
from mqworker.cli.connect import connect
from mqworker.cli.server import JSON, REDIS_URL
from mqworker.cli.text import counted, safe
from mqworker.errors import ConfigurationError, StoreRefused
from mqworker.model.quarantine import BadEntry, BadPlace, Removal
from mqworker.model.view import NodeView
from mqworker.operate.checks import Finding, find, read_facts
from mqworker.operate.system import System
from mqworker.queues.work.diagnosis import find_bad_entries, find_unnamed, remove
from mqworker.queues.work.snapshots import read_nodes
from mqworker.settings import load_settings
from mqworker.store.server_check import check_server
from mqworker.store.store import Store

_PLAIN = frozenset((string.ascii_letters + string.digits + string.punctuation).encode()) - frozenset(b'"\\')


@click.command("doctor")
@REDIS_URL
@JSON
@click.option("--remove-quarantined", "is_removing", is_flag=True, help="Remove it, asking for each first.")
@click.option("--yes", "is_sure", is_flag=True, help="With --remove-quarantined: do not ask.")
@click.pass_context
def doctor_command(
    context: click.Context,
    *,
    redis_url: str | None,
    is_json: bool,
    is_removing: bool,
    is_sure: bool,
) -> None:
    """Check server, clock, limits and nodes, and what nodes skip.

    Nothing is changed without --remove-quarantined. Exit code 0: nothing is wrong, 1: something is.
    """
    settings = load_settings(flags={"redis_url": redis_url})
    with closing(connect(settings)) as store:
        server, system = _server(store), System(settings, store)
        found = find_bad_entries(store, settings.namespace)
        unnamed = find_unnamed(store, settings.namespace, found)
        nodes = _nodes(store, settings.namespace)
        findings = find(read_facts(system), nodes)
        if is_json:
            checks = {"findings": [asdict(each) for each in findings]}
            click.echo(json.dumps(_report(server, nodes, found, unnamed) | checks))
        else:
            click.echo(f"server       {server.told}")
            _show_findings(findings)
            _show_drains(nodes)
            _show_found(found, unnamed)
        left = [bad for bad in found if not (is_removing and _is_removed(system, bad, is_sure=is_sure))]
        if is_removing and unnamed:
            click.echo("there are more: run it again in a few seconds, when nodes have named the next")
    context.exit(0 if server.is_fine and not left and not unnamed else 1)


def _nodes(store: Store, namespace: str) -> Sequence[NodeView]:
    try:
        return read_nodes(store, namespace)
    except StoreRefused:  # a foreign key in the place of the registry: named among the quarantined
        return []


@dataclass(frozen=True, slots=True)
class _Server:
    told: str
    is_fine: bool


def _server(store: Store) -> _Server:
    try:
        facts = check_server(store.connection)
    except ConfigurationError as error:
        return _Server(safe(str(error)), is_fine=False)
    return _Server(f"{facts.product} {facts.version_text}", is_fine=True)


def _document(bad: BadEntry) -> dict[str, object]:
    facts = {"kind": bad.kind, "where": bad.where, "entry": bad.entry, "why": bad.why, "count": bad.count}
    return {**facts, "advice": _advice(bad)}


def _report(
    server: _Server, nodes: Sequence[NodeView], found: list[BadEntry], unnamed: list[BadPlace]
) -> dict[str, object]:
    return {
        "server": server.told,
        "drains": {node.name: {"s": node.drain_s, "why": node.drain_why} for node in nodes},
        "quarantined": [_document(bad) for bad in found],
        "quarantined_more": sum(place.entries for place in unnamed),
    }


def _show_findings(findings: Sequence[Finding]) -> None:
    for each in findings:
        click.echo(f"{each.what:<11}  {safe(each.told)}")
        click.echo(f"      {safe(each.advice)}")


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
