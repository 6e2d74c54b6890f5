"""Messages handed over to dispatchers and begun by idle workers themselves, while all of them are struck."""

from __future__ import annotations

import itertools
import threading
import time

import redis

from tests.drills.conftest import Report, Sized
from tests.drills.node import PATIENT, DrillNode
from tests.drills.scene import Scene
from tests.support.deadline import wait_until

DEADLINE_S = 120.0
STRIKE_EVERY_S = 0.1
TARGETS = ("links", "dispatcher", "links", "worker:0", "links", "worker:1")
BEGINNERS = ("worker:0", "dispatcher", "worker:1", "links")


def test_nothing_handed_over_is_lost_with_its_wake_up(scene: Scene, sized: Sized, report: Report) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    with redis.Redis.from_url(scene.url) as raw:
        # One by one, with the workers idle most of the time: nearly all of them are handed over.
        publishing = threading.Thread(
            target=scene.publish, args=("work", sized(3_000, 12_000)), kwargs={"batch": 1}
        )
        publishing.start()
        cut = 0
        for target in itertools.islice(itertools.cycle(TARGETS), sized(18, 72)):
            if target == "links":
                cut += int(raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))
            else:
                _kill(scene, target)
            time.sleep(STRIKE_EVERY_S)
        publishing.join(DEADLINE_S)
        scene.wait_drained(DEADLINE_S)
    node.wait_complete()
    exit_code = node.stop()

    account = scene.account()
    strayed = sum(line["count"] for line in node.log() if line.get("event") == "deliveries_strayed")
    report(f"{account.summary()}; links cut {cut}, wake-ups lost with a message {strayed}")
    account.check()
    assert exit_code == 0
    assert cut > 0
    assert account.kills["dispatcher"] > 0


def test_what_workers_begin_by_themselves_is_neither_lost_nor_run_twice(
    scene: Scene, sized: Sized, report: Report
) -> None:
    node = scene.add_node(program=PATIENT)
    node.wait_complete()
    struck = begun = 0
    with redis.Redis.from_url(scene.url) as raw:
        publishing = scene.publish_beside("work", sized(4_000, 8_000), per_s=500, batch=1)
        for target in itertools.cycle(BEGINNERS):
            # Only where a worker made an early start since the last strike there is something to hit.
            begun += _wait_until_more_begin(node, publishing)
            if not publishing.is_alive():
                break
            if target == "links":
                raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            else:
                _kill(scene, target)
            struck += 1
        publishing.join(DEADLINE_S)
        scene.wait_drained(DEADLINE_S)
    node.wait_complete()
    exit_code = node.stop()

    account = scene.account()
    report(f"{account.summary()}; struck {struck} times, begun by themselves before that: {begun} and more")
    account.check()
    assert exit_code == 0
    assert struck > 0


def _wait_until_more_begin(node: DrillNode, publishing: threading.Thread) -> int:
    """How many more were begun by workers themselves; it may be none when nothing is published any more."""
    before = _begun_by_themselves(node)
    wait_until(
        lambda: _begun_by_themselves(node) > before or not publishing.is_alive(),
        "a worker has begun something by itself",
        DEADLINE_S,
    )
    return max(0, _begun_by_themselves(node) - before)


def _begun_by_themselves(node: DrillNode) -> int:
    return sum(node.child(f"worker:{number}").get("facts", {}).get("early_starts", 0) for number in (0, 1))


def _kill(scene: Scene, name: str) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while not scene.nodes[0].kill(name):
        assert time.monotonic() < ends_at, f"{name} did not come back"
        time.sleep(0.01)
