"""Fair shares: tenants of a queue take turns, however many calls one of them has waiting."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

import pytest

from mqworker import App, Fair, JobStatus, Rate, Task, chain
from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.settlement import RetryAt
from mqworker.queues.work.queue import WorkQueue
from tests.support.deadline import wait_until
from tests.support.hand_worker import HandWorker

Foreign: TypeAlias = Any
"""Whatever a caller may give."""


@pytest.fixture
def queue(app: App) -> WorkQueue:
    """The queue of its tasks."""
    return app.work_queue()


class Work:
    """A task that notes whose call ran."""

    def __init__(self, app: App, **options: Foreign) -> None:
        self.ran: list[str] = []

        @app.task(name="work", **{"fair_by": "{tenant}", **options})
        def work(tenant: str, number: int = 0) -> None:
            self.ran.append(f"{tenant}{number}")

        self.task: Task[..., None] = work
        self._app = app

    def run(self, room: int) -> str:
        """Let in so many, run them; whose calls they were, one letter each."""
        before = len(self.ran)
        self._app.work_queue().admit(room)
        HandWorker(self._app).run_all()
        return "".join(each[0] for each in self.ran[before:])


def test_a_flood_of_one_tenant_delays_the_others_by_one_call_each(app: App) -> None:
    work = Work(app)
    work.task.enqueue_many([("a", number) for number in range(1_000)])
    work.task.enqueue_many([("b", 0), ("b", 1), ("c", 0)])

    assert work.run(room=8) == "abcabaaa"


def test_turns_go_on_where_they_stopped(app: App) -> None:
    work = Work(app)
    work.task.enqueue_many([(tenant, number) for tenant in "abcde" for number in range(20)])

    turns = "".join(work.run(room=3) for _ in range(10))

    assert Counter(turns) == dict.fromkeys("abcde", 6)
    assert turns[:5] == turns[5:10]  # each once before anyone comes again


def test_whoever_comes_new_is_next_and_not_first_for_all_he_has(app: App) -> None:
    work = Work(app)
    work.task.enqueue_many([(tenant, number) for tenant in "ab" for number in range(20)])
    work.run(room=4)

    work.task.enqueue_many([("n", number) for number in range(20)])

    assert Counter(work.run(room=9)) == {"a": 3, "b": 3, "n": 3}


def test_the_calls_of_a_tenant_stay_in_order(app: App) -> None:
    work = Work(app)
    work.task.enqueue_many([(tenant, number) for number in range(9) for tenant in "ab"])

    while work.run(room=5):
        pass

    for tenant in "ab":
        assert [each for each in work.ran if each[0] == tenant] == [f"{tenant}{n}" for n in range(9)]


def test_a_weight_is_the_number_of_calls_in_a_turn(app: App) -> None:
    work = Work(app, fair_by=Fair("{tenant}", weights={"g": 3}))
    work.task.enqueue_many([(tenant, number) for tenant in "ga" for number in range(50)])

    assert Counter(work.run(room=40)) == {"g": 30, "a": 10}


def test_a_share_and_a_rate_hold_together(app: App, queue: WorkQueue) -> None:
    work = Work(app, rate=Rate("4/h"))
    work.task.enqueue_many([(tenant, number) for tenant in "ab" for number in range(10)])

    assert Counter(work.run(room=100)) == {"a": 2, "b": 2}
    assert queue.counts().waiting == 16


def test_a_retry_waits_for_the_turn_of_its_tenant_again(app: App, queue: WorkQueue) -> None:
    @app.task(fair_by="{tenant}", retry=1)
    def fail(tenant: str) -> None:
        raise ValueError(tenant)

    job = fail.enqueue("a")
    queue.admit(1)
    (settlement,) = HandWorker(app).run_all()
    assert isinstance(settlement, RetryAt)

    def is_let_in() -> bool:
        queue.promote()
        return queue.admit(1)[0] == 1

    wait_until(is_let_in, "its time and its turn came")
    assert job.status() is JobStatus.WAITING


def test_a_waiting_call_is_found_and_cancelled(app: App, queue: WorkQueue) -> None:
    work = Work(app)
    jobs = work.task.enqueue_many([("a", 0), ("a", 1), ("b", 0)])

    assert jobs[0].status() is JobStatus.LIMITED
    assert jobs[0].cancel()

    assert work.run(room=3) == "ab"
    assert queue.counts().waiting == 0


def test_any_text_names_a_tenant(app: App) -> None:
    work = Work(app)
    for tenant in ("ä|b=1/1/1", "x y", "", "3~a"):
        work.task.enqueue(tenant)

    work.run(room=10)

    assert sorted(work.ran) == sorted(["ä|b=1/1/10", "x y0", "0", "3~a0"])


@pytest.mark.parametrize(
    ("fair_by", "problem"),
    [
        ("tenant", "accepted is a template"),
        ("{ghost}", "names ghost"),
        (7, "fair_by is 7"),
        ("{tenant.name}", "accepted is a template"),
    ],
)
def test_a_key_names_an_argument(app: App, fair_by: Foreign, problem: str) -> None:
    with pytest.raises((InvalidArgument, ConfigurationError), match=problem):
        Work(app, fair_by=fair_by)


@pytest.mark.parametrize("weights", [{"a": 0}, {"a": 1.5}, {"a": True}, [1]])
def test_a_weight_is_a_whole_number(weights: Foreign) -> None:
    with pytest.raises(InvalidArgument, match="weight"):
        Fair("{tenant}", weights=weights)


def test_what_is_not_known_yet_is_no_key(app: App) -> None:
    work = Work(app)

    with pytest.raises(InvalidArgument, match="goes by 'tenant'"):
        chain(work.task.s("a"), work.task.s(number=2)).enqueue()
    with pytest.raises(ConfigurationError, match="fair_by"):
        app.subscribe("topic")(work.task)
