"""Nodes that run tasks of other models are killed, part by part and whole: what each model promises then."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mqworker import Gq, Rsmq
from mqworker.queues.catalogue import Model
from mqworker.tasks.outcome import JobStatus
from tests.support.sql_connections import end_connections
from tests.system.model_node import ModelNode
from tests.system.model_sites import DatabaseOf, StartNode, database_of, mariadb, postgres, server, start

__all__ = ["database_of", "mariadb", "postgres", "server", "start"]  # fixtures

TASKS = 60
PAUSE_S = 0.03


def strike(node: ModelNode) -> None:
    """A worker, the dispatcher, a worker, everybody: each while tasks are running."""
    node.wait("begun", 5)
    node.kill("worker:0")
    node.wait("begun", 15)
    node.kill("dispatcher")
    node.wait("begun", 25)
    node.kill("worker:1")
    node.wait("begun", 35)
    node.kill_all()
    node.start()


@pytest.mark.parametrize("kind", ["rsmq", "redis", "sqlite", "postgres", "mariadb"])
def test_nothing_is_lost(kind: str, start: StartNode, database_of: DatabaseOf) -> None:
    model: Model = Rsmq(vt=2) if kind == "rsmq" else Gq(url=database_of(kind), heartbeat=0.3)
    node = start(model)
    node.tasks.count.enqueue_many([(number, PAUSE_S) for number in range(TASKS)])

    strike(node)

    node.wait_until(lambda: len(node.counted("ended")) == TASKS, "all ran")


def test_an_rsmq_task_outlives_its_dispatchers(start: StartNode) -> None:
    node = start(Rsmq(vt=2))
    node.tasks.count.enqueue_many([(number, 5.0) for number in range(2)])
    node.wait("begun", 2)

    for dispatcher in range(4):
        node.kill("dispatcher")
        node.tasks.count.enqueue(10 + dispatcher, 0.0)
        time.sleep(1.0)  # longer than two of these is what RSMQ allows without a renewal

    node.wait_until(lambda: len(node.counted("ended")) == 6, "all ran")
    assert max(node.counted("begun").values()) == 1


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("kind", ["redis", "sqlite", "postgres", "mariadb"])
def test_a_gq_task_outlives_its_dispatchers(
    kind: str, guarantee: str, start: StartNode, database_of: DatabaseOf
) -> None:
    node = start(Gq(url=database_of(kind), heartbeat=1.0, guarantee=guarantee))
    long = node.tasks.count.enqueue_many([(number, 6.0) for number in range(2)])
    node.wait("begun", 2)

    for dispatcher in range(3):
        node.kill("dispatcher")
        node.tasks.count.enqueue(10 + dispatcher, 0.0)
        time.sleep(1.2)  # several of these are longer than gq lets a silent consumer live

    node.wait_until(lambda: {job.status() for job in long} == {JobStatus.SUCCEEDED}, "both are settled")
    node.wait_until(lambda: len(node.counted("ended")) == 5, "all ran")
    assert max(node.counted("begun").values()) == 1


def test_what_a_killed_dispatcher_had_claimed_and_given_to_nobody_comes_back_at_once(
    start: StartNode,
) -> None:
    node = start(Gq(heartbeat=30.0))
    node.tasks.count.enqueue_many([(number, 0.05) for number in range(TASKS)])
    node.wait("begun", 5)

    for begun in (10, 20, 30):
        node.kill("dispatcher")
        node.wait("begun", begun)

    node.wait_until(lambda: len(node.counted("ended")) == TASKS, "all ran, long before a silent one is dead")
    assert max(node.counted("begun").values()) == 1


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_a_gq_task_outlives_dispatchers_that_die_before_they_have_taken_anything_over(
    guarantee: str, start: StartNode
) -> None:
    node = start(Gq(heartbeat=2.0, guarantee=guarantee))
    long = node.tasks.count.enqueue_many([(number, 4.0) for number in range(2)])
    node.wait("begun", 2)

    for _ in range(8):
        node.kill("dispatcher")  # as soon as it is ready

    node.wait_until(lambda: {job.status() for job in long} == {JobStatus.SUCCEEDED}, "both are settled")
    assert max(node.counted("begun").values()) == 1


@pytest.mark.parametrize("model", [Gq(heartbeat=0.5), Rsmq(vt=10)], ids=["gq", "rsmq"])
def test_a_worker_that_is_stopped_while_dispatchers_change_keeps_what_it_runs(
    model: Model, start: StartNode
) -> None:
    node = start(model)
    long = node.tasks.count.enqueue_many([(number, 3.0) for number in range(2)])
    node.wait("begun", 2)
    stopped = node.children()["worker:0"]

    os.kill(stopped, signal.SIGSTOP)
    node.kill("dispatcher")
    time.sleep(2.5)  # longer than gq lets a silent consumer live; the other worker has spoken
    os.kill(stopped, signal.SIGCONT)

    node.wait("ended", 2)
    still = {JobStatus.RUNNING, JobStatus.WAITING}
    node.wait_until(lambda: still.isdisjoint(job.status() for job in long), "both are settled")
    assert max(node.counted("begun").values()) == 1


def test_a_stop_right_after_the_dispatchers_death_settles_what_workers_finish(start: StartNode) -> None:
    node = start(Gq(heartbeat=2.0))
    [job] = node.tasks.count.enqueue_many([(1, 1.5)])
    node.wait("begun", 1)

    node.kill("dispatcher")
    node.stop_node()

    assert len(node.lines("ended")) == 1
    assert job.status() is JobStatus.SUCCEEDED


@pytest.mark.parametrize("kind", ["redis", "sqlite", "postgres", "mariadb"])
def test_at_most_once_nothing_is_begun_twice(kind: str, start: StartNode, database_of: DatabaseOf) -> None:
    node = start(Gq(url=database_of(kind), heartbeat=0.3, guarantee="at_most_once"))
    *_, last = node.tasks.count.enqueue_many([(number, PAUSE_S) for number in range(TASKS)])

    strike(node)

    # In the order of their numbers, one for each worker at a time.
    node.wait_until(lambda: last.status() is JobStatus.SUCCEEDED, "the last one is done")
    begun = node.counted("begun")
    assert max(begun.values()) == 1
    assert len(begun) > TASKS - 12


@pytest.mark.parametrize("model", [Rsmq(vt=2), Gq(heartbeat=0.3)])
def test_what_kills_its_workers_is_given_up(model: Model, start: StartNode) -> None:
    node = start(model)
    job = node.tasks.die.enqueue()

    node.wait_until(lambda: job.status() is JobStatus.FAILED, "given up")

    assert len(node.lines("begun")) == 3
    node.tasks.count.enqueue(1, 0.0)
    node.wait("ended")


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_connections_that_the_database_ends_cost_nothing(
    kind: str, start: StartNode, database_of: DatabaseOf
) -> None:
    url = database_of(kind)
    assert url is not None
    node = start(Gq(url=url))
    node.tasks.count.enqueue_many([(number, PAUSE_S) for number in range(TASKS)])

    for begun in (5, 20, 40):
        node.wait("begun", begun)
        end_connections(url)

    node.wait_until(lambda: len(node.counted("ended")) == TASKS, "all ran")
    assert max(node.counted("begun").values()) == 1
