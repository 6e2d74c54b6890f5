"""D30: never more run at once than max_running says, whoever is killed; no slot is lost, order is kept."""

from __future__ import annotations

import itertools
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

import pytest

from mqworker.errors import StoreRefused, StoreUnavailable
from tests.drills import slow_app
from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.node import PATIENT, DrillNode
from tests.drills.running_app import OTHER_QUEUE, QUEUE, build_app
from tests.drills.scene import Scene
from tests.support.deadline import wait_until
from tests.support.ledger import read_ledger
from tests.support.real_server import RealServer

APP = "tests.drills.running_app:app"
DEADLINE_S = 120.0
FULL_DEADLINE_S = 3_600.0
QUEUES = (QUEUE, OTHER_QUEUE)
STRIKES = ("worker:0", "worker:1", "dispatcher", "rate_limiter", "recovery_scanner", "node", "server")


def test_d30_no_limit_is_passed_and_no_slot_is_lost(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    count, keys = sized(4_000, 1_000_000), sized(20, 500)
    chance = random.Random(30)  # noqa: S311
    with RealServer(aof="always") as server:
        scene = make_scene(server.url)
        nodes = [scene.add_node(program=PATIENT, app=APP) for _ in range(2)]
        for node in nodes:
            node.wait_complete()
        _publish(scene, count, keys)
        kills = 0
        for strike in _until_drained(scene, chance, sized(14, 1_000_000)):
            _strike(strike, nodes, server, chance)
            kills += 1
            time.sleep(chance.uniform(0.05, 0.4))
        _wait_drained(scene, sized(int(DEADLINE_S), int(FULL_DEADLINE_S)))

        runs = [line for line in read_ledger(scene.ledger_folder) if line[0] == "E"]
        over = [line for line in runs if _is_over(line)]
        report(f"{len(runs)} runs of {count} messages, {kills} kills, most beside: {_most(runs)}")
        assert over == [], _beside(over, read_ledger(scene.ledger_folder))
        assert len({(line[1], line[2]) for line in runs}) == count
        assert _out_of_order(runs) == []
        _check_nothing_is_left(server)
        scene.close()


@pytest.mark.parametrize("victim", ["worker", "node"])
def test_d30b_the_slot_of_a_killed_worker_is_back_within_the_heartbeat_time_out(
    make_scene: MakeScene, report: Report, victim: str
) -> None:
    timeout_s = 1.0
    with RealServer() as server:
        scene = make_scene(server.url)
        nodes = [scene.add_node(program=PATIENT, app="tests.drills.slow_app:app") for _ in range(2)]
        for node in nodes:
            node.wait_complete()
        _, task = slow_app.build_app(scene.app.settings)
        task.enqueue_many([("one",), ("two",)])
        wait_until(lambda: _begun(scene), "the first runs", DEADLINE_S)
        pid = int(_begun(scene)[0][2])
        holder = next(node for node in nodes if pid in node.descendants())
        name = next(name for name, each in holder.live_children().items() if each == pid)
        at_s = time.monotonic()
        if victim == "worker":
            assert holder.kill(name)
        else:
            holder.kill_supervisor()
        wait_until(lambda: len(_begun(scene)) > 1, "the next one runs", DEADLINE_S)
        took_s = int(_begun(scene)[1][3]) / 1e6 - at_s

        report(f"{took_s:.2f} s after the kill of the {victim}")
        # The reaper finds the silence in its next round, and the message goes from there to a worker.
        assert took_s < (timeout_s if victim == "worker" else timeout_s + 1.0)
        scene.close()


def _publish(scene: Scene, count: int, keys: int) -> None:
    _, tasks = build_app(scene.app.settings)
    shares = {"in_order": 0.5, "stacked": 0.2, "here": 0.1, "there": 0.1, "free": 0.1}
    numbers = {name: range(int(count * share)) for name, share in shares.items()}
    for name, each in numbers.items():
        for start in range(0, len(each), 10_000):
            some = each[start : start + 10_000]
            tasks[name].enqueue_many([(f"k{number % keys}", number) for number in some])
    assert sum(map(len, numbers.values())) == count


def _until_drained(scene: Scene, chance: random.Random, most: int) -> Iterator[str]:
    for _ in range(most):
        if all(_is_empty(scene, queue) for queue in QUEUES):
            return
        yield chance.choice(STRIKES)


def _is_empty(scene: Scene, queue: str) -> bool:
    with suppress(StoreUnavailable, StoreRefused):
        counts = scene.counts(queue)
        return counts.waiting + counts.leased == 0
    return False


def _wait_drained(scene: Scene, deadline_s: float) -> None:
    scene.wait_drained(deadline_s, queues=QUEUES)


def _strike(name: str, nodes: list[DrillNode], server: RealServer, chance: random.Random) -> None:
    if name == "server":
        server.kill()
        time.sleep(0.1)
        server.start()
    elif name == "node":
        node = chance.choice(nodes)
        node.kill_supervisor()
        time.sleep(chance.uniform(0.0, 1.5))
        node.start()
    else:
        chance.choice(nodes).kill(name)


def _is_over(line: tuple[str, ...]) -> bool:
    return any(int(count) > int(most) for count, most in (word.split("/") for word in line[6:]))


def _beside(over: list[tuple[str, ...]], lines: list[tuple[str, ...]]) -> str:
    """What ran beside those that were too many, and whether its process was killed."""
    killed = {line[1] for line in lines if line[0] in "KS"}
    ends = {(line[1], line[3]): int(line[4]) for line in lines if line[0] == "F"}
    told = []
    for run in over:
        at_us = int(run[4])
        for line in lines:
            if line[0] == "E" and line[1].split("-")[0] == run[1].split("-")[0] and int(line[4]) <= at_us:
                end_us = ends.get((line[1], line[3]))
                if end_us is None or end_us >= at_us:
                    told.append(f"{line} ended {end_us} killed {line[5] in killed}")
        told.append("---")
    return "\n".join(told)


def _most(runs: list[tuple[str, ...]]) -> dict[str, str]:
    most: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for _, key, _, _, _, _, *words in runs:
        for position, word in enumerate(words):
            most[key.split("-")[0]][position] = max(
                most[key.split("-")[0]][position], int(word.split("/")[0])
            )
    return {task: "/".join(map(str, counts)) for task, counts in most.items()}


def _out_of_order(runs: list[tuple[str, ...]]) -> list[tuple[str, int, int]]:
    """Of tasks that run one at a time: whoever began for the first time after a later one had begun."""
    begun: dict[str, dict[int, int]] = defaultdict(dict)
    for _, key, number, _, at_us, *_ in runs:
        if key.startswith("in_order-"):
            first = begun[key].get(int(number), int(at_us))
            begun[key][int(number)] = min(first, int(at_us))
    found = []
    for key, instants in begun.items():
        numbers = sorted(instants, key=lambda number: instants[number])
        found += [(key, one, other) for one, other in itertools.pairwise(numbers) if one > other]
    return found


def _check_nothing_is_left(server: RealServer) -> None:
    with server.client() as client:
        left = [
            key for pattern in ("*:slots", "*:running", "*:blocked:*") for key in client.scan_iter(pattern)
        ]
        assert left == []
        for queue in QUEUES:
            assert client.hget(f"mqw:{{{queue}}}:meta", "slots_repaired") is None


def _begun(scene: Scene) -> list[tuple[str, ...]]:
    return sorted(
        (line for line in read_ledger(scene.ledger_folder) if line[0] == "B"), key=lambda line: int(line[3])
    )
