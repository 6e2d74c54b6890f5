"""One node as metrics, out of its supervisor's snapshot: actors, workers, gateways, and what they counted.

Totals are added up by the supervisor over all processes of a child, so that they go on through the death of
any of them; they begin anew with the supervisor itself, as `mqworker_node_start_time_seconds` tells. Pure but
for the memory of processes, which is asked for here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mqworker.model.figures import MOST_TASKS, OTHER, OUTCOMES, Figures, Plain, TaskFigures, bounds_ms
from mqworker.model.outbox_view import outboxes_of
from mqworker.operate.metrics.text import Sample, family

# Any: plain values, as the supervisor sends them.
Snapshot = Mapping[str, Any]
Child = Mapping[str, Any]

_WORKER, _GATEWAY, _MONITOR = "worker", "gateway", "monitor"
BOUNDS_S = tuple(2.0**power / 1_000_000 for power in range(10, 31))
"""From a millisecond to 18 minutes, each twice the one before; all are bounds of model/figures.py, too."""
CAUSES = ("retired", "stopped", "silent", "killed", "crashed", "unavailable", "configuration", "failed")
"""Why a process ended (supervisor/plain_reasons.py)."""
WORKER_STATES = ("busy", "idle", "starting", "waiting", "parked")


def node_families(snapshot: Snapshot) -> Iterator[str]:
    """How this node is."""
    children: Sequence[Child] = snapshot["children"]
    yield from family(
        "mqworker_node",
        "info",
        "This node.",
        [("_info", {"app": snapshot["app"] or ""}, 1)],
    )
    yield from family(
        "mqworker_node_start_time_seconds",
        "gauge",
        "When the supervisor started, since 1970; what this node counts began then.",
        [("", {}, snapshot["started_at_ms"] / 1000)],
    )
    yield from family(
        "mqworker_node_draining", "gauge", "Whether this node stops.", [("", {}, int(snapshot["draining"]))]
    )
    yield from family(
        "mqworker_node_drain_seconds",
        "gauge",
        "How long tasks may take to finish when this node is stopped.",
        [("", {}, float(snapshot["drain"]["s"]))] if "drain" in snapshot else [],
    )
    yield from _actor_families(children)
    yield from _worker_families(children)
    yield from _count_families(children)
    yield from _gateway_families(children)
    yield from _outbox_families(children)
    yield from _task_families(snapshot.get("figures", ()))


def _actor_families(children: Sequence[Child]) -> Iterator[str]:
    yield from family(
        "mqworker_actor_up",
        "gauge",
        "Whether an actor lives; of workers, how many.",
        _by_actor(children, lambda child: int(child["state"] == "live")),
    )
    yield from family(
        "mqworker_actor_silent_seconds",
        "gauge",
        "Since an actor's loop answered last; it is asked every second.",
        [
            ("", {"actor": child["name"]}, child["silent_ms"] / 1000)
            for child in children
            if child["role"] != _WORKER and child["silent_ms"] is not None
        ],
    )
    # With those that never happened: of a counter that begins at 1 Prometheus sees no increase.
    restarts = Counter({(_actor(child), cause): 0 for child in children for cause in CAUSES})
    for child in children:
        restarts.update(
            {(_actor(child), cause): count for cause, count in child["restarts_by_cause"].items()}
        )
    yield from family(
        "mqworker_actor_restarts",
        "counter",
        "How often an actor was started again, by why the one before it ended.",
        [
            ("_total", {"actor": actor, "cause": cause}, count)
            for (actor, cause), count in sorted(restarts.items())
        ],
    )


def _worker_families(children: Sequence[Child]) -> Iterator[str]:
    workers = [child for child in children if child["role"] == _WORKER]
    busy = {name for child in children for name in child["facts"].get("busy", ())}
    states = Counter(_state_of(child, busy) for child in workers)
    yield from family(
        "mqworker_workers",
        "gauge",
        "Workers by what they do.",
        [("", {"state": state}, states[state]) for state in WORKER_STATES],
    )
    memory = {child["name"]: rss for child in children if (rss := _rss_bytes(child["pid"])) is not None}
    yield from family(
        "mqworker_worker_rss_bytes",
        "gauge",
        "Memory of each worker. Processes of a node share a part of it, which is counted in each.",
        [
            ("", {"worker": child["name"].partition(":")[2]}, memory[child["name"]])
            for child in workers
            if child["name"] in memory
        ],
    )
    yield from family(
        "mqworker_actor_rss_bytes",
        "gauge",
        "Memory of each actor that is not a worker.",
        [
            ("", {"actor": child["name"]}, memory[child["name"]])
            for child in children
            if child["role"] != _WORKER and child["name"] in memory
        ],
    )


def _count_families(children: Sequence[Child]) -> Iterator[str]:
    totals: Counter[str] = Counter()
    for child in children:
        if child["role"] not in {_GATEWAY, _MONITOR}:
            totals.update(child["totals"])
    for fact, name, explanation in (
        ("settled", "mqworker_deliveries_settled", "Deliveries that workers of this node reported as ended."),
        (
            "lost_leases",
            "mqworker_lost_leases",
            "Deliveries that somebody else had when this node settled them.",
        ),
        ("admitted", "mqworker_limiter_admitted", "Messages that this node's rate limiter gave a permit."),
        ("released", "mqworker_reaper_released", "Deliveries that this node took from silent consumers."),
    ):
        yield from family(name, "counter", explanation, [("_total", {}, totals[fact])])
    in_flight = sum(child["facts"].get("in_flight", 0) for child in children)
    yield from family(
        "mqworker_in_flight", "gauge", "Deliveries that workers of this node have.", [("", {}, in_flight)]
    )


def _gateway_families(children: Sequence[Child]) -> Iterator[str]:
    gateways = [child for child in children if child["role"] == _GATEWAY]
    for fact, name, explanation in (
        ("in", "mqworker_gateway_in", "Messages that clients of a gateway sent."),
        ("out", "mqworker_gateway_out", "Messages that clients of a gateway were given."),
        ("refused", "mqworker_gateway_refused", "Requests that a gateway refused."),
    ):
        yield from family(
            name,
            "counter",
            explanation,
            [("_total", _gateway(child), child["totals"].get(fact, 0)) for child in gateways],
        )
    yield from family(
        "mqworker_gateway_connections",
        "gauge",
        "Clients of a gateway.",
        [("", _gateway(child), _whole(child["facts"].get("connections"))) for child in gateways],
    )


def _outbox_families(children: Sequence[Child]) -> Iterator[str]:
    """Of the node that moves the rows; those that stand by tell nothing."""
    moving = [each for each in outboxes_of(children) if not each.is_standby]
    for name, explanation, value in (
        (
            "mqworker_outbox_rows",
            "Rows of the outbox that wait to be moved into Redis.",
            lambda each: each.rows,
        ),
        (
            "mqworker_outbox_lag_seconds",
            "Age of the oldest row of the outbox that waits; goes on while its database does not answer.",
            lambda each: each.lag_ms / 1000,
        ),
        (
            "mqworker_outbox_quarantined_rows",
            "Rows of the outbox that cannot be moved.",
            lambda each: each.bad,
        ),
        (
            "mqworker_outbox_up",
            "Whether rows of the outbox can be moved.",
            lambda each: int(not each.trouble),
        ),
    ):
        yield from family(name, "gauge", explanation, [("", {}, value(each)) for each in moving])


def _task_families(plain: Sequence[Plain]) -> Iterator[str]:
    figures = Figures()
    figures.add(plain)
    tasks = [
        ({"queue": queue, "task": "other" if task == OTHER else task}, each)
        for (queue, task), each in sorted(_bounded(figures).items())
    ]
    yield from family(
        "mqworker_runs",
        "counter",
        "Runs of this node's workers, by how they ended.",
        [
            ("_total", {**labels, "outcome": outcome}, getattr(each, outcome))
            for labels, each in tasks
            for outcome in OUTCOMES
        ],
    )
    yield from family(
        "mqworker_process_seconds",
        "histogram",
        "How long runs of this node's workers took.",
        [sample for labels, each in tasks for sample in _histogram(labels, each.runs, each.run_sum_ms)],
    )
    yield from family(
        "mqworker_wait_seconds",
        "histogram",
        "How long messages had waited when this node ran them first.",
        [sample for labels, each in tasks for sample in _histogram(labels, each.waits, each.wait_sum_ms)],
    )


def _bounded(figures: Figures) -> dict[tuple[str, str], TaskFigures]:
    """At most MOST_TASKS of the node, those that ran first: who is told apart stays told apart."""
    kept = set(list(figures.by_task)[:MOST_TASKS])
    if len(kept) == len(figures.by_task):
        return figures.by_task
    bounded: dict[tuple[str, str], TaskFigures] = {}
    for (queue, task), each in figures.by_task.items():
        bounded.setdefault((queue, task if (queue, task) in kept else OTHER), TaskFigures()).add(each)
    return bounded


def _histogram(labels: dict[str, str], counts: Mapping[int, int], sum_ms: float) -> Iterator[Sample]:
    below = 0
    rest = sorted(counts.items(), reverse=True)
    for bound_s in BOUNDS_S:
        while rest and bounds_ms(rest[-1][0])[1] <= bound_s * 1000:
            below += rest.pop()[1]
        yield "_bucket", {**labels, "le": repr(bound_s)}, below
    total = sum(counts.values())
    yield "_bucket", {**labels, "le": "+Inf"}, total
    yield "_count", labels, total
    yield "_sum", labels, sum_ms / 1000


def _by_actor(children: Sequence[Child], value: Any) -> list[Sample]:  # noqa: ANN401 - a function of a child
    sums: Counter[str] = Counter()
    for child in children:
        sums[_actor(child)] += value(child)
    return [("", {"actor": actor}, count) for actor, count in sums.items()]


def _actor(child: Child) -> str:
    """Workers are one actor: there may be a thousand of them."""
    return _WORKER if child["role"] == _WORKER else str(child["name"])


def _gateway(child: Child) -> dict[str, str]:
    return {"gateway": child["name"].partition(":")[2]}


def _state_of(child: Child, busy: set[str]) -> str:
    if child["state"] == "live":
        return "busy" if child["name"] in busy else "idle"
    return child["state"] if child["state"] in WORKER_STATES else "waiting"


def _rss_bytes(pid: int | None) -> int | None:
    import psutil  # noqa: PLC0415 - every process of a node would carry its two megabytes

    if pid is not None:
        with suppress(psutil.Error):  # it ended a moment ago
            rss: int = psutil.Process(pid).memory_info().rss
            return rss
    return None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
