"""Workflows of any shape on a real server, against a model: who runs, how often, and with what."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqworker import App, GraphStep, JobStatus, MemberFailure, StepGraph, graph
from mqworker.errors import TaskFailed
from mqworker.settings import Settings
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

OUTBOX = "mqw:{default}:outbox"


@dataclass(frozen=True)
class Plan:
    """A graph: for each step those before it, and which steps have a branch for their failure."""

    before: list[list[int]]
    with_branch: set[int]
    failing: list[set[int]]
    """Which steps fail in the first runs, in the runs after a revival, and so on."""
    seed: int


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 9))
    before = [
        draw(st.lists(st.integers(0, at - 1), unique=True, max_size=4)) if at else [] for at in range(count)
    ]
    steps = st.sets(st.integers(0, count - 1), max_size=3)
    return Plan(before, draw(steps), [draw(steps), draw(steps)], draw(st.integers(0, 2**16)))


class Site:
    """An app whose steps note what they got, and fail when told to; a broker that may repeat itself."""

    def __init__(self, server: RealServer) -> None:
        self.app = App("graphs", settings=Settings(redis_url=server.url))
        self.worker, self.broker = HandWorker(self.app), HandBroker(self.app)
        self.client = server.client()
        self.failing: set[int] = set()
        self.runs: list[tuple[int, tuple[object, ...]]] = []
        self.handled: list[tuple[object, MemberFailure]] = []

        @self.app.task(name="work", retry=0)
        def work(*inputs: object, step: int) -> str:
            self.runs.append((step, inputs))
            if step in self.failing:
                raise ValueError(f"no {step}")
            return f"result of {step}"

        @self.app.task(name="handle")
        def handle(failure: MemberFailure, step: object) -> None:
            self.handled.append((step, failure))

        self.work, self.handle = work, handle

    def carry_on(self, chance: random.Random) -> None:
        """Until nothing is left to do; now and then what was counted long ago is in the outbox again."""
        seen: dict[bytes, bytes] = {}
        for _ in range(40):
            entries = self.client.hgetall(OUTBOX)
            seen |= entries
            self.broker.round()
            if seen and chance.random() < 0.4:
                again = chance.sample(sorted(seen), k=min(3, len(seen)))
                self.client.hset(OUTBOX, mapping={each: seen[each] for each in again})
            is_idle = not self.worker.run_all() and not entries
            if is_idle:
                break
        self.client.delete(OUTBOX)  # what the test itself has put there


@dataclass
class Model:
    """What is to happen."""

    plan: Plan
    ended_well: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    handled: set[int] = field(default_factory=set)
    runs: Counter[int] = field(default_factory=Counter)

    def run(self, failing: set[int]) -> None:
        again = self.failed & failing
        self.runs.update(self.failed)
        self.ended_well |= self.failed - failing
        self.failed = again
        if again:  # nothing goes on before all failures are made good
            return
        for step, before in enumerate(self.plan.before):
            if step in self.ended_well or not set(before) <= self.ended_well:
                continue
            self.runs[step] += 1
            if step in failing:
                self.failed.add(step)
                self.handled.add(step)
            else:
                self.ended_well.add(step)


def build(site: Site, plan: Plan) -> StepGraph:
    whole = graph()
    steps: list[GraphStep[str]] = []
    for step, before in enumerate(plan.before):
        added = whole.step(site.work.s(step=step), after=[steps[each] for each in before])
        if step in plan.with_branch:
            added.on_error(site.handle.s(step=step))
        steps.append(added)
    return whole


@given(plan=plans())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_graph_does_what_the_model_says(server: RealServer, plan: Plan) -> None:
    server.client().flushall()
    site, model, chance = Site(server), Model(plan), random.Random(plan.seed)  # noqa: S311 - replayed
    job = build(site, plan).on_error(site.handle.s(step="whole")).enqueue()
    has_failed = False

    for failing in [*plan.failing, set()]:
        site.failing = failing
        site.carry_on(chance)
        model.run(failing)
        has_failed = has_failed or bool(model.failed)

        assert Counter(step for step, _ in site.runs) == model.runs
        expected = Counter[object](model.handled & plan.with_branch)
        expected.update(["whole"] if has_failed else [])
        assert Counter(step for step, _ in site.handled) == expected
        if model.failed:
            assert job.status() is JobStatus.FAILED
            with pytest.raises(TaskFailed, match="no "):
                job.result(timeout=0)
            site.app.work_queue().revive(*(letter.id for letter in site.app.work_queue().dead_letters()))
        else:
            break

    assert model.ended_well == set(range(len(plan.before)))
    for step, inputs in site.runs:
        assert inputs == tuple(f"result of {each}" for each in plan.before[step])
    for step, failure in site.handled:
        assert failure.error == "ValueError"
        assert step == "whole" or failure.message == f"no {step}"
    followed = {each for before in plan.before for each in before}
    sinks = [f"result of {step}" for step in range(len(plan.before)) if step not in followed]
    assert job.status() is JobStatus.SUCCEEDED
    assert job.result(timeout=0) == (sinks[0] if len(sinks) == 1 else sinks)
    site.app.close()
