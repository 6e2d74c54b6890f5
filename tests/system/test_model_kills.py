"""Nodes that run tasks of other models are killed, part by part and whole: what each model promises then."""

from __future__ import annotations

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
def test_a_gq_task_is_begun_again_if_that_is_allowed_when_its_dispatcher_dies(
    guarantee: str, start: StartNode
) -> None:
    node = start(Gq(heartbeat=0.3, guarantee=guarantee))
    node.tasks.count.enqueue(1, 3.0)
    node.wait("begun", 1)

    node.kill("dispatcher")

    node.wait("ended", 1)
    assert len(node.lines("begun")) == (1 if guarantee == "at_most_once" else 2)
    assert len(node.lines("ended")) == 1  # at no time by two


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
