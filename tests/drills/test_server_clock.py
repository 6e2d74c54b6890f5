"""D23: the server's clock is set while a node works: back, forward, and by a little again and again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from mqworker.model.settlement import Ack
from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.node import PATIENT, DrillNode
from tests.drills.rate_app import QUEUE, TIGHT, build_app
from tests.drills.scene import Scene
from tests.drills.starts import most_over
from tests.support.deadline import wait_until
from tests.support.ledger import read_ledger
from tests.support.messages import a_message
from tests.support.node_process import ROOT
from tests.support.stepped_server import SteppedServer

APP = "tests.drills.rate_app:app"
HOUR_S, DAY_S = 3_600, 86_400
DEADLINE_S = 90.0
GOES_ON_S = 10.0
"""A schedule looks every second, and a permit is there within one; the rest is for a busy machine."""
MOST_MADE_UP = 100
HEARTBEAT = {"heartbeat_interval_s": 0.3, "heartbeat_timeout_s": 1.5}
SELDOM = {"heartbeat_interval_s": 4.0, "heartbeat_timeout_s": 12.0}
"""A node that wants to be waited for longer than the others do."""

STEPS = {
    "back_an_hour": [-HOUR_S],
    "forward_a_day": [DAY_S],
    "back_and_forth": [-HOUR_S, 0, HOUR_S, 0],
    "by_a_little": [2, 0, -2, 0, 2, 0, -2, 0],
}


@pytest.fixture
def stepped() -> Iterator[SteppedServer]:
    """A server whose clock can be set."""
    with SteppedServer() as server:
        yield server


@pytest.mark.parametrize("offsets_s", STEPS.values(), ids=STEPS.keys())
def test_d23_work_goes_on_by_the_new_clock(
    stepped: SteppedServer, make_scene: MakeScene, sized: Sized, report: Report, offsets_s: Sequence[int]
) -> None:
    per_step = sized(200, 1_000)
    scene = make_scene(stepped.url)
    node = scene.add_node(program=PATIENT, app=APP)
    node.wait_complete()
    _, tasks = build_app(scene.app.settings)
    _wait_for_more(scene, "rates/tick@", 2)
    ticks_before, longest_s = _count(scene, "rates/tick@"), 0.0
    for step, offset_s in enumerate(offsets_s):
        for name in ("limited", "free"):
            tasks[name].enqueue_many([(f"{name}-{step}-{number}",) for number in range(per_step)])
        _wait_for_more(scene, f"limited-{step}", per_step // 4)
        stepped.set_clock(offset_s)
        began = time.monotonic()
        _wait_for_more(scene, "limited-", per_step // 4)
        _wait_for_more(scene, "rates/tick@", 1)
        longest_s = max(longest_s, time.monotonic() - began)

    scene.wait_drained(queues=[QUEUE])

    starts = [(line[1], int(line[-1])) for line in read_ledger(scene.ledger_folder) if line[0] == "E"]
    calls = [key for key, _ in starts if not key.startswith("rates/tick@")]
    ticks = len(starts) - len(calls)
    over = most_over(sorted(at_us for key, at_us in starts if key.startswith("limited-")), TIGHT)
    steps = node.logged("server_clock_stepped")
    report(
        f"{len(steps)} steps, {len(calls)} calls, {ticks} ticks, "
        f"went on after {longest_s:.1f} s at most, "
        f"starts over the rate {over}"
    )
    assert len(set(calls)) == 2 * per_step * len(offsets_s)
    assert [key for key, times in Counter(calls).items() if times > 1] == []
    assert ticks <= ticks_before + (1 + MOST_MADE_UP) * len(offsets_s) + 200
    assert len(steps) >= len(offsets_s)
    # Time that the server skipped fills a bucket, once for each step forward; nothing else does.
    assert over <= TIGHT.burst * sum(later > sooner for sooner, later in pairwise([0, *offsets_s]))
    assert not _restarted(node)


def test_d23_nobody_falls_silent_because_the_clock_was_set(
    stepped: SteppedServer, make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    scene = make_scene(stepped.url)
    nodes = [scene.add_node(settings=each) for each in (HEARTBEAT, HEARTBEAT, SELDOM)]
    for node in nodes:
        node.wait_complete()
    time.sleep(1.5 * HEARTBEAT["heartbeat_timeout_s"])  # until a reaper judges at all
    steps = [DAY_S, 0, 2 * HOUR_S, -HOUR_S, 5, 0, -5, 365 * DAY_S, 0] * sized(1, 5)
    for number, offset_s in enumerate(steps):
        before = scene.executed()
        scene.publish("hold", 2 * len(nodes), 2.0)
        scene.wait_executed(before + 2 * len(nodes))
        time.sleep(0.037 * (number % 7))  # at ever another moment between two beats
        stepped.set_clock(offset_s)
        scene.wait_drained()

    account = scene.account()
    report(f"{len(steps)} steps; {account.summary()}")
    account.check()
    assert not [line for node in nodes for line in node.logged("consumer_reaped")]
    assert account.duplicates == 0


def test_d23_a_lease_that_ends_by_time_ends_with_the_clock_and_status_says_so(
    stepped: SteppedServer, make_scene: MakeScene
) -> None:
    scene = make_scene(stepped.url)
    node = scene.add_node()
    node.wait_complete()
    outside = scene.queue("outside")
    outside.enqueue(a_message())
    wait_until(lambda: node.child("broker")["facts"]["rounds"] > 0, "the node knows the time")
    (claimed,) = outside.claim(1, lease_ms=HOUR_S * 500)

    stepped.set_clock(HOUR_S)

    wait_until(lambda: outside.counts().ready == 1, "it came back, half an hour too soon", DEADLINE_S)
    assert outside.settle(Ack(claimed)), "the late ack is refused"
    wait_until(lambda: "set forward by 60 min" in _status(scene), "status says so", DEADLINE_S)


def _status(scene: Scene) -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "mqworker", "status", "-r", scene.url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "400"},
        check=False,
    )
    return asked.stdout


def _wait_for_more(scene: Scene, prefix: str, more: int) -> None:
    enough = _count(scene, prefix) + more
    wait_until(lambda: _count(scene, prefix) >= enough, f"{more} more of {prefix}", GOES_ON_S)


def _count(scene: Scene, prefix: str) -> int:
    lines = read_ledger(scene.ledger_folder)
    return sum(1 for line in lines if line[0] == "E" and line[1].startswith(prefix))


def _restarted(node: DrillNode) -> list[str]:
    return [line["event"] for line in node.log() if line.get("event") == "child_exited"]
