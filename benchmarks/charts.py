"""The charts of a run: points on logarithmic scales, because the peers are powers of ten apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes

from benchmarks.chart_style import (
    PALE,
    colour,
    log_axis,
    name_rows,
    new_chart,
    save,
    short,
)
from benchmarks.figures import apart
from benchmarks.machine import busy_line
from benchmarks.peer import OURS
from benchmarks.results import Json, in_order, values

Row = tuple[str, Json]
NAME_HEIGHT = 0.045
"""Of a small name, as a share of the height of a panel."""


def draw_charts(data: Json, folder: Path) -> list[Path]:
    """All charts for which there are figures; the files that were written."""
    machine = data["machine"]
    where = f"{machine.get('cores', '?')} cores, {machine.get('date', 'no date')}"
    if busy_line(data["foreign_cpu_percent"]):
        where += " - BUSY MACHINE, DO NOT TRUST"
    makers = (_drain, _enqueue, _latency, _rest, _lengths, _crash)
    return [path for make in makers for path in make(data, folder, where)]


def _drain(data: Json, folder: Path, where: str) -> list[Path]:
    rows = _by_figure(data, "drain")
    if not rows:
        return []
    figure, (panel,) = new_chart(
        "Tasks per second", f"Drain of a full queue, tasks that do nothing, two workers. {where}", len(rows)
    )
    _points(panel, rows, "drain")
    _finish(panel, rows, "tasks per second: right is better")
    return save(figure, folder, "drain")


def _enqueue(data: Json, folder: Path, where: str) -> list[Path]:
    rows = _by_figure(data, "enqueue_single")
    if not rows:
        return []
    figure, panels = new_chart(
        "Enqueue",
        f"One producer process, calls per second; left one by one, right in bulk. {where}",
        len(rows),
        columns=2,
    )
    for panel, name, label in zip(
        panels, ("enqueue_single", "enqueue_bulk"), ("one by one", "in bulk, where the peer can"), strict=True
    ):
        _points(panel, rows, name)
        _finish(panel, rows, f"{label}: right is better")
    return save(figure, folder, "enqueue")


def _latency(data: Json, folder: Path, where: str) -> list[Path]:
    rows = _by_figure(data, "light_p50")[::-1]
    if not rows:
        return []
    figure, panels = new_chart(
        "Latency",
        f"From enqueue to the first line of the task: p50 (full), p99 (hollow), max (line). {where}",
        len(rows),
        columns=2,
    )
    loads = (("light", "100 tasks per second"), ("half", "half of what the peer can drain"))
    for panel, (load, label) in zip(panels, loads, strict=True):
        for height, (name, peer) in enumerate(rows):
            _latency_row(panel, height, peer, load, colour(is_ours=name == OURS))
        _finish(panel, rows, f"{label}, ms: left is better")
    return save(figure, folder, "latency")


def _latency_row(panel: Axes, height: int, peer: Json, load: str, ink: str) -> None:
    if not values(peer, f"{load}_p50"):
        return
    p50, p99 = (median(values(peer, f"{load}_{name}")) for name in ("p50", "p99"))
    highest = max(values(peer, f"{load}_max"))
    panel.plot([p50, highest], [height, height], color=ink, alpha=PALE, linewidth=2)
    panel.scatter([p99], [height], s=46, facecolor="white", edgecolor=ink, linewidth=1.6, zorder=3)
    panel.scatter([p50], [height], s=52, color=ink, zorder=4)
    panel.annotate(short(p50), (p50, height), (0, 6), textcoords="offset points", ha="center", fontsize=7.5)


def _rest(data: Json, folder: Path, where: str) -> list[Path]:
    rows = _by_figure(data, "idle_pss_mib")[::-1]
    if not rows:
        return []
    figure, panels = new_chart(
        "Memory",
        f"Left: all processes at rest, MiB. Right: one queued task in Redis, bytes. {where}",
        len(rows),
        columns=2,
    )
    for panel, name, label in zip(
        panels,
        ("idle_pss_mib", "bytes_per_task"),
        ("MiB at rest (PSS)", "bytes per queued task"),
        strict=True,
    ):
        _points(panel, rows, name)
        _finish(panel, rows, f"{label}: left is better")
    return save(figure, folder, "memory")


def _lengths(data: Json, folder: Path, where: str) -> list[Path]:
    rows = [(name, peer) for name, peer in in_order(data["peers"]) if peer.get("length")]
    if not rows:
        return []
    figure, panels = new_chart(
        "A longer queue",
        f"Left: drained, right: enqueued one by one, per second, by what is queued. {where}",
        9,
        columns=2,
    )
    for panel, name in zip(panels, ("drain", "enqueue"), strict=True):
        ends = [_length_line(panel, peer_name, peer, name) for peer_name, peer in rows]
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(lambda value, _: short(value))
        log_axis(panel, "tasks in the queue")
        _name_lines(
            panel,
            [(*end, peer_name, peer["label"]) for end, (peer_name, peer) in zip(ends, rows, strict=True)],
        )
    return save(figure, folder, "length")


def _length_line(panel: Axes, name: str, peer: Json, figure: str) -> tuple[float, float]:
    """Draw it and say where it ends."""
    steps = sorted(peer["length"].values(), key=lambda step: step["queued"])
    lengths, rates = [step["queued"] for step in steps], [step[figure] for step in steps]
    is_ours = name == OURS
    panel.plot(
        lengths,
        rates,
        "o-",
        color=colour(is_ours=is_ours),
        alpha=1 if is_ours else PALE,
        linewidth=2.4 if is_ours else 1.4,
    )
    return lengths[-1], rates[-1]


def _name_lines(panel: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """The names behind the ends of the lines: those of the peers in a column, moved apart where they must."""
    low, high = panel.get_ylim()
    column = 2 * max((length for length, _, name, _ in ends if name != OURS), default=1)
    ordered = sorted((end for end in ends if end[2] != OURS), key=lambda end: -end[1])
    gap = (high / low) ** NAME_HEIGHT
    heights = apart([rate for _, rate, _, _ in ordered], gap)
    ceiling = min((rate / gap**2 for _, rate, name, _ in ends if name == OURS), default=high)
    if heights and heights[0] > ceiling:  # our line goes on where the names stand: they keep below it
        heights = [height * ceiling / heights[0] for height in heights]
    for (length, rate, _, label), height in zip(ordered, heights, strict=True):
        ink = colour(is_ours=False)
        panel.plot([length, column], [rate, height], color=ink, alpha=PALE, linewidth=0.6)
        panel.text(column * 1.1, height, label, fontsize=7.5, color=ink, va="center")
    for length, rate, name, label in ends:
        if name == OURS:
            panel.text(length * 1.3, rate, label, fontsize=7.5, color=colour(is_ours=True), va="center")


def _crash(data: Json, folder: Path, where: str) -> list[Path]:
    turns = [
        (f"{peer['label']}{'' if settings == 'usual' else ', safe'}", name, peer["crash"][settings])
        for name, peer in in_order(data["peers"])
        for settings in ("usual", "safe")
        if settings in peer.get("crash", {})
    ]
    if not turns:
        return []
    figure, (panel,) = new_chart(
        "After kill -9",
        f"All processes killed at a quarter of 2,000 tasks, then restarted. {where}",
        len(turns),
    )
    for height, (_, name, crash) in enumerate(turns):
        _crash_row(panel, height, crash, colour(is_ours=name == OURS))
    name_rows(panel, [label for label, _, _ in turns], "mqworker")
    log_axis(panel, "seconds from restart until the last task had run; hollow: some never ran")
    return save(figure, folder, "crash")


def _crash_row(panel: Axes, height: int, crash: Json, ink: str) -> None:
    seconds, lost, twice = max(crash["last_back_s"], 0.1), crash["not_run"], crash["twice"]
    is_lost = lost > 0
    panel.scatter([seconds], [height], s=52, color="white" if is_lost else ink, edgecolor=ink, zorder=3)
    notes = [
        f"{lost:.0f} never ran" if is_lost else f"{seconds:.1f} s",
        *([f"{twice:.0f} twice"] if twice else []),
    ]
    panel.annotate(
        ", ".join(notes), (seconds, height), (8, 0), textcoords="offset points", va="center", fontsize=8
    )


def _points(panel: Axes, rows: Sequence[Row], figure: str) -> None:
    """The median as a point, the range of the rounds as a line."""
    for height, (name, peer) in enumerate(rows):
        found = values(peer, figure)
        if not found:
            continue
        ink, middle = colour(is_ours=name == OURS), median(found)
        panel.plot([min(found), max(found)], [height, height], color=ink, alpha=PALE, linewidth=4)
        panel.scatter([middle], [height], s=60, color=ink, zorder=3)
        panel.annotate(
            short(middle), (max(found), height), (8, 0), textcoords="offset points", va="center", fontsize=8.5
        )


def _finish(panel: Axes, rows: Sequence[Row], label: str) -> None:
    name_rows(panel, [peer["label"] for _, peer in rows], "mqworker")
    log_axis(panel, label)


def _by_figure(data: Json, figure: str) -> list[Row]:
    """Highest first."""
    rows = [(name, peer) for name, peer in in_order(data["peers"]) if values(peer, figure)]
    return sorted(rows, key=lambda row: -median(values(row[1], figure)))
