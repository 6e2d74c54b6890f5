"""Graphs and spawned children on a real node while its processes are killed with -9: exact all the same."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker import App, GraphStep, JobStatus, graph
from mqworker.settings import Settings
from tests.support.real_server import RealServer
from tests.system.test_workflows_under_kill import Nodes

DEADLINE_S = 120.0
MOST_KILLS = {"broker": 3, "dispatcher": 3, "worker": 10}
CHILDREN = 20
APP = """
import time
from pathlib import Path
from mqworker import App, Context

app = App("kills", redis_url="{url}")

def note(file, *words):
    with Path(file).open("a") as lines:
        print(*words, file=lines)

@app.task(max_crashes=30)
def step(*inputs: int, number: int) -> int:
    time.sleep(0.004)
    note("steps", number, *sorted(inputs))
    return number

@app.task(queue="callbacks", max_crashes=30)
def collect(numbers: list[int]) -> int:
    note("collected", *numbers)
    return sum(numbers)

@app.task(max_crashes=30)
def child(parent: int, number: int) -> int:
    time.sleep(0.002)
    note("children", parent, number)
    return 1000 * parent + number

@app.task(max_crashes=30)
def parent(ctx: Context, number: int) -> int:
    note("parents", number)
    ctx.spawn_many([child.s(number, each) for each in range(10)], then=collect.s())
    time.sleep(0.01)
    ctx.spawn_many([child.s(number, each) for each in range(10, 20)], then=collect.s())
    time.sleep(0.01)
    return number
"""


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def nodes(tmp_path: Path, server: RealServer) -> Iterator[Nodes]:
    made = Nodes(tmp_path, server.url)
    (tmp_path / "kills.py").write_text(APP.format(url=server.url))
    yield made
    made.close()


def kill_until(is_over: object, nodes: Nodes, chance: random.Random) -> Counter[str]:
    kills, ends_at = Counter[str](), time.monotonic() + DEADLINE_S
    while time.monotonic() < ends_at and not is_over():  # type: ignore[operator]
        time.sleep(chance.uniform(0.1, 0.4))  # the moment of the next kill is the point, not a wait
        kind = chance.choice(["broker", "dispatcher", "worker", "worker"])
        if kills[kind] < MOST_KILLS[kind]:
            kills[kind] += nodes.kill(kind, "one", chance)
    return kills


def lines(nodes: Nodes, file: str) -> list[list[int]]:
    path = nodes.directory / file
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()]


def test_random_graphs_run_every_step_after_those_before_it(nodes: Nodes, server: RealServer) -> None:
    chance = random.Random(5)  # noqa: S311 - the same graphs each time
    app = App("kills", settings=Settings(redis_url=server.url))
    step = app.named("kills.step")
    inputs_of: dict[int, list[int]] = {}
    jobs = []
    nodes.start("one")
    for _ in range(20):
        whole, steps = graph(), list[tuple[int, GraphStep[object]]]()
        for _ in range(40):
            number = len(inputs_of)
            before = chance.sample(steps, k=min(len(steps), chance.randint(0, 3)))
            steps.append((number, whole.step(step.s(number=number), after=[each for _, each in before])))
            inputs_of[number] = sorted(each for each, _ in before)
        jobs.append(whole.enqueue())

    kills = kill_until(lambda: all(job.status() is JobStatus.SUCCEEDED for job in jobs), nodes, chance)

    assert [job.status() for job in jobs] == [JobStatus.SUCCEEDED] * len(jobs)
    ran = lines(nodes, "steps")
    assert {number: inputs for number, *inputs in ran} == inputs_of
    order = {number: at for at, (number, *_) in reversed(list(enumerate(ran)))}
    assert all(order[each] < order[number] for number, inputs in inputs_of.items() for each in inputs)
    # What a killed worker was in the middle of may run once more; nothing else does.
    assert len(ran) - len(inputs_of) <= 2 * sum(kills.values()), kills
    totals = server.client().hgetall("mqw:{default}:meta")
    assert int(totals[b"enqueued"]) == int(totals[b"succeeded"]) == len(inputs_of)
    assert min(kills[kind] for kind in MOST_KILLS) >= 1, kills
    app.close()


def test_children_of_killed_parents_are_spawned_once_and_called_back_for_once(
    nodes: Nodes, server: RealServer
) -> None:
    chance = random.Random(9)  # noqa: S311 - same
    app = App("kills", settings=Settings(redis_url=server.url))
    parents = range(60)
    jobs = app.named("kills.parent").enqueue_many([(number,) for number in parents])
    nodes.start("one")
    trees = [app.workflow(job.id) for job in jobs]

    kills = kill_until(lambda: all(tree.status() is JobStatus.SUCCEEDED for tree in trees), nodes, chance)

    assert [tree.status() for tree in trees] == [JobStatus.SUCCEEDED] * len(trees)
    assert set(map(tuple, lines(nodes, "children"))) == {(p, c) for p in parents for c in range(CHILDREN)}
    halves = {
        (p, half): [1000 * p + c for c in range(10 * half, 10 * half + 10)]
        for p in parents
        for half in (0, 1)
    }
    assert sorted(set(map(tuple, lines(nodes, "collected")))) == sorted(map(tuple, halves.values()))
    totals = server.client().hgetall("mqw:{default}:meta")
    assert int(totals[b"enqueued"]) == int(totals[b"succeeded"]) == len(parents) * (1 + CHILDREN)
    totals = server.client().hgetall("mqw:{callbacks}:meta")
    assert int(totals[b"enqueued"]) == int(totals[b"succeeded"]) == len(parents) * 2
    assert len(lines(nodes, "parents")) > len(parents), "no parent was killed: the drill shows nothing"
    assert min(kills[kind] for kind in MOST_KILLS) >= 1, kills
    app.close()
