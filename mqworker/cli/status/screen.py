"""The status screen: what `mqworker status` shows to a person, as lines that fit the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import click

from mqworker.cli.status.model_lines import model_lines
from mqworker.cli.table import Cell, Column, Row, table
from mqworker.cli.text import (
    NOTHING,
    duration,
    moment,
    rate,
    safe,
    short_count,
    short_duration,
    size,
)
from mqworker.errors import MqworkerError
from mqworker.model.quarantine import BadEntry, BadPlace
from mqworker.model.retry_policy import USUAL_POLICY
from mqworker.model.verdict import USUAL_LIMITS, Health, Verdict, judge
from mqworker.model.view import LIVE_STATE, ChildView, NodeView, QueueView, ServerView, SystemView
from mqworker.operate.gateway_figures import GatewayFigures, gateway_figures
from mqworker.operate.status_document import totals_of

_COLOR = {Health.HEALTHY: "green", Health.DEGRADED: "yellow", Health.DOWN: "red"}
_INDENT = "  "
_MOST_REASONS = 6
_MOST_PLACES = 24

_ACTOR_COLUMNS = (
    Column("actor", "<"),
    Column("state", "<"),
    Column("heard"),
    Column("restarts"),
    Column("last restart because", "<"),
)
_WORKER_COLUMNS = (
    Column("worker", "<"),
    Column("state", "<"),
    Column("holds"),
    Column("ran"),
    Column("heard"),
    Column("restarts"),
    Column("last restart because", "<"),
)
_GATEWAY_COLUMNS = (
    Column("gateway", "<"),
    Column("listens at", "<"),
    Column("clients"),
    Column("in/s"),
    Column("out/s"),
    Column("in"),
    Column("out"),
    Column("waiting"),
    Column("refused"),
)
_QUEUE_COLUMNS = (
    Column("queue", "<"),
    Column("ready"),
    Column("delayed"),
    Column("leased"),
    Column("dead"),
    Column("oldest"),
    Column("in/s"),
    Column("out/s"),
    Column("empty in"),
)


def screen(view: SystemView, width: int) -> list[str]:
    """All lines of the screen."""
    lines = [*verdict_lines(judge(view), width), "", *_server_lines(view.server)]
    for node in view.nodes:
        lines += ["", *_node_lines(node, view.at_ms, width)]
    lines += quarantine_lines(view, width)
    lines += ["", *queue_lines(view, width)]
    return [*lines, "", *_totals_lines(view, width)] if view.queues or view.idle_queues else lines


def outage_screen(error: MqworkerError, width: int) -> list[str]:
    """The screen when the server does not answer."""
    return _wrapped(click.style("no Redis", fg="red", bold=True), "no Redis", f": {safe(str(error))}", width)


def verdict_lines(verdict: Verdict, width: int) -> list[str]:
    """The word, and why; each further reason on a line of its own."""
    word = verdict.health.value
    styled = click.style(word, fg=_COLOR[verdict.health], bold=True)
    remarks = [
        click.style(line, dim=True) for each in verdict.remarks for line in textwrap.wrap(safe(each), width)
    ]
    if not verdict.reasons:
        return [styled, *remarks]
    first, *others = (safe(reason) for reason in verdict.reasons[:_MOST_REASONS])
    if len(verdict.reasons) > _MOST_REASONS:
        others.append(f"… and {len(verdict.reasons) - _MOST_REASONS} more reasons")
    lines = _wrapped(styled, word, f": {first}", width)
    hanging = " " * (len(word) + 2)
    for reason in others:
        lines += textwrap.wrap(reason, width, initial_indent=hanging, subsequent_indent=hanging)
    return lines + remarks


def quarantine_lines(view: SystemView, width: int) -> list[str]:
    """What nodes skip: each place with its first entry, below a heading."""
    places = view.bad_places
    if not places:
        return []
    count = sum(place.entries for place in places)
    lines = ["", click.style(f"quarantined  {count:,}, removed by `mqworker doctor`", fg="yellow")]
    first = {(bad.kind, bad.where): bad for bad in reversed(view.quarantined)}
    for place in places[:_MOST_PLACES]:
        text = safe(_place_text(place, first.get((place.kind, place.where))))
        lines += textwrap.wrap(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT * 2)
    if len(places) > _MOST_PLACES:
        lines.append(f"{_INDENT}… and {len(places) - _MOST_PLACES} more places")
    if view.has_more_bad_places:
        lines.append(f"{_INDENT}… and in more places than nodes can remember")
    return lines


def _place_text(place: BadPlace, first: BadEntry | None) -> str:
    why = "" if first is None else f": {first.why}"
    skipped = "once" if place.skipped == 1 else f"{place.skipped:,} times"
    if place.entries == 1 and not place.is_more:
        entry = f" {first.entry}" if first is not None and first.entry else ""
        return f"{place.kind}{entry} in {place.where}{why} ({skipped})"
    many = f"{'more than ' * place.is_more}{place.entries:,} entries"
    such_as = f", such as {first.entry}" if first is not None and first.entry else ""
    return f"{place.kind} in {place.where}, {many}{such_as}{why} ({skipped})"


def queue_lines(view: SystemView, width: int) -> list[str]:
    """The table of queues; what is special about one stands in a line below it."""
    others = model_lines(view)
    if view.idle_queues:
        idle = (
            f"{'and ' * bool(view.queues)}{view.idle_queues:,} queues that hold nothing and nobody consumes"
        )
        others = [click.style(idle, dim=True), *others]
    if not view.queues:
        return others or ["no queue was ever used here"]
    lines = table(_QUEUE_COLUMNS, [_queue_row(queue) for queue in view.queues], width=width)
    heading, rows = lines[0], lines[1:]
    shown = [heading]
    for queue, row in zip(view.queues, rows, strict=True):
        shown.append(row)
        notes = "; ".join(_notes(queue, view))
        if notes:
            shown += [
                click.style(line, dim=True)
                for line in textwrap.wrap(notes, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
            ]
    return shown + others


def _server_lines(server: ServerView) -> list[str]:
    memory = size(server.used_bytes)
    if server.limit_bytes:
        memory += f" of {size(server.limit_bytes)} ({server.used_bytes / server.limit_bytes:.0%})"
    kept = "append-only file" if server.is_append_only else "no append-only file"
    many = f", {server.primaries} primaries" if server.primaries > 1 else ""
    return [f"server  {safe(server.product)} {safe(server.version)}, {memory}, {kept}{many}"]


def _drain_text(node: NodeView) -> str:
    return "draining" if node.drain_s is None else f"draining, {duration(node.drain_s * 1000)} at the most"


def _node_lines(node: NodeView, now_ms: int, width: int) -> list[str]:
    facts = [
        safe(node.app) if node.app else None,
        f"pid {node.pid}" if node.pid else None,
        f"up {duration(now_ms - node.started_at_ms)}" if node.started_at_ms else None,
        click.style(_drain_text(node), fg="yellow") if node.is_draining else None,
    ]
    told = ", ".join(fact for fact in facts if fact)
    name = click.style(safe(node.name), bold=True)
    lines = [f"node {name}  {told}".rstrip()]
    actors = [child for child in node.children if not child.is_worker]
    workers = [child for child in node.children if child.is_worker]
    held = node.held_by_worker
    if actors:
        lines += table(
            _without_idle_column(_ACTOR_COLUMNS, actors),
            [_actor_row(child, actors) for child in actors],
            width=width,
            indent=_INDENT,
        )
    if workers:
        lines += table(
            _without_idle_column(_WORKER_COLUMNS, workers),
            [_worker_row(child, held.get(child.name), workers) for child in workers],
            width=width,
            indent=_INDENT,
        )
    return lines + gateway_lines(node.children, width=width, indent=_INDENT)


def _without_idle_column(columns: tuple[Column, ...], children: list[ChildView]) -> tuple[Column, ...]:
    """Causes take a column only where there are any."""
    return columns if any(child.last_exit for child in children) else columns[:-1]


def _actor_row(child: ChildView, siblings: list[ChildView]) -> Row:
    is_silent = child.silent_ms is not None and child.silent_ms > USUAL_LIMITS.silent_ms
    heard = Cell(short_duration(child.silent_ms), "yellow" if is_silent else None)
    row: list[Cell | str] = [safe(child.name), _state(child), heard, _restarts(child)]
    return _with_cause(row, child, siblings)


def _worker_row(child: ChildView, held: int | None, siblings: list[ChildView]) -> Row:
    ran = child.facts.get("ran")
    row: list[Cell | str] = [
        safe(child.name),
        _state(child),
        NOTHING if held is None else short_count(held),
        short_count(ran) if isinstance(ran, int) else NOTHING,
        short_duration(child.silent_ms),
        _restarts(child),
    ]
    return _with_cause(row, child, siblings)


def _with_cause(row: list[Cell | str], child: ChildView, siblings: list[ChildView]) -> Row:
    if any(sibling.last_exit for sibling in siblings):
        row.append(Cell(safe(child.last_exit or ""), is_dim=True))
    return row


def _state(child: ChildView) -> Cell:
    return Cell(safe(child.state), "green" if child.state == LIVE_STATE else "yellow")


def _restarts(child: ChildView) -> Cell:
    return Cell(short_count(child.restarts), "yellow" if child.restarts else None)


def _queue_row(queue: QueueView) -> Row:
    pace = queue.throughput
    drain_s = queue.drain_s
    return [
        Cell(safe(queue.name), "yellow" if queue.is_paused else None),
        short_count(queue.ready),
        short_count(queue.delayed),
        short_count(queue.leased + queue.delivered),
        Cell(short_count(queue.dead), "red" if queue.dead else None),
        short_duration(queue.oldest_ms) if queue.ready else NOTHING,
        rate(None if pace is None else pace.in_per_s),
        rate(None if pace is None else pace.out_per_s),
        short_duration(drain_s * 1000) if drain_s is not None and queue.ready else NOTHING,
    ]


def _notes(queue: QueueView, view: SystemView) -> Iterator[str]:
    if queue.trouble is not None:
        yield f"cannot be read: {safe(queue.trouble)}"
    if queue.is_paused:
        since = f" since {moment(queue.paused_at_ms, view.at_ms)}" if queue.paused_at_ms else ""
        yield f"paused{since}"
    if queue.limit:
        yield f"takes {queue.limit:,} waiting at the most"
    if queue.limited:
        yield f"{queue.limited:,} of the delayed wait for their limits"
    if queue.ready and not view.is_consumed(queue, silent_ms=3 * USUAL_LIMITS.silent_ms):
        yield "nobody consumes it"
    if queue.delivered:
        yield f"{queue.delivered:,} of the leased were popped and not acknowledged"


def _totals_lines(view: SystemView, width: int) -> list[str]:
    totals = totals_of(view)
    usual = ("enqueued", "succeeded", "retried", "buried", "reclaimed")
    shown = [f"{count:,} {name}" for name, count in totals.items() if count or name in usual]
    text = f"since the queues were made: {', '.join(shown)}" if totals else ""
    if totals.get("retried"):
        text += f"; a task that says nothing is retried {USUAL_POLICY.max} times, after about 1, 2 and 4 s"
    return [click.style(line, dim=True) for line in textwrap.wrap(text, width)]


def _wrapped(styled: str, word: str, rest: str, width: int) -> list[str]:
    """Text that opens with a styled word, wrapped as if the style took no room."""
    lines = textwrap.wrap(word + rest, width, subsequent_indent=" " * (len(word) + 2))
    return [styled + lines[0][len(word) :], *lines[1:]]


def gateway_lines(children: Sequence[ChildView], *, width: int, indent: str) -> list[str]:
    """One line for each gateway of a node, below a heading; none where there is no gateway."""
    rows = [_gateway_row(figures) for figures in gateway_figures(children)]
    return table(_GATEWAY_COLUMNS, rows, width=width, indent=indent) if rows else []


def _gateway_row(figures: GatewayFigures) -> Row:
    return [
        safe(figures.name),
        safe(figures.listens or "?"),
        short_count(figures.connections),
        rate(figures.in_per_s),
        rate(figures.out_per_s),
        short_count(figures.taken_in),
        short_count(figures.given_out),
        short_count(figures.waiting),
        Cell(short_count(figures.refused), "yellow" if figures.refused else None),
    ]
