"""Workflows after the fact: opened again by id, looked at member by member, mended by reviving a member."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from mqworker import App, JobStatus, MemberFailure, WorkflowJob, chain, chord, group
from mqworker.errors import InvalidArgument, ResultNotKept, TaskCancelled, TaskFailed
from mqworker.queues.work.keys import workflow_key
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer


@dataclass
class Point:
    x: int


class Site:
    """An app with hands; `broken` are the numbers on which `double` fails."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.worker = HandWorker(app)
        self.broker = HandBroker(app)
        self.broken: set[int] = set()

        @app.task(retry=0, name="double")
        def double(number: int) -> int:
            if number in self.broken:
                raise ValueError(f"no {number}")
            return 2 * number

        @app.task(name="total")
        def total(numbers: list[int | MemberFailure]) -> int:
            return sum(number for number in numbers if isinstance(number, int))

        @app.task(name="point", queue="points")
        def point(number: int) -> Point:
            return Point(number)

        self.double, self.total, self.point = double, total, point

    def carry_on(self, rounds: int = 4) -> None:
        """Rounds of the broker and stints of the worker."""
        for _ in range(rounds):
            self.broker.round()
            for queue in ("default", "points"):
                self.worker.run_all(queue)
        self.broker.round()

    def dead(self) -> list[str]:
        """Ids of the dead letters."""
        return [letter.id for letter in self.app.work_queue().dead_letters()]


@pytest.fixture
def site(app: App) -> Site:
    """The app with hands."""
    return Site(app)


def statuses(job: WorkflowJob[object]) -> list[JobStatus]:
    return [member.status for member in job.members()]


def test_a_workflow_is_opened_again_by_its_id_with_the_status_of_each_member(site: Site) -> None:
    job = chain(site.double.s(1), group(site.double.s(), site.double.using(delay=60).s()), site.total.s())
    reopened = site.app.workflow(job.enqueue().id)
    planned, waiting, delayed = JobStatus.PLANNED, JobStatus.WAITING, JobStatus.DELAYED

    assert (reopened.status(), statuses(reopened)) == (waiting, [planned] * 4)
    site.broker.round()
    assert statuses(reopened) == [waiting, planned, planned, planned]
    (held,) = site.app.work_queue().claim(1)
    assert statuses(reopened) == [JobStatus.RUNNING, planned, planned, planned]
    site.app.work_queue().settle(site.worker.runner.run(held, "default"))
    site.broker.round()

    assert statuses(reopened) == [JobStatus.SUCCEEDED, waiting, delayed, planned]
    assert [member.task for member in reopened.members()] == ["double", "double", "double", "total"]
    assert reopened.status() is JobStatus.RUNNING
    assert site.app.job(reopened.members()[2].id).status() is delayed


def test_what_was_opened_again_gives_the_result_as_the_tasks_are_annotated(site: Site) -> None:
    job = group(site.point.s(1), chain(site.double.s(1), site.point.s())).enqueue()
    site.carry_on()

    assert site.app.workflow(job.id).result(timeout=30) == [Point(1), Point(2)]
    assert job.result(timeout=30) == [Point(1), Point(2)]


def test_an_app_without_the_tasks_opens_it_too(site: Site, app: App) -> None:
    job = chain(site.double.s(1), site.point.s()).enqueue()
    site.carry_on()
    stranger = App("other", settings=app.settings)

    assert stranger.workflow(job.id).result(timeout=30) == {"x": 2}
    stranger.close()


def test_a_workflow_opened_again_is_cancelled(site: Site) -> None:
    job = chain(site.double.s(1), site.double.s()).enqueue()
    site.broker.round()

    async def use() -> tuple[bool, JobStatus, list[JobStatus]]:
        reopened = site.app.workflow(job.id)
        is_cancelled = await reopened.acancel()
        site.broker.round()
        return is_cancelled, await reopened.astatus(), [each.status for each in await reopened.amembers()]

    cancelled = JobStatus.CANCELLED
    assert asyncio.run(use()) == (True, cancelled, [cancelled, JobStatus.PLANNED])
    with pytest.raises(TaskCancelled):
        job.result(timeout=30)


def test_a_workflow_that_never_was_is_told_so(site: Site) -> None:
    nobody = site.app.workflow("nobody")

    assert (nobody.status(), nobody.members(), nobody.cancel()) == (JobStatus.UNKNOWN, [], False)
    with pytest.raises(ResultNotKept, match="there never was such a workflow"):
        nobody.result()
    with pytest.raises(InvalidArgument, match="id is"):
        site.app.workflow("a b")


def test_a_revived_member_lets_its_chain_go_on(site: Site) -> None:
    site.broken = {2}
    job = chain(site.double.s(1), site.double.s(), site.double.s()).enqueue()
    site.carry_on()
    with pytest.raises(TaskFailed, match="no 2"):
        job.result(timeout=30)

    site.broken = set()
    assert site.app.work_queue().revive(*site.dead()) == [f"{job.id}~1"]
    site.carry_on()

    assert (job.status(), job.result(timeout=30)) == (JobStatus.SUCCEEDED, 8)


def test_what_ended_well_while_the_workflow_had_failed_counts_once_it_is_mended(site: Site) -> None:
    site.broken = {1, 3}
    job = chord([site.double.s(number) for number in range(5)], site.total.s()).enqueue()
    site.carry_on()
    dead = site.dead()
    site.broken = set()

    site.app.work_queue().revive(dead[0])
    site.carry_on()
    assert job.status() is JobStatus.FAILED  # the other one is still dead
    site.app.work_queue().revive(dead[1])
    site.carry_on()

    assert (job.status(), job.result(timeout=30)) == (JobStatus.SUCCEEDED, 20)


def test_a_member_that_dies_again_leaves_the_workflow_failed_and_may_be_revived_again(site: Site) -> None:
    site.broken = {1}
    job = chain(site.double.s(1), site.double.s()).enqueue()
    site.carry_on()

    for _ in range(2):
        site.app.work_queue().revive(*site.dead())
        site.carry_on()
        assert job.status() is JobStatus.FAILED
    site.broken = set()
    site.app.work_queue().revive(*site.dead())
    site.carry_on()

    assert job.result(timeout=30) == 4


def test_a_mended_workflow_is_kept_while_it_runs(site: Site, server: RealServer) -> None:
    site.broken = {1}
    job = chain(site.double.s(1), site.double.using(delay=3600).s()).enqueue(ttl=60)
    site.carry_on()
    site.broken = set()

    site.app.work_queue().revive(*site.dead())
    site.carry_on()

    assert job.status() is JobStatus.RUNNING
    with server.client() as client:
        assert int(client.pttl(workflow_key("mqw", job.id))) > 24 * 3600 * 1000


def test_a_failure_that_was_handed_on_as_a_value_stays_one(site: Site) -> None:
    site.broken = {1}
    job = chord([site.double.s(1), site.double.s(2)], site.total.s(), on_failure="collect").enqueue()
    site.carry_on()
    site.broken = set()

    site.app.work_queue().revive(*site.dead())
    site.carry_on()

    assert job.result(timeout=30) == 4


def test_an_end_that_comes_while_a_broker_still_counts_the_death_is_not_cleared_with_it(site: Site) -> None:
    """A slow broker read the death; the member was revived and succeeded before it cleared the entry."""
    site.broken = {1}
    job = chain(site.double.s(1), site.double.s()).enqueue()
    site.broker.round()
    site.worker.run_all()
    queue, member = site.app.work_queue(), site.dead()[0]
    site.broken = set()
    queue.revive(member)
    site.worker.run_all()

    cleared = queue.store.run(queue.calls.clear_outbox([(site.app.job(member).id, b"D...")]))
    site.carry_on()

    assert (cleared, job.result(timeout=30)) == (0, 4)
