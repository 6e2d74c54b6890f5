"""D22: starts in any time are at most burst + rate * time, whoever is stopped or killed meanwhile.

Tasks note the instant of their first line (CLOCK_MONOTONIC, which all processes of a host share). Every
window that begins and ends with a start is looked at, and nothing is added to what is allowed there. A
process that is stopped after its look at the permit and before the task's first line starts one late,
whatever anybody does; that is covered by what admit.lua holds back of the burst, for the others do not use
all their time.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from mqworker.model.rate import Rate
from tests.drills.conftest import Report, Sized
from tests.drills.node import PATIENT, DrillNode
from tests.drills.rate_app import PAIR, QUEUE, TIGHT, build_app
from tests.drills.scene import Scene
from tests.drills.starts import most_over
from tests.support.deadline import wait_until
from tests.support.ledger import read_ledger
from tests.support.real_server import RealServer

APP = "tests.drills.rate_app:app"
STALL_S = 2.5
DEADLINE_S = 120.0

Strike = Callable[[list[DrillNode], RealServer], None]
"""Of nodes that do the same, all are struck at once, or the first beside the others."""


def _stop(*names: str) -> Strike:
    def strike(nodes: list[DrillNode], _: RealServer) -> None:
        pids = _pids(nodes, *names)
        _signal(pids, signal.SIGSTOP)
        time.sleep(STALL_S)
        _signal(pids, signal.SIGCONT)

    return strike


def _stop_briefly(nodes: list[DrillNode], _: RealServer) -> None:
    """For times about as long as a permit is valid: some are stale then, and some are not."""
    chance = random.Random(20)  # noqa: S311
    pids = _pids(nodes, "worker")
    for _ in range(10):
        _signal(pids, signal.SIGSTOP)
        time.sleep(chance.uniform(0.02, 0.3))
        _signal(pids, signal.SIGCONT)
        time.sleep(0.1)


def _stop_server(_: list[DrillNode], server: RealServer) -> None:
    server.pause()
    time.sleep(STALL_S)
    server.resume()


def _stop_node(nodes: list[DrillNode], _: RealServer) -> None:
    nodes[0].pause_all()
    time.sleep(STALL_S)
    nodes[0].resume_all()


def _kill(*names: str) -> Strike:
    def strike(nodes: list[DrillNode], _: RealServer) -> None:
        for name, node in itertools.product(names, nodes):
            wait_until(partial(node.kill, name), f"{name} is there", DEADLINE_S)
            time.sleep(0.2)

    return strike


def _kill_node(nodes: list[DrillNode], _: RealServer) -> None:
    nodes[0].kill_supervisor()
    time.sleep(1.5)
    nodes[0].start()


def _pids(nodes: list[DrillNode], *names: str) -> list[int]:
    return [pid for node in nodes for name, pid in node.live_children().items() if name.startswith(names)]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


STRIKES: dict[str, Strike] = {
    "workers_stopped": _stop("worker"),
    "workers_stopped_briefly": _stop_briefly,
    "dispatcher_stopped": _stop("dispatcher"),
    "limiter_stopped": _stop("rate_limiter"),
    "server_stopped": _stop_server,
    "node_stopped": _stop_node,
    "workers_killed": _kill("worker:0", "worker:1", "worker:0"),
    "dispatcher_killed": _kill("dispatcher", "dispatcher"),
    "limiter_killed": _kill("rate_limiter", "rate_limiter"),
    "node_killed": _kill_node,
}


@pytest.mark.parametrize("strike", STRIKES.values(), ids=STRIKES.keys())
def test_d22_starts_keep_to_the_rate(
    scene: Scene, server: RealServer, sized: Sized, report: Report, strike: Strike
) -> None:
    count, rounds = sized(600, 2_000), sized(1, 4)
    nodes = [scene.add_node(program=PATIENT, app=APP) for _ in range(2)]
    for node in nodes:
        node.wait_complete()
    _, tasks = build_app(scene.app.settings)
    for name, each in (("limited", count), ("limited_async", count // 2), ("free", count)):
        tasks[name].enqueue_many([(f"{name}-{number}",) for number in range(each)])
    tasks["keyed"].enqueue_many([(f"keyed-{number}", f"t{number % 2}") for number in range(count // 2)])
    time.sleep(0.5)
    for _ in range(rounds):
        strike(nodes, server)

    scene.wait_drained(DEADLINE_S, queues=[QUEUE])

    starts = _starts_by_task(scene)
    over = {name: most_over(starts[name], rate) for name, rate in _limits(starts).items()}
    report(f"starts { ({name: len(each) for name, each in starts.items()}) }, most over the rate {over}")
    assert max(over.values()) <= 0
    keys = {line[1] for line in read_ledger(scene.ledger_folder) if line[0] == "E" and "@" not in line[1]}
    assert len(keys) == 2 * count + 2 * (count // 2)


def _limits(starts: dict[str, list[int]]) -> dict[str, Rate]:
    total, by_tenant = PAIR
    tenants = {name: by_tenant for name in starts if name.startswith("keyed:")}
    return {"limited": TIGHT, "limited_async": TIGHT, "keyed": total, **tenants}


def _starts_by_task(scene: Scene) -> dict[str, list[int]]:
    """Instants in microseconds, in order; of the keyed ones also by tenant."""
    starts: dict[str, list[int]] = {}
    for kind, key, *words in read_ledger(scene.ledger_folder):
        if kind == "E" and "@" not in key:  # ticks of the app's schedule
            name, number = key.split("-")
            at_us = int(words[-1])
            starts.setdefault(name, []).append(at_us)
            if name == "keyed":
                starts.setdefault(f"keyed:t{int(number) % 2}", []).append(at_us)
    return {name: sorted(each) for name, each in starts.items()}


def test_the_worst_window_is_found() -> None:
    rate = Rate("10/s", burst=2)
    even = [number * 100_000 for number in range(50)]

    assert most_over(even, rate) <= 0
    assert most_over([*even, 5_000_000, 5_000_000, 5_000_000], rate) == 1
    assert most_over(sorted(itertools.chain(even, even)), rate) > 10
