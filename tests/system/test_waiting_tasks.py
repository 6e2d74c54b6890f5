"""Tasks that wait for the results of others: `status` says so where that can never end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mqworker import App
from tests.support.command_line import CommandLine
from tests.support.deadline import wait_until
from tests.support.node_process import ROOT
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

DEADLINE_S = 60.0


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def node(server: RealServer) -> Iterator[RealNode]:
    settings = {"MQWORKER_WORKERS": "1", "PYTHONPATH": str(ROOT)}
    with RealNode(server.url, "tests.system.waiting_app:app", settings=settings) as running:
        yield running


@pytest.fixture
def app(server: RealServer, node: RealNode) -> Iterator[App]:
    del node  # it runs
    opened = App("waiting", redis_url=server.url)
    yield opened
    opened.close()


def verdict(server: RealServer) -> dict[str, Any]:
    # Any: what JSON holds.
    found: dict[str, Any] = json.loads(CommandLine(server).type("status", "--json").output)["verdict"]
    return found


def reasons(server: RealServer, words: str) -> list[str]:
    return [reason for reason in verdict(server)["reasons"] if words in reason]


def test_a_task_that_waits_for_what_cannot_run_is_named_with_what_it_waits_for(
    app: App, server: RealServer
) -> None:
    task = app.task(queue="waiting", name="tests.system.waiting_app.parent")(lambda: "")
    waiting = task.enqueue()

    wait_until(lambda: reasons(server, "which nobody runs"), "status says who waits for what", DEADLINE_S)

    (reason,) = reasons(server, "which nobody runs")
    assert verdict(server)["health"] == "degraded"
    assert f"tests.system.waiting_app.parent {waiting.id} on worker:0" in reason
    assert "for the result of" in reason
    assert "in queue waiting" in reason
    waiting.cancel(kill=True)
    wait_until(lambda: not reasons(server, "which nobody runs"), "nobody waits any more", DEADLINE_S)


def test_tasks_that_wait_for_each_other_are_named(app: App, server: RealServer) -> None:
    task = app.task(queue="circle", name="tests.system.waiting_app.partner")(lambda other: other)
    line = CommandLine(server)
    task.using(id="first").enqueue("second").cancel()  # so that there is a queue to pause
    line.type("queue", "pause", "circle")
    jobs = [task.using(id=name).enqueue(other) for name, other in (("a", "b"), ("b", "a"))]
    line.type("queue", "resume", "circle")

    wait_until(lambda: len(reasons(server, "waits for this one in turn")) == 2, "both are named", DEADLINE_S)

    assert verdict(server)["health"] == "degraded"
    for job in jobs:
        job.cancel()
