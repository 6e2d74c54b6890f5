"""Children of running tasks on a real server: a tree for each job, with callbacks, cancelled as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqworker import App, Context, EncryptionKey, Files, JobStatus, Keyring, MemberFailure, Retry, chain
from mqworker.errors import InvalidArgument, NotSupported, TaskCancelled, TaskFailed
from mqworker.model.settlement import Crash, Release
from mqworker.queues.work.keys import workflow_key
from mqworker.settings import Settings
from mqworker.tasks.workflows import spawning
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

Body = Callable[[Context], object]


class Site:
    """An app with hands; `body` is what the parent does, `log` what ran."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.worker, self.broker = HandWorker(app), HandBroker(app)
        self.log: list[object] = []
        self.body: Body = lambda _: None

        @app.task(retry=Retry(max=3, first=0.001, jitter=0))
        def parent(ctx: Context) -> object:
            self.log.append("parent")
            return self.body(ctx)

        @app.task(retry=0)
        def double(number: int) -> int:
            self.log.append(number)
            if number < 0:
                raise ValueError(f"no {number}")
            return 2 * number

        @app.task
        def total(numbers: list[int | MemberFailure]) -> int:
            self.log.append(("total", numbers))
            return sum(number for number in numbers if isinstance(number, int))

        @app.task
        def nested(ctx: Context, depth: int) -> int:
            self.log.append(f"depth {depth}")
            if depth:
                ctx.spawn(nested.s(depth - 1), then=total.s())
            return depth

        self.parent, self.double, self.total, self.nested = parent, double, total, nested

    def carry_on(self, rounds: int = 8, *queues: str) -> None:
        for _ in range(rounds):
            self.broker.round()
            for queue in queues or ("default",):
                self.worker.run_all(queue)
        self.broker.round()

    def totals(self) -> list[list[object]]:
        return [each[1] for each in self.log if isinstance(each, tuple)]


@pytest.fixture(params=["plain", "encrypted", "offloaded"])
def app(server: RealServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[App]:
    made = App(
        "shop",
        settings=Settings(redis_url=server.url),
        keys=Keyring(EncryptionKey("k1", b"x" * 32)) if request.param == "encrypted" else None,
        offload=Files(tmp_path, above=1, most=10_000_000) if request.param == "offloaded" else None,
    )
    yield made
    made.close()


@pytest.fixture
def site(app: App) -> Site:
    return Site(app)


plain_only = pytest.mark.parametrize("app", ["plain"], indirect=True)


def test_children_run_and_their_callback_gets_the_list_after_the_parent_has_ended(site: Site) -> None:
    site.body = lambda ctx: ctx.spawn_many([site.double.s(n) for n in range(5)], then=site.total.s()) and None
    job = site.parent.enqueue()

    site.carry_on()

    assert site.log[0] == "parent"
    assert sorted(each for each in site.log if isinstance(each, int)) == [0, 1, 2, 3, 4]
    assert site.totals() == [[0, 2, 4, 6, 8]]
    tree = site.app.workflow(job.id)
    assert tree.status() is JobStatus.SUCCEEDED
    assert tree.result(timeout=0) is None
    assert job.result(timeout=0) is None


def test_children_may_be_waited_for_by_their_jobs(site: Site) -> None:
    jobs = []
    site.body = lambda ctx: jobs.extend(ctx.spawn_many([site.double.s(2), site.double.s(-1)]))
    job = site.parent.enqueue()

    site.carry_on()

    assert [each.id for each in jobs] == [f"{job.id}~0", f"{job.id}~1"]
    assert jobs[0].result(timeout=0) == 4
    with pytest.raises(TaskFailed, match="no -1"):
        jobs[1].result(timeout=0)
    assert (
        site.app.workflow(job.id).status() is JobStatus.SUCCEEDED
    )  # whose failure it is, its parent decides


def test_a_failed_child_is_a_value_for_the_callback(site: Site) -> None:
    site.body = lambda ctx: (
        ctx.spawn_many([site.double.s(2), site.double.s(-1)], then=site.total.s()) and None
    )
    site.parent.enqueue()

    site.carry_on()

    ((number, failure),) = site.totals()
    assert number == 4
    assert isinstance(failure, MemberFailure)
    assert failure.message == "no -1"


@pytest.mark.parametrize("way", ["retried", "crashed", "released"])
def test_a_parent_that_runs_again_gets_the_same_children_and_starts_what_is_missing(
    site: Site, way: str
) -> None:
    runs = 0

    def body(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        numbers = range(3) if runs == 1 else range(5)  # the second time there is more to do
        ctx.spawn(site.double.s(100), name="first")
        ctx.spawn_many([site.double.s(n) for n in numbers], then=site.total.s())
        if runs == 1 and way == "retried":
            raise ConnectionError("once")

    site.body = body
    site.parent.enqueue()
    if way != "retried":
        (held,) = site.app.work_queue().claim(1)
        site.worker.runner.run(held, "default")
        site.app.work_queue().settle(Crash(held) if way == "crashed" else Release(held))
    site.carry_on(12)

    assert site.log.count("parent") == 2
    assert sorted(each for each in site.log if isinstance(each, int)) == [0, 1, 2, 3, 4, 100]
    assert site.totals() == [[0, 2, 4, 6, 8]]


@pytest.mark.parametrize("missing", ["begin_spawn", "reserve_nodes", "grow_workflow", "start"])
def test_a_parent_killed_between_any_two_steps_has_spawned_all_or_begins_anew(
    site: Site, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def cut(of: object, name: str, after: int) -> None:
        original = getattr(of, name)
        count = 0

        def once(*args: object, **kwargs: object) -> object:
            nonlocal count
            count += 1
            if count == after:
                raise Killed
            return original(*args, **kwargs)

        monkeypatch.setattr(of, name, once)

    site.body = lambda ctx: ctx.spawn_many([site.double.s(n) for n in range(3)], then=site.total.s()) and None
    site.parent.enqueue()
    cuts = {
        "begin_spawn": ("_begin", 1),
        "reserve_nodes": ("_reserve", 1),
        "grow_workflow": ("_grow", 1),
        "start": ("_begin", 2),
    }
    (held,) = site.app.work_queue().claim(1)
    cut(spawning.Spawner, *cuts[missing])
    monkeypatch.setattr(site.worker.runner, "passes", (Killed,), raising=True)
    with pytest.raises(Killed):
        site.worker.runner.run(held, "default")
    site.app.work_queue().settle(Crash(held))

    site.carry_on(12)

    assert sorted(each for each in site.log if isinstance(each, int)) == [0, 1, 2]
    assert site.totals() == [[0, 2, 4]]


def test_what_was_added_but_not_begun_is_begun_when_the_parent_ends(site: Site, server: RealServer) -> None:
    def body(ctx: Context) -> None:
        ctx.spawn_many([site.double.s(n) for n in range(3)], then=site.total.s())
        with server.client() as client:
            client.delete("mqw:{default}:outbox")  # as if it had been killed before it could note the start

    site.body = body
    site.parent.enqueue()

    site.carry_on()

    assert site.totals() == [[0, 2, 4]]


def test_a_parent_that_is_given_up_has_no_callback_until_it_is_revived(site: Site) -> None:
    is_broken = True

    def body(ctx: Context) -> None:
        ctx.spawn_many([site.double.s(n) for n in range(3)], then=site.total.s())
        if is_broken:
            raise ValueError("broken")

    site.body = body
    job = site.parent.using().enqueue()
    site.carry_on(20)
    assert sorted(each for each in site.log if isinstance(each, int)) == [0, 1, 2]
    assert site.totals() == []
    assert site.app.workflow(job.id).status() is JobStatus.FAILED
    with pytest.raises(TaskFailed, match=job.id):
        site.app.workflow(job.id).result(timeout=0)

    is_broken = False
    assert job.retry()
    site.carry_on(8)

    assert sorted(each for each in site.log if isinstance(each, int)) == [0, 1, 2]
    assert site.totals() == [[0, 2, 4]]
    assert site.app.workflow(job.id).status() is JobStatus.SUCCEEDED


def test_children_spawn_children_in_the_same_tree(site: Site) -> None:
    job = site.nested.enqueue(3)

    site.carry_on(12)

    assert [each for each in site.log if isinstance(each, str)] == [
        "depth 3",
        "depth 2",
        "depth 1",
        "depth 0",
    ]
    assert sorted(site.totals()) == [[0], [1], [2]]
    members = site.app.workflow(job.id).members()
    assert len(members) == 6
    assert {member.status for member in members} == {JobStatus.SUCCEEDED}


@pytest.mark.parametrize("kind", ["chosen id", "unique", "limited", "deadline"])
def test_a_parent_with_a_guard_keeps_it_and_its_end_is_noted_all_the_same(
    app: App, site: Site, kind: str
) -> None:
    job = site.parent.enqueue
    if kind == "chosen id":
        job = site.parent.using(id="order-7").enqueue
    elif kind == "unique":
        job = site.parent.using(unique=True).enqueue
    elif kind == "deadline":
        job = site.parent.using(deadline=3600, priority=5).enqueue
    elif kind == "limited":
        app.queue("default", max_running=5)
    again: list[bool | None] = []

    def body(ctx: Context) -> None:
        ctx.spawn(site.double.s(4), then=site.total.s())
        again.append(job().is_new if kind in {"chosen id", "unique"} else False)

    site.body = body
    job()
    for _ in range(4):
        app.work_queue().admit(100)
        site.carry_on(1)

    assert again == [False]
    assert site.totals() == [[8]]


@plain_only
def test_an_id_used_again_begins_another_tree_unless_the_first_still_runs(
    site: Site, server: RealServer
) -> None:

    site.body = lambda ctx: ctx.spawn(site.double.s(4)) and None
    site.parent.using(id="order-7").enqueue()
    site.carry_on(4)
    server.client().delete("mqw:{default}:guards")  # as when its window is over
    again = site.parent.using(id="order-7").enqueue()
    site.carry_on(4)
    assert (site.log, again.is_new) == (["parent", 4, "parent", 4], True)

    site.body = lambda ctx: ctx.spawn(site.double.using(delay=60).s(4)) and None
    for _ in range(2):
        server.client().delete("mqw:{default}:guards")
        last = site.parent.using(id="order-7").enqueue()
        site.carry_on(16)

    with pytest.raises(TaskFailed, match="an earlier message with this id"):
        last.result(timeout=0)


def test_members_of_a_workflow_spawn_into_it_and_it_waits_for_them(app: App, site: Site) -> None:
    site.body = lambda ctx: ctx.spawn_many([site.double.s(1), site.double.s(-2)], then=site.total.s()) and 5
    job = chain(site.parent.s(), site.double.s()).enqueue()

    site.carry_on()

    assert (job.status(), job.result(timeout=0)) == (JobStatus.SUCCEEDED, 10)
    assert len(site.totals()) == 1
    assert len(app.workflow(job.id).members()) == 5


def test_cancelling_the_job_cancels_its_tree_and_nothing_can_be_added(site: Site) -> None:
    def body(ctx: Context) -> None:
        ctx.spawn_many([site.nested.s(3), site.double.using(delay=60).s(1)], then=site.total.s())

    site.body = body
    job = site.parent.enqueue()
    site.broker.round()
    (held,) = site.app.work_queue().claim(1)
    settlement = site.worker.runner.run(held, "default")
    site.broker.round()
    (child,) = site.app.work_queue().claim(1)

    tree = site.app.workflow(job.id)
    assert tree.cancel()
    child_settlement = site.worker.runner.run(child, "default")
    site.app.work_queue().settle(settlement, child_settlement)
    site.carry_on()

    assert tree.status() is JobStatus.CANCELLED
    assert site.totals() == []
    assert site.app.work_queue().counts().waiting == 0
    assert [each for each in site.log if isinstance(each, str)] == ["parent", "depth 3"]
    with pytest.raises(TaskCancelled):
        tree.result(timeout=0)


def test_cancelling_a_job_that_has_ended_cancels_what_it_has_spawned(site: Site) -> None:
    site.body = lambda ctx: ctx.spawn_many([site.double.using(delay=60).s(n) for n in range(3)]) and None
    job = site.parent.enqueue()
    site.carry_on(3)
    assert site.app.work_queue().counts().waiting == 3

    assert job.cancel()

    assert site.app.work_queue().counts().waiting == 0
    assert site.app.workflow(job.id).status() is JobStatus.CANCELLED


def test_a_parent_that_is_cancelled_by_whoever_it_may_be_takes_its_tree_along(site: Site) -> None:
    def body(ctx: Context) -> None:
        ctx.spawn_many([site.double.using(delay=60).s(n) for n in range(3)])
        raise ConnectionError

    site.parent = site.app.task(name="again", retry=Retry(max=3, first=60))(body)
    site.parent.enqueue()
    site.carry_on(2)
    assert site.app.work_queue().counts().waiting == 4

    site.app.work_queue().purge_waiting()
    site.carry_on(2)

    assert site.app.work_queue().counts().waiting == 0


@plain_only
def test_a_run_that_has_lost_its_lease_spawns_nothing(site: Site) -> None:
    site.body = lambda ctx: ctx.spawn(site.double.s(1)) and None
    site.parent.enqueue()
    (held,) = site.app.work_queue().claim(1, lease_ms=1)
    while site.app.work_queue().reclaim() == (0, 0):
        pass

    site.worker.runner.run(held, "default")
    site.broker.round()

    assert 1 not in site.log
    assert site.app.work_queue().counts().ready == 1
    site.carry_on()
    assert site.log.count(1) == 1


@plain_only
def test_what_cannot_be_spawned_is_refused_with_what_is_accepted(
    app: App, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = []

    def attempt(call: Callable[[], object]) -> None:
        try:
            call()
        except (InvalidArgument, NotSupported) as error:
            errors.append(error)

    def body(ctx: Context) -> None:
        attempt(lambda: ctx.spawn(site.double))  # type: ignore[arg-type] # wrong on purpose
        attempt(lambda: ctx.spawn(site.double.s(1), name="a b"))
        ctx.spawn(site.double.s(1), name="one")
        attempt(lambda: ctx.spawn(site.double.s(1), name="one"))
        monkeypatch.setattr(spawning, "MOST_NODES", 3)
        attempt(lambda: ctx.spawn_many([site.double.s(1)] * 3))
        attempt(lambda: ctx.spawn_many([site.double.s(1)] * 4))

    site.body = body
    site.parent.enqueue()
    site.worker.run_all()

    texts = [str(error) for error in errors]
    wanted = ["task.s", "characters of", "already", "has 1 calls; accepted are up to 3", "4 calls to spawn"]
    assert [part in text for part, text in zip(wanted, texts, strict=True)] == [True] * 5, texts

    site.body = lambda ctx: ctx.spawn(site.double.s(1))
    with pytest.raises(NotSupported, match="called like a function"):
        site.parent()

    @app.task(delivery="at_most_once")
    def once(ctx: Context) -> None:
        attempt(lambda: ctx.spawn(site.double.s(1)))

    once.enqueue()
    site.worker.run_all()
    assert "at_least_once" in str(errors[-1])


@plain_only
def test_an_empty_spawn_calls_back_with_an_empty_list(site: Site) -> None:
    def body(ctx: Context) -> None:
        assert ctx.spawn_many([]) == []
        ctx.spawn_many([], then=site.total.s())

    site.body = body
    site.parent.enqueue()

    site.carry_on()

    assert site.totals() == [[]]


@plain_only
def test_thousands_of_children_are_exact(site: Site) -> None:
    site.body = lambda ctx: (
        ctx.spawn_many([site.double.s(n) for n in range(2_500)], then=site.total.s()) and None
    )
    site.parent.enqueue()

    site.carry_on(4)

    (totals,) = site.totals()
    assert totals == [2 * n for n in range(2_500)]


@plain_only
def test_the_tree_of_a_parent_is_kept_for_a_day_and_no_longer(site: Site, server: RealServer) -> None:
    site.body = lambda ctx: ctx.spawn(site.double.s(1)) and None
    job = site.parent.enqueue()

    site.carry_on()

    assert 0 < server.client().pttl(workflow_key("mqw", job.id)) <= 24 * 3600 * 1000


@plain_only
def test_async_tasks_spawn_and_wait_without_blocking_their_loop(app: App, site: Site) -> None:
    @app.task
    async def fan_out(ctx: Context) -> int:
        jobs = await ctx.aspawn_many([site.double.s(n) for n in range(3)])
        await asyncio.to_thread(site.carry_on, 2)
        return sum([await job.aresult(timeout=5) for job in jobs])

    job = fan_out.enqueue()
    (held,) = app.work_queue().claim(1)
    settlement = asyncio.run(site.worker.runner.arun(held, "default"))
    app.work_queue().settle(settlement)

    assert job.result(timeout=0) == 6
