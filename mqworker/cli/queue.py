"""`mqworker queue`: look at queues, pause and resume them, limit their length, throw away what waits."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from mqworker.cli.audited import audited
from mqworker.cli.server import JSON, Server, Target, confirm, server_group, stored_name
from mqworker.cli.status.model_lines import ModelQueue
from mqworker.cli.status.screen import queue_lines
from mqworker.cli.terminal import terminal_width
from mqworker.cli.text import NOTHING, counted, duration, moment, rate, safe
from mqworker.model.view import QueueView, SystemView
from mqworker.operate.status_document import queue_document
from mqworker.queues.work.snapshots import read_system
from mqworker.queues.work.throughput import Waits, recent_waits

NAME = click.argument("name", callback=stored_name)
YES = click.option("--yes", "is_yes", is_flag=True, help="Do not ask.")


@server_group("queue")
def queue_command() -> None:
    """Look at queues; pause, resume, limit and purge them."""


@queue_command.command("list")
@JSON
@click.pass_obj
def list_all(target: Target, *, is_json: bool) -> None:
    """Show all queues."""
    with target.open() as server:
        view = read_system(server.store, server.settings.namespace)
    if is_json:
        click.echo(json.dumps({"queues": [queue_document(queue) for queue in view.queues]}))
        return
    click.echo("\n".join(queue_lines(view, terminal_width())))


@queue_command.command()
@NAME
@JSON
@click.pass_obj
def show(target: Target, name: str, is_json: bool) -> None:  # noqa: FBT001 - how click passes a flag
    """Show everything about one queue."""
    with target.open() as server:
        others = server.model_queues()
        if name in others and name not in server.queue_names():
            if is_json:
                click.echo(json.dumps(_model_document(others[name])))
            else:
                _echo(_model_facts(others[name]))
            return
        waits = recent_waits(server.queue(name))
        view = read_system(server.store, server.settings.namespace)
    queue = next(each for each in view.queues if each.name == name)
    if is_json:
        click.echo(json.dumps({**queue_document(queue), "waits": None if waits is None else asdict(waits)}))
        return
    _echo([*_facts(queue, view), ("p95", _waited(waits))])


@queue_command.command()
@NAME
@click.pass_obj
def pause(target: Target, name: str) -> None:
    """Hand out nothing more until resumed.

    Enqueueing goes on, and what runs is finished.
    """
    with target.open() as server:
        queue = server.queue(name)
        with audited(server, "queue pause", name, queue=name) as doing:
            # When instead of a mere 1: so that `status` and `job explain` can say since when.
            server.store.run(queue.calls.configure(paused=str(server.now_ms())))
            doing.tell(
                f"queue {name} is paused, {_waiting(server, name)} in it; "
                f"`mqworker queue resume {name}` ends the pause"
            )


@queue_command.command()
@NAME
@click.pass_obj
def resume(target: Target, name: str) -> None:
    """Hand out messages again."""
    with target.open() as server:
        queue = server.queue(name)
        with audited(server, "queue resume", name, queue=name) as doing:
            queue.resume()
            doing.tell(f"queue {name} hands out messages again, {_waiting(server, name)} in it")


@queue_command.command()
@NAME
@click.argument("length", metavar="N|none")
@click.pass_obj
def limit(target: Target, name: str, length: str) -> None:
    """Refuse to hold more than N waiting messages.

    `none` lifts the limit.
    """
    wanted = _length(length)
    with target.open() as server:
        queue = server.queue(name)
        with audited(server, "queue limit", name, length, queue=name) as doing:
            queue.limit(wanted)
            if wanted is None:
                doing.tell(f"queue {name} has no limit")
            else:
                doing.tell(f"queue {name} takes {counted(wanted, 'waiting message')} at the most")


@queue_command.command()
@NAME
@YES
@click.pass_obj
def purge(target: Target, name: str, is_yes: bool) -> None:  # noqa: FBT001 - how click passes a flag
    """Throw away everything that waits. What runs is finished, dead letters stay."""
    with target.open() as server:
        queue = server.queue(name)
        confirm(f"Throw away {_waiting(server, name)} of queue {name}?", is_yes=is_yes)
        with audited(server, "queue purge", name, queue=name) as doing:
            count = queue.purge_waiting()
            doing.tell(f"{counted(count, 'message')} of queue {name} thrown away", count)


def _echo(facts: list[tuple[str, str]]) -> None:
    for label, text in facts:
        click.echo(f"{label:<12}  {text}")


def _model_facts(queue: ModelQueue) -> list[tuple[str, str]]:
    return [
        ("queue", queue.name),
        ("model", safe(queue.title)),
        ("messages", queue.counts or "not counted yet"),
        *(("consumed by", node) for node in queue.nodes),
    ]


def _model_document(queue: ModelQueue) -> dict[str, object]:
    nodes = {node: dict(facts) for node, facts in queue.facts_by_node.items()}
    return {"name": queue.name, "model": queue.title, "nodes": nodes}


def _waiting(server: Server, name: str) -> str:
    return counted(server.queue(name).counts().waiting, "waiting message")


def _length(text: str) -> int | None:
    if text == "none":
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    raise click.BadParameter(
        f"got {safe(text)!r}; accepted is a whole number from 1, or none", param_hint="N"
    )


def _facts(queue: QueueView, view: SystemView) -> list[tuple[str, str]]:
    pace = queue.throughput
    paused = f"paused since {moment(queue.paused_at_ms, view.at_ms)}" if queue.paused_at_ms else "paused"
    drain = NOTHING if queue.drain_s is None or not queue.ready else f"about {duration(queue.drain_s * 1000)}"
    limited = f", {queue.limited:,} of them for a rate limit" if queue.limited else ""
    popped = f", and {queue.delivered:,} popped and not acknowledged" if queue.delivered else ""
    oldest = NOTHING if queue.oldest_ms is None else f"enqueued {duration(queue.oldest_ms)} ago"
    return [
        ("queue", f"{queue.name}, {paused if queue.is_paused else 'handing out'}"),
        ("ready", f"{queue.ready:,}; the front one {oldest}" if queue.ready else "0"),
        ("delayed", f"{queue.delayed:,}{limited}"),
        ("leased", f"{queue.leased:,}{popped}"),
        ("dead", f"{queue.dead:,}"),
        ("limit", "none" if queue.limit is None else f"{queue.limit:,} waiting"),
        ("in, out", f"{rate(pace.in_per_s)}/s in, {rate(pace.out_per_s)}/s out" if pace else NOTHING),
        ("empty in", drain),
        *_consumer_facts(queue, view),
        (
            "since made",
            ", ".join(f"{count:,} {name}" for name, count in queue.totals.items() if count) or NOTHING,
        ),
    ]


def _waited(waits: Waits | None) -> str:
    if waits is None:
        return NOTHING
    wait, run = duration(waits.wait_p95_ms), duration(waits.run_p95_ms)
    return f"waited {wait}, ran {run}; of the last {counted(waits.runs, 'first attempt')} that succeeded"


def _consumer_facts(queue: QueueView, view: SystemView) -> list[tuple[str, str]]:
    nodes = ", ".join(safe(node.name) for node in view.nodes if queue.name in node.queues)
    holders = [
        ("holder", f"{safe(each.name)} holds {each.held:,}, heard {duration(each.silent_ms)} ago")
        for each in queue.consumers
    ]
    return [("consumed by", nodes or "no node"), *holders]
