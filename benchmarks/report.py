"""The results as Markdown tables. Pure: results in, text out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from benchmarks.machine import busy_line
from benchmarks.peer import OURS
from benchmarks.results import Json, in_order, ratios, values

NOTHING = "-"


def tables(data: Json) -> str:
    """All tables for which there are figures, each under its heading."""
    sections = (
        ("Enqueue, one producer", _enqueue),
        ("Drain, two worker processes, tasks that do nothing", _drain),
        ("Latency from enqueue to the first line of the task", _latency),
        ("Start and rest", _rest),
        ("Tasks that do something, per second", _bodies),
        ("By the length of the queue, per second", _lengths),
        ("By the number of worker processes, drained per second", _workers),
        ("By the number of queues, drained per second", _queues),
        ("Crash: SIGKILL of all processes at a quarter of 2,000 tasks, then restart", _crash),
    )
    parts = [f"### {title}\n\n{text}" for title, make in sections if (text := make(data))]
    return "\n\n".join(parts)


def conditions(data: Json) -> str:
    """Machine, versions and settings."""
    machine = [f"- {name}: {value}" for name, value in data["machine"].items()]
    busy = busy_line(data["foreign_cpu_percent"])
    peers = in_order(data["peers"])
    versions = table(
        ("peer", "versions", "settings, and why"),
        [(peer["label"], _pairs(peer.get("versions", {})), _settings(peer)) for _, peer in peers],
    )
    problems = [f"- {peer['label']}: {text}" for _, peer in peers for text in peer["problems"]]
    lines = [*machine, *([f"- **busy machine**: {busy}"] if busy else []), "", versions]
    return "\n".join([*lines, *(["", "Did not work out:", "", *problems] if problems else [])])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; columns of figures to the right, columns of words to the left."""
    lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    columns = zip(*lines, strict=True) if lines else ()
    rules = ["---:" if all(map(_is_figure, column)) else "---" for column in columns]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(header), rules, *lines])


def _is_figure(cell: str) -> bool:
    return cell == NOTHING or cell[:1].isdigit()


def spread(numbers: Sequence[float], digits: int = 0) -> str:
    """The median, with the range of the rounds when there are several."""
    if not numbers:
        return NOTHING
    middle = f"{median(numbers):,.{digits}f}"
    if len(numbers) == 1:
        return middle
    return f"{middle} ({min(numbers):,.{digits}f} to {max(numbers):,.{digits}f})"


def times(numbers: Sequence[float]) -> str:
    """A ratio, as `12.3 times`."""
    return f"{median(numbers):,.1f} times" if numbers else NOTHING


def _enqueue(data: Json) -> str:
    peers = _with_figure(data, "enqueue_single")
    header = (
        "peer",
        "single call, per s",
        "mqworker is",
        "in bulk, per s",
        "mqworker is",
        "bulk call",
        "bytes in Redis",
    )
    return _rows(
        header,
        peers,
        lambda peer: (
            spread(values(peer, "enqueue_single")),
            times(_ours_by(data, peer, "enqueue_single")),
            spread(values(peer, "enqueue_bulk")),
            times(_ours_by(data, peer, "enqueue_bulk")),
            peer.get("bulk", NOTHING),
            spread(values(peer, "bytes_per_task")),
        ),
    )


def _drain(data: Json) -> str:
    header = (
        "peer",
        "per s",
        "mqworker is",
        "workers, CPU µs each",
        "server, CPU µs each",
        "not run",
        "twice",
    )
    return _rows(
        header,
        _with_figure(data, "drain"),
        lambda peer: (
            spread(values(peer, "drain")),
            times(_ours_by(data, peer, "drain")),
            _middle(peer, "drain_worker_us"),
            _middle(peer, "drain_server_us"),
            f"{sum(values(peer, 'drain_missing')):.0f}",
            f"{sum(values(peer, 'drain_twice')):.0f}",
        ),
    )


def _latency(data: Json) -> str:
    loads = (("light", "100/s"), ("half", "half"))
    header = (
        "peer",
        *(f"{title}: {figure}, ms" for _, title in loads for figure in ("p50", "p95", "p99", "max")),
        "half is, per s",
    )
    return _rows(
        header,
        _with_figure(data, "light_p50")[::-1],
        lambda peer: (
            *(_latencies(peer, "light")),
            *(_latencies(peer, "half")),
            _middle(peer, "half_rate"),
        ),
    )


def _latencies(peer: Json, load: str) -> list[str]:
    middles = [_middle(peer, f"{load}_{figure}", 2) for figure in ("p50", "p95", "p99")]
    highest = values(peer, f"{load}_max")
    return [*middles, f"{max(highest):,.1f}" if highest else NOTHING]


def _rest(data: Json) -> str:
    return _rows(
        ("peer", "first task after, s", "memory (PSS), MiB", "processes", "idle CPU, %"),
        [peer for peer in _peers(data) if values(peer, "startup_s") or values(peer, "idle_pss_mib")],
        lambda peer: (
            spread(values(peer, "startup_s"), 2),
            _middle(peer, "idle_pss_mib"),
            _middle(peer, "idle_processes"),
            _middle(peer, "idle_cpu_percent", 1),
        ),
    )


def _bodies(data: Json) -> str:
    return _steps(data, "bodies", _shown_drain, str)


def _lengths(data: Json) -> str:
    return _steps(
        data,
        "length",
        _shown_length,
        lambda length: f"{int(length):,}",
    )


def _shown_drain(_: str, step: Json) -> str:
    return f"{step['drain']:,.0f}"


def _shown_length(length: str, step: Json) -> str:
    """The rates, and how much was queued if it was less than the column says."""
    rates = f"{step['enqueue']:,.0f} in, {step['drain']:,.0f} out"
    return rates if step["queued"] >= int(length) else f"{rates} (at {step['queued']:,.0f})"


def _workers(data: Json) -> str:
    return _steps(data, "workers", _shown_drain, str)


def _queues(data: Json) -> str:
    return _steps(data, "queues", _shown_drain, str)


def _crash(data: Json) -> str:
    rows = [
        (peer["label"], settings, *_crash_cells(peer["crash"][settings]))
        for peer in _peers(data)
        for settings in ("usual", "safe")
        if settings in peer.get("crash", {})
    ]
    header = ("peer", "settings", "done at the kill", "never run", "run twice", "last one back after, s")
    return table(header, rows) if rows else ""


def _crash_cells(figures: Json) -> tuple[str, ...]:
    counts = (f"{figures[name]:,.0f}" for name in ("done_at_kill", "not_run", "twice"))
    return (*counts, NOTHING if figures["not_run"] else f"{figures['last_back_s']:.1f}")


def _steps(data: Json, measure: str, show: Callable[[str, Json], str], title: Callable[[str], str]) -> str:
    """A column for each step of a measure; a peer that does not go so far has nothing there."""
    peers = [peer for peer in _peers(data) if peer.get(measure)]
    columns = list(dict.fromkeys(step for peer in peers for step in peer[measure]))
    return _rows(
        ("peer", *(title(column) for column in columns)),
        peers,
        lambda peer: tuple(
            show(column, peer[measure][column]) if column in peer[measure] else NOTHING for column in columns
        ),
    )


def _rows(header: Sequence[str], peers: Sequence[Json], cells: Callable[[Json], Sequence[str]]) -> str:
    return table(header, [(peer["label"], *cells(peer)) for peer in peers]) if peers else ""


def _peers(data: Json) -> list[Json]:
    return [peer for _, peer in in_order(data["peers"])]


def _with_figure(data: Json, figure: str) -> list[Json]:
    """The peers that have it, highest first."""
    peers = [peer for peer in _peers(data) if values(peer, figure)]
    return sorted(peers, key=lambda peer: -median(values(peer, figure)))


def _ours_by(data: Json, peer: Json, figure: str) -> tuple[float, ...]:
    ours = data["peers"].get(OURS)
    return () if ours is None or ours is peer else ratios(ours, peer, figure)


def _middle(peer: Json, figure: str, digits: int = 0) -> str:
    found = values(peer, figure)
    return f"{median(found):,.{digits}f}" if found else NOTHING


def _pairs(versions: Json) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or NOTHING


def _settings(peer: Json) -> str:
    usual = "; ".join(peer.get("settings", []))
    safe = "; ".join(line for line in peer.get("safe_settings", []) if line not in peer.get("settings", []))
    return f"{usual}<br>safe: {safe}" if safe else usual or NOTHING
