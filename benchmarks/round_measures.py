"""The measures that take turns: each peer once per round, with one value for each figure."""

from __future__ import annotations

import time

from benchmarks.figures import NS_PER_S, never_ran, percentile, ran_twice, steady_rate, waits_ms
from benchmarks.peer import Peer
from benchmarks.producer import PeerFailed
from benchmarks.session import NO_WORK, Session, open_session
from benchmarks.worker_tree import WorkerTree

ENQUEUE_S = 0.8
DRAIN_S = 1.5
LATENCY_S = 2.5
LATENCY_RATE = 100.0
HALF_S = 1.5
TICK_S = 0.005
IDLE_S = 2.0
RUN_LIMIT_S = 60.0
WARM_UP = 50
MOST = 900_000

FIGURES_BY_MEASURE = {
    "enqueue": ("enqueue_single", "enqueue_bulk", "bytes_per_task"),
    "drain": ("drain", "drain_worker_us", "drain_server_us", "drain_missing", "drain_twice"),
    "latency": tuple(
        f"{load}_{figure}" for load in ("light", "half") for figure in ("rate", "p50", "p95", "p99", "max")
    ),
    "startup": ("startup_s",),
    "idle": ("idle_pss_mib", "idle_processes", "idle_cpu_percent"),
}
Figures = dict[str, float]


def measure_round(peer: Peer, wanted: frozenset[str], expected_rate: float | None) -> Figures:
    """One turn of a peer. `expected_rate` is what it drained before, if it did: it sizes the queue."""
    figures: Figures = {}
    if "enqueue" in wanted:
        with open_session(peer) as session:
            figures |= _enqueue(session)
    if wanted & {"drain", "latency", "startup", "idle"}:
        with open_session(peer) as session:
            figures |= _work(session, wanted, expected_rate)
    asked_for = {name for measure in wanted for name in FIGURES_BY_MEASURE[measure]}
    return {name: value for name, value in figures.items() if name in asked_for}


def _enqueue(session: Session) -> Figures:
    producer, take_numbers = session.producer, session.take_numbers
    producer.single(NO_WORK, take_numbers(WARM_UP), WARM_UP, RUN_LIMIT_S)
    before = session.server_memory_bytes()
    single = producer.single(NO_WORK, take_numbers(MOST), MOST, ENQUEUE_S)
    grown = session.server_memory_bytes() - before
    # Not earlier: the many connections of some bulk calls have buffers that would be counted above.
    producer.bulk(NO_WORK, take_numbers(WARM_UP), WARM_UP, RUN_LIMIT_S)
    bulk = producer.bulk(NO_WORK, take_numbers(MOST), MOST, ENQUEUE_S)
    return {
        "enqueue_single": single.rate,
        "enqueue_bulk": bulk.rate,
        "bytes_per_task": grown / single.count,
    }


def _work(session: Session, wanted: frozenset[str], expected_rate: float | None) -> Figures:
    figures, workers = _drain(session, round((expected_rate or session.about.drain_hint) * DRAIN_S))
    if "latency" in wanted:
        figures |= _latency(session, "light", LATENCY_RATE, LATENCY_S, batch=1)
        half = figures["drain"] / 2
        figures |= _latency(session, "half", half, HALF_S, batch=max(1, round(half * TICK_S)))
    if "idle" in wanted:
        figures |= _idle(workers)
    return figures


def _drain(session: Session, count: int) -> tuple[Figures, WorkerTree]:
    numbers = session.fill(min(max(count, 500), MOST))
    workers = session.start_workers()
    # From the first task on: imports at the start are not the cost of a task; short drains would pay most.
    session.wait_until_some_run(numbers[:1_000], 1, RUN_LIMIT_S)
    workers_before, server_before = workers.cpu_seconds(), session.server_cpu_seconds()
    remaining = max(len(numbers) - session.board.done(numbers.start, numbers.stop), 1)
    session.wait_until_run(numbers, RUN_LIMIT_S)
    workers_cpu, server_cpu = workers.cpu_seconds(), session.server_cpu_seconds()
    ran_at = session.board.ran_at(numbers.start, numbers.stop)
    if not any(ran_at):
        raise PeerFailed(f"none of {len(numbers):,} tasks ran within {RUN_LIMIT_S:.0f} s")
    runs = session.board.runs(numbers.start, numbers.stop)
    figures = {
        "drain": steady_rate(ran_at),
        "drain_worker_us": (workers_cpu - workers_before) / remaining * 1e6,
        "drain_server_us": (server_cpu - server_before) / remaining * 1e6,
        "drain_missing": never_ran(runs),
        "drain_twice": ran_twice(runs),
        "startup_s": (min(filter(None, ran_at)) - workers.started_at_ns) / NS_PER_S,
    }
    return figures, workers


def _latency(session: Session, load: str, rate: float, seconds: float, *, batch: int) -> Figures:
    count = max(round(rate * seconds), 100)
    first = session.take_numbers(count)
    sent = session.producer.paced(first, count, rate, batch)
    numbers = range(first, first + count)
    if not session.wait_until_run(numbers, RUN_LIMIT_S):
        raise PeerFailed(f"tasks sent at {rate:,.0f}/s did not all run within {RUN_LIMIT_S:.0f} s")
    board = session.board
    waits = waits_ms(board.sent_at(first, first + count), board.ran_at(first, first + count))
    percentiles = {f"{load}_p{percent}": percentile(waits, percent) for percent in (50, 95, 99)}
    return {f"{load}_rate": sent.rate, **percentiles, f"{load}_max": waits[-1]}


def _idle(workers: WorkerTree) -> Figures:
    before = workers.cpu_seconds()
    began = time.perf_counter()
    time.sleep(IDLE_S)
    used = workers.cpu_seconds() - before
    return {
        "idle_cpu_percent": max(used, 0.0) / (time.perf_counter() - began) * 100,
        "idle_pss_mib": workers.pss_bytes() / 2**20,
        "idle_processes": len(workers.processes()),
    }
