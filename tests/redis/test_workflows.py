"""Workflows on a real server: worker and broker by hand, so that a test can stop between any two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqworker import (
    App,
    EncryptionKey,
    Files,
    JobStatus,
    Keyring,
    MemberFailure,
    Rate,
    Retry,
    chain,
    chord,
    group,
)
from mqworker.errors import (
    InvalidArgument,
    ResultNotKept,
    ResultTimeout,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
)
from mqworker.queues.work.keys import workflow_key
from mqworker.settings import Settings
from mqworker.tasks.schedules.schedule import publish_schedules
from tests.support.deadline import wait_until
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer


class Site:
    """An app with a few tasks, and hands for it; `log` is what ran."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.worker = HandWorker(app)
        self.broker = HandBroker(app)
        self.log: list[object] = []

        @app.task
        def add(number: int, more: int) -> int:
            self.log.append(("add", number, more))
            return number + more

        @app.task
        def total(numbers: list[int]) -> int:
            self.log.append(("total", numbers))
            return sum(numbers)

        @app.task(retry=0)
        def fail(number: int) -> int:
            raise ValueError(f"no {number}")

        self.add, self.total, self.fail = add, total, fail

    def carry_on(self, *queues: str, rounds: int = 8) -> None:
        """Rounds of the broker and stints of the worker, until nothing is left to do."""
        for _ in range(rounds):
            self.broker.round()
            for queue in queues or ("default",):
                self.worker.run_all(queue)
        self.broker.round()


@pytest.fixture(params=["plain", "encrypted", "offloaded"])
def app(server: RealServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[App]:
    """An app on the shared server: with plain payloads, with keys, and with every payload elsewhere."""
    made = App(
        "shop",
        settings=Settings(redis_url=server.url, max_message_bytes=10_000),
        keys=Keyring(EncryptionKey("k1", b"x" * 32)) if request.param == "encrypted" else None,
        offload=Files(tmp_path, above=1, most=10_000) if request.param == "offloaded" else None,
    )
    yield made
    made.close()


@pytest.fixture
def site(app: App) -> Site:
    """The app with hands."""
    return Site(app)


def test_each_result_of_a_chain_is_the_first_argument_of_the_next(site: Site) -> None:
    job = chain(site.add.s(1, 2), site.add.s(10), site.add.si(0, 7), site.add.s(more=100)).enqueue()
    assert job.status() is JobStatus.WAITING

    site.carry_on()

    assert site.log == [("add", 1, 2), ("add", 3, 10), ("add", 0, 7), ("add", 7, 100)]
    assert job.result(timeout=0) == 107
    assert job.status() is JobStatus.SUCCEEDED


def test_the_result_of_a_group_is_the_list_in_order(site: Site) -> None:
    job = group(site.add.s(number, 1) for number in range(2_500)).enqueue()

    site.broker.round()
    assert job.status() is JobStatus.RUNNING
    site.carry_on(rounds=1)

    assert job.result(timeout=0) == list(range(1, 2_501))


def test_the_callback_of_a_chord_runs_once_with_the_list(site: Site) -> None:
    job = chord(group(site.add.s(number, 0) for number in range(5)), site.total.s()).enqueue()

    site.carry_on()

    assert site.log[5:] == [("total", [0, 1, 2, 3, 4])]
    assert job.result(timeout=0) == 10


def test_groups_and_chains_nest(site: Site) -> None:
    job = (
        site.add.s(1, 1)
        | group(site.add.s(10), chain(site.add.s(20), site.add.s(0)), group(site.add.s(1)) | site.total.s())
        | group(site.total.s(), site.total.s())
        | site.total.s()
    ).enqueue()

    site.carry_on()

    assert job.result(timeout=0) == 2 * (12 + 22 + 3)


def test_a_group_in_a_group_gives_a_list_in_the_list(site: Site) -> None:
    job = group(group(site.add.s(1, 1), site.add.s(2, 2)), group(site.add.s(3, 3))).enqueue()

    site.carry_on()

    assert job.result(timeout=0) == [[2, 4], [6]]


def test_an_empty_group_has_an_empty_list_for_its_callback(site: Site) -> None:
    job = chord([], site.total.s()).enqueue()

    site.carry_on()

    assert (site.log, job.result(timeout=0)) == ([("total", [])], 0)


def test_the_queues_of_a_workflow_may_be_different_ones(site: Site) -> None:
    job = chord(
        [site.add.using(queue="a").s(1, 1), site.add.using(queue="b").s(2, 2)],
        site.total.using(queue="c").s(),
    ).enqueue()

    site.carry_on("a", "b", "c")

    assert job.result(timeout=0) == 6


def test_a_failed_member_fails_the_workflow_by_name_and_the_callback_does_not_run(site: Site) -> None:
    job = chord([site.add.s(1, 1), site.fail.s(7), site.add.s(2, 2)], site.total.s()).enqueue()

    site.carry_on()

    with pytest.raises(
        TaskFailed, match=rf"member 1, {site.fail.name}, job {job.id}~1, failed.*no 7"
    ) as told:
        job.result(timeout=0)
    assert (told.value.error, told.value.message) == ("ValueError", "no 7")
    assert job.status() is JobStatus.FAILED
    assert ("total", [2, 4]) not in site.log


def test_collected_failures_are_values_for_the_callback_and_in_the_list(app: App, site: Site) -> None:
    seen: list[object] = []

    @app.task
    def look(outcomes: list[int | MemberFailure]) -> int:
        seen.extend(outcomes)
        return len(outcomes)

    whole = chord([site.add.s(1, 1), site.fail.s(7)], look.s(), on_failure="collect").enqueue()
    plain = group(site.fail.s(8), on_failure="collect").enqueue()
    site.carry_on()

    failure = MemberFailure(site.fail.name, f"{whole.id}~1", "retries used up", "ValueError", "no 7")
    assert whole.result(timeout=0) == 2
    assert seen[0] == 2
    assert isinstance(seen[1], MemberFailure)
    assert (seen[1].task, seen[1].id, seen[1].message) == (failure.task, failure.id, failure.message)
    (value,) = plain.result(timeout=0)
    assert isinstance(value, MemberFailure)


def test_a_retried_member_counts_when_it_succeeds(app: App, site: Site) -> None:
    tries: list[int] = []

    @app.task(retry=Retry(max=3, first=0.001, jitter=0))
    def flaky(number: int) -> int:
        tries.append(number)
        if len(tries) < 3:
            raise ConnectionError
        return number

    job = chain(flaky.s(4), site.add.s(1)).enqueue()
    site.carry_on(rounds=12)

    assert (len(tries), job.result(timeout=0)) == (3, 5)


@pytest.mark.parametrize("end", ["cancelled", "expired", "purged", "crashed"])
def test_whatever_ends_a_member_ends_the_workflow(app: App, site: Site, end: str) -> None:
    call = site.add.using(deadline=0.001) if end == "expired" else site.add
    job = chain(call.s(1, 1), site.total.s()).enqueue()
    site.broker.round()
    work = app.work_queue()

    if end == "cancelled":
        assert work.cancel(f"{job.id}~0")
    elif end == "purged":
        assert work.purge_waiting() == 1
    elif end == "crashed":
        for _ in range(3):
            work.claim(1, lease_ms=1)
            site.broker.round()
            while work.reclaim() == (0, 0):
                pass
    else:  # by the broker, in this round or one before: its deadline is a millisecond away
        under_way = {JobStatus.WAITING, JobStatus.RUNNING}
        wait_until(lambda: site.broker.round() or job.status() not in under_way, "the deadline passed")
    site.carry_on()

    error = {"expired": TaskExpired, "crashed": TaskFailed}.get(end, TaskCancelled)
    with pytest.raises(error, match="member 0"):
        job.result(timeout=0)
    assert site.log == []


def test_a_broker_that_dies_between_two_steps_has_them_repeated_and_nothing_runs_twice(
    app: App, site: Site, server: RealServer
) -> None:
    job = chord([site.add.s(1, 1), site.add.s(2, 2)], site.total.s()).enqueue()
    key = "mqw:{default}:outbox"
    with server.client() as client:
        started = client.hgetall(key)
        site.broker.round()
        client.hset(key, mapping=started)  # as if the broker had died before it cleared the entry
        site.broker.round()
        assert app.work_queue().counts().ready == 2

        site.worker.run_all()
        ended = client.hgetall(key)
        site.broker.round()
        assert app.work_queue().counts().ready == 1
        client.hset(key, mapping=ended)
        site.worker.run_all()
        site.broker.round()
        client.hset(key, mapping=ended | started)  # and much later, when everything is over
        site.broker.round()

    site.carry_on()
    assert site.log == [("add", 1, 1), ("add", 2, 2), ("total", [2, 4])]
    assert job.result(timeout=0) == 6


def test_a_step_stays_taken_until_what_followed_from_it_was_done_however_long_that_takes(
    site: Site, server: RealServer
) -> None:
    job = chain(site.add.s(1, 1), site.add.s(1)).enqueue()
    site.broker.round()
    site.worker.run_all()

    with server.client() as client:
        guard = client.hget("mqw:{default}:guards", f"flow:{job.id}~0")
        site.broker.round()
        after = client.hget("mqw:{default}:guards", f"flow:{job.id}~0")

    assert guard == f"{job.id}~0 0".encode()  # no end: the window begins when the outbox was cleared
    assert not after.endswith(b" 0")


def test_members_of_a_task_that_keeps_no_results_hand_them_on_all_the_same(app: App, site: Site) -> None:
    @app.task(result_ttl=0)
    def quiet(number: int) -> int:
        return number + 1

    job = chain(quiet.s(1), quiet.s()).enqueue()
    site.carry_on()

    assert job.result(timeout=0) == 3


@pytest.mark.parametrize("app", ["plain", "encrypted"], indirect=True)
def test_an_input_too_large_for_a_message_fails_the_call_with_the_limit(app: App, site: Site) -> None:
    @app.task
    def long(count: int) -> str:
        return "x" * count

    job = chord([long.s(6_000), long.s(6_000)], site.total.s()).enqueue()
    site.carry_on()

    with pytest.raises(TaskFailed, match=r"input_too_large.*12,\d+ bytes; accepted are up to 10,000"):
        job.result(timeout=0)


@pytest.mark.parametrize("app", ["plain"], indirect=True)  # what is sealed, a broker cannot look into
def test_an_input_of_too_many_values_is_refused_before_it_is_stored(app: App, site: Site) -> None:
    @app.task
    def many(count: int) -> list[int]:
        return [0] * count

    job = chord([many.s(6_000)] * 9, site.total.s()).enqueue()
    site.broker.round()
    site.worker.run_all()
    site.broker = HandBroker(App("large", settings=Settings(redis_url=app.settings.redis_url)))
    site.broker.round()

    with pytest.raises(TaskFailed, match=r"input_too_large.*more than 50,000 values"):
        job.result(timeout=0)


@dataclass
class Point:
    x: int


def test_dataclasses_arrive_as_what_the_tasks_are_annotated_with(app: App, site: Site) -> None:
    @app.task
    def make(x: int) -> Point:
        return Point(x)

    @app.task
    def sum_up(points: list[Point]) -> Point:
        return Point(sum(point.x for point in points))

    job = chord([make.s(1), make.s(2)], sum_up.s()).enqueue()
    both = group(make.s(1), make.s(2)).enqueue()
    site.carry_on()

    assert job.result(timeout=0) == Point(3)
    assert both.result(timeout=0) == [Point(1), Point(2)]


def test_a_cancelled_workflow_goes_no_further(app: App, site: Site) -> None:
    job = chord([site.add.s(1, 1), site.add.s(2, 2)], site.total.s()).enqueue()
    site.broker.round()

    assert job.cancel()

    assert app.work_queue().counts().ready == 0
    site.carry_on()
    assert site.log == []
    assert job.status() is JobStatus.CANCELLED
    with pytest.raises(TaskCancelled, match=job.id):
        job.result(timeout=0)
    assert job.cancel()


def test_waiting_ends_in_time_and_what_is_unknown_is_not_waited_for(site: Site, server: RealServer) -> None:
    job = chain(site.add.s(1, 1)).enqueue()

    with pytest.raises(ResultTimeout, match=job.id):
        job.result(timeout=0.05)
    with server.client() as client:
        client.delete(workflow_key("mqw", job.id))
    with pytest.raises(ResultNotKept):
        job.result(timeout=5)
    site.carry_on()
    assert job.status() is JobStatus.UNKNOWN


def test_workflows_are_awaited_by_asyncio_too(site: Site) -> None:
    async def whole() -> int:
        job = await chain(site.add.s(1, 1), site.add.s(5)).aenqueue()
        await asyncio.to_thread(site.carry_on)
        return await job.aresult(timeout=5)

    assert asyncio.run(whole()) == 7


def test_the_outcome_is_kept_for_its_own_time(site: Site, server: RealServer) -> None:
    job = chain(site.add.s(1, 1)).enqueue(ttl=30)
    key = workflow_key("mqw", job.id)

    with server.client() as client:
        assert client.pttl(key) > 30_000
        site.carry_on()

        assert 0 < client.pttl(key) <= 30_000


def test_a_full_queue_lets_a_workflow_wait(app: App, site: Site) -> None:
    app.work_queue().limit(1)
    job = group(site.add.s(1, 1), site.add.s(2, 2)).enqueue()
    site.broker.round()
    assert app.work_queue().counts().ready == 0

    app.work_queue().limit(None)
    site.carry_on()

    assert job.result(timeout=0) == [2, 4]


def test_what_cannot_be_a_member_is_refused_when_it_is_enqueued(app: App, site: Site) -> None:
    once = app.task(name="once", delivery="at_most_once")(lambda: None)
    alone = app.task(name="alone", unique=True)(lambda: None)

    @app.task(rate=Rate("5/s", key="{tenant}"))
    def by_tenant(tenant: str) -> str:
        return tenant

    with pytest.raises(InvalidArgument, match="once in a workflow"):
        chain(once.s()).enqueue()
    with pytest.raises(InvalidArgument, match="unique does not apply"):
        chain(alone.s()).enqueue()
    with pytest.raises(InvalidArgument, match="'tenant', which is its input"):
        chain(by_tenant.s("a"), by_tenant.s()).enqueue()
    with pytest.raises(InvalidArgument, match="missing a required argument"):
        chain(site.add.s(1), site.add.s(1)).enqueue()
    with pytest.raises(InvalidArgument, match="too many positional"):
        chain(site.add.s(1, 2), site.add.s(1, 2)).enqueue()
    with pytest.raises(InvalidArgument, match="at least one"):
        chain().enqueue()
    with pytest.raises(InvalidArgument, match="without any call"):
        group().enqueue()
    with pytest.raises(InvalidArgument, match=r"accepted are task\.s"):
        chain(site.add)  # type: ignore[call-overload] # wrong on purpose
    with pytest.raises(InvalidArgument, match="on_failure"):
        chain(site.add.s(1, 1), on_failure="ignore")  # type: ignore[call-overload] # wrong on purpose
    assert app.work_queue().counts().waiting == 0


def test_workflows_and_schedules_cross_the_slots_of_a_cluster() -> None:
    with RealCluster() as cluster:
        app = App("shop", settings=Settings(redis_url=cluster.url))
        site = Site(app)
        queues = [f"q{number}" for number in range(12)]
        app.schedule(every=0.1, name="tick", args=([1],))(site.total.using(queue="ticks"))
        publish_schedules(app)
        job = chord(
            (site.add.using(queue=queue).s(number, 1) for number, queue in enumerate(queues)),
            site.total.using(queue="last").s(),
        ).enqueue()

        site.carry_on(*queues, "last")

        assert {cluster.owner(f"mqw:{{{queue}}}:meta").port for queue in queues} == {
            server.port for server in cluster.servers
        }
        assert job.result(timeout=5) == sum(range(1, 13))
        wait_until(lambda: site.broker.round() or app.work_queue("ticks").counts().ready, "a tick was fired")
        app.close()
