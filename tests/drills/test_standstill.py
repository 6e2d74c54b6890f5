"""A node never stands still: signals, lost mail and stopped workers cost seconds, and `status` names them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.drills.conftest import Report, Sized
from tests.drills.node import DrillNode
from tests.drills.scene import Scene
from tests.support.deadline import wait_until
from tests.support.node_process import ROOT

DEADLINE_S = 90.0
BACK_WITHIN_S = 20.0


def test_a_storm_of_signals_at_the_workers_stops_nothing(scene: Scene, sized: Sized, report: Report) -> None:
    node = scene.add_node()
    node.wait_complete()
    scene.publish("work", sized(4_000, 60_000))
    scene.publish("fail_once", sized(1_000, 30_000))
    with _storm(node) as sent:
        time.sleep(sized(4, 20))
    before = scene.ledger_bytes()
    wait_until(
        lambda: scene.ledger_bytes() > before or scene.counts().waiting == 0, "it works on after the storm"
    )
    scene.wait_drained(sized(90, 600))

    account = scene.account()
    report(f"{account.summary()}; signals {sent[0]:,}")
    account.check()
    assert account.duplicates == 0
    assert account.ending_counts["buried"] == 0
    assert account.ending_counts["retried"] == sized(1_000, 30_000), "no signal is a task's failure"
    assert sum(child["restarts"] for child in node.snapshot()["children"]) == 0
    assert node.stop() == 0


def test_what_a_worker_forgot_comes_back_within_seconds(scene: Scene, sized: Sized, report: Report) -> None:
    node = scene.add_node()
    node.wait_complete()
    slowest_s = 0.0
    scene.publish("work", 50)
    scene.publish("forget", 4)  # so that it is known to be quick, and travels in a batch
    scene.wait_drained(DEADLINE_S)
    for _ in range(sized(3, 20)):
        scene.publish("work", 100)
        scene.publish("forget", 1)
        scene.publish("work", 100)
        began = time.monotonic()
        scene.wait_drained(DEADLINE_S)
        slowest_s = max(slowest_s, time.monotonic() - began)
    missing = sum(line["deliveries"] for line in node.logged("deliveries_missing"))

    account = scene.account()
    report(f"{account.summary()}; forgotten {missing}, slowest round {slowest_s:.1f} s")
    account.check()
    assert account.duplicates == 0
    assert missing > 0
    assert slowest_s < BACK_WITHIN_S
    assert node.stop() == 0


def test_a_stopped_worker_that_runs_nothing_is_named_and_replaced(
    scene: Scene, sized: Sized, report: Report
) -> None:
    node = scene.add_node()
    node.wait_complete()
    scene.publish("work", 200)
    scene.wait_drained()
    slowest_s = 0.0
    for _ in range(sized(1, 5)):
        stopped = node.live_children()["worker:0"]
        scene.ledger.note("S", stopped, "worker")
        os.kill(stopped, signal.SIGSTOP)
        began = time.monotonic()
        scene.publish("work", 2_000)
        wait_until(lambda: "worker:0" in _status(scene, "does not answer"), "status names it", BACK_WITHIN_S)
        scene.wait_drained(DEADLINE_S)
        slowest_s = max(slowest_s, time.monotonic() - began)
        node.wait_complete()

    account = scene.account()
    report(f"{account.summary()}; slowest round {slowest_s:.1f} s")
    account.check()
    assert slowest_s < BACK_WITHIN_S
    assert node.child("worker:0")["last_exit"].startswith("has deliveries, runs none")
    assert node.stop() == 0


def _status(scene: Scene, word: str) -> str:
    """The lines of `mqworker status` that have a word in them."""
    asked = subprocess.run(
        [sys.executable, "-m", "mqworker", "status", "-r", scene.url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
        check=False,
    )
    return "\n".join(line for line in asked.stdout.splitlines() if word in line)


@contextmanager
def _storm(node: DrillNode) -> Iterator[list[int]]:
    """SIGUSR1 at all workers, as fast as it goes."""
    pids = [pid for name, pid in node.live_children().items() if name.startswith("worker:")]
    sent, is_over = [0], threading.Event()

    def strike() -> None:
        while not is_over.is_set():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
                sent[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()
