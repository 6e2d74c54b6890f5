"""Workflows of any shape on a real server, against a model: who runs, how often, and with what."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqworker import (
    App,
    EncryptionKey,
    Files,
    GraphStep,
    JobStatus,
    Keyring,
    MemberFailure,
    StepGraph,
    chain,
    graph,
    group,
)
from mqworker.errors import InvalidArgument, TaskFailed
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


class Small:
    """An app with a few tasks, and hands for it; `log` is what ran."""

    def __init__(self, app: App) -> None:
        self.app, self.log = app, list[object]()
        self.worker, self.broker = HandWorker(app), HandBroker(app)

        @app.task
        def add(first: int, second: int, more: int = 0) -> int:
            self.log.append(("add", first, second, more))
            return first + second + more

        @app.task(retry=0)
        def fail(number: int) -> int:
            raise ValueError(f"no {number}")

        @app.task
        def handle(failure: MemberFailure) -> str:
            self.log.append(("handle", failure.message))
            return failure.message

        @app.task
        def total(numbers: list[int | MemberFailure]) -> int:
            return sum(each for each in numbers if isinstance(each, int))

        self.add, self.fail, self.handle, self.total = add, fail, handle, total

    def carry_on(self, rounds: int = 8) -> None:
        for _ in range(rounds):
            self.broker.round()
            self.worker.run_all()
        self.broker.round()


@pytest.fixture(params=["plain", "encrypted", "offloaded"])
def small(server: RealServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Small]:
    app = App(
        "shop",
        settings=Settings(redis_url=server.url),
        keys=Keyring(EncryptionKey("k1", b"x" * 32)) if request.param == "encrypted" else None,
        offload=Files(tmp_path, above=1, most=100_000) if request.param == "offloaded" else None,
    )
    yield Small(app)
    app.close()


def test_results_of_several_steps_are_the_first_arguments_in_order(small: Small) -> None:
    whole = graph()
    one = whole.step(small.add.s(1, 0))
    two = whole.step(small.add.s(2, 0))
    three = whole.step(small.add.s(more=100), after=(two, one))
    whole.step(small.add.s(5), after=three)
    whole.step(small.add.si(7, 7), after=[one, three])
    job = whole.enqueue()

    small.carry_on()

    assert ("add", 2, 1, 100) in small.log
    assert job.result(timeout=0) == [108, 14]


def test_a_step_may_be_a_whole_workflow_and_a_graph_a_step_of_one(small: Small) -> None:
    inner = graph()
    first = inner.step(small.add.s(1))  # with the input of the whole graph
    inner.step(group(small.add.s(10), chain(small.add.s(20), small.add.s(0))), after=first)
    job = chain(small.add.s(1, 1), inner, small.total.s()).enqueue()

    small.carry_on(12)

    assert job.result(timeout=0) == 13 + 23


def test_a_group_that_collects_failures_goes_on_with_values_within_a_graph(small: Small) -> None:
    whole = graph()
    members = whole.step(group(small.fail.s(1), small.add.s(1, 1), on_failure="collect"))
    whole.step(small.total.s(), after=members)
    job = whole.enqueue()

    small.carry_on()

    assert job.result(timeout=0) == 2


def test_branches_for_failures_run_once_and_get_the_failure_and_the_workflow_has_failed(small: Small) -> None:
    job = chain(small.add.s(1, 1), small.fail.si(7), small.add.s(3)).on_error(small.handle.s()).enqueue()
    inner = group(chain(small.fail.s(1), small.add.s(1)).link_error(small.handle.s()), small.add.s(1, 1))
    other = inner.enqueue()

    small.carry_on()

    assert sorted(each for each in small.log if isinstance(each, tuple) and each[0] == "handle") == [
        ("handle", "no 1"),
        ("handle", "no 7"),
    ]
    assert (job.status(), other.status()) == (JobStatus.FAILED, JobStatus.FAILED)
    with pytest.raises(TaskFailed, match=r"member 1.*no 7"):
        job.result(timeout=0)
    statuses = [member.status for member in job.members()]
    assert statuses == [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.SKIPPED, JobStatus.SUCCEEDED]


def test_links_follow_beside_and_the_outcome_stays_that_of_the_call(small: Small) -> None:
    linked = small.add.s(2, 2).link(small.add.s(10), small.add.s(20)).on_error(small.handle.s()).enqueue()

    small.carry_on()

    assert linked.result(timeout=0) == 4
    assert small.log[1:] == [("add", 4, 10, 0), ("add", 4, 20, 0)]


def test_options_of_a_call_are_set_by_our_names_and_by_those_of_celery(small: Small) -> None:
    call = small.add.s(1, 1)

    assert call.set(queue="slow", priority=7).plan.queue == "slow"
    assert call.set(countdown=60).plan == call.set(delay=60).plan
    assert call.set(expires=60).plan == call.set(deadline=60).plan
    assert call.set(immutable=True).is_immutable
    assert call.plan.queue == "default"
    with pytest.raises(InvalidArgument, match="delay and countdown are both given"):
        call.set(countdown=60, delay=60)


def test_a_graph_with_a_mistake_in_it_is_refused_where_it_is_made(small: Small) -> None:
    whole, other = graph(), graph()
    one = whole.step(small.add.s(1, 1))
    two = whole.step(small.add.s(2), after=one)
    foreign = other.step(small.add.s(1, 1))
    strangers = App("other", settings=small.app.settings)

    @strangers.task
    def strange() -> None: ...

    with pytest.raises(InvalidArgument, match=r"step 0 \(.*add\) is of another graph; accepted are"):
        whole.step(small.add.s(1), after=foreign)
    with pytest.raises(InvalidArgument, match="twice; accepted are other steps of its graph, each once"):
        whole.step(small.add.s(1), after=(one, one))
    with pytest.raises(InvalidArgument, match=r"follows from .* itself"):
        one.after(one)
    with pytest.raises(InvalidArgument, match="accepted are steps of this graph"):
        whole.step(small.add.s(1), after=[small.add.s(1, 1)])  # type: ignore[list-item] # wrong on purpose
    with pytest.raises(InvalidArgument, match=r"not a step; accepted are task\.s"):
        whole.step(small.add)  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(InvalidArgument, match="another app"):
        whole.step(strange.s())
    with pytest.raises(InvalidArgument, match="graph has no steps; accepted is at least one"):
        graph().enqueue()
    with pytest.raises(InvalidArgument, match="group without members"):
        chain(small.add.s(1, 1)).on_error(group()).enqueue()
    with pytest.raises(InvalidArgument, match="no call is given"):
        small.add.s(1, 1).link()
    wrong = graph()
    wrong.step(small.handle.s(), after=[wrong.step(small.add.s(1, 1)), wrong.step(small.add.s(1, 1))])
    with pytest.raises(InvalidArgument, match="too many positional"):
        wrong.enqueue()
    one.after(two)
    with pytest.raises(InvalidArgument, match=r"cycle: step 0 .* follows from step 1 .* follows from step 0"):
        whole.enqueue()
    assert small.app.work_queue().counts().waiting == 0
    strangers.close()


def test_a_cancelled_graph_goes_no_further_however_late_a_broker_is(small: Small, server: RealServer) -> None:
    whole = graph()
    one = whole.step(small.add.s(1, 1))
    whole.step(small.add.s(2), after=one)
    job = whole.enqueue()
    small.broker.round()
    small.worker.run_all()
    with server.client() as client:
        ended = client.hgetall(OUTBOX)
        small.broker.round()  # the second step is in line
        client.hset(OUTBOX, mapping=ended)  # as if the broker had died before it could look again
        client.hset(
            f"mqw:{{flow:{job.id}}}:state", "state", "cancelled"
        )  # by somebody who saw nothing in line

    small.broker.round()

    assert small.app.work_queue().counts().waiting == 0
    small.carry_on()
    assert small.log == [("add", 1, 1, 0)]
