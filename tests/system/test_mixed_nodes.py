"""Nodes with different code on one queue: each message runs, soon, where its task is known."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from mqworker import App, wait_all
from mqworker.errors import ResultTimeout
from mqworker.tasks.task import Task
from tests.support.command_line import CommandLine
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.shop_node import shop_app, shop_node

LONGEST_S = 1.0
CALLS = 30


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    with shop_app(server) as made:
        yield made


def module(*functions: str) -> str:
    lines = ["from mqworker import App", "", 'app = App("shop")', ""]
    return "\n".join([*lines, *(f"@app.task\n{function}\n" for function in functions)])


def a_node(server: RealServer, *functions: str, workers: int = 2) -> RealNode:
    return shop_node(server, module(*functions), {"MQWORKER_WORKERS": str(workers)})


ONE, TWO = "def one(number: int) -> int: return number", "def two(number: int) -> int: return number"
NEWER = "def one(number: int, *, factor: int = 1) -> int: return number * factor"


def tasks(app: App) -> tuple[Task[[int], int], Task[[int], int]]:
    return app.task(name="shop.one")(lambda number: number), app.task(name="shop.two")(lambda number: number)


def test_two_apps_on_one_server_do_not_wait_for_each_other(server: RealServer, app: App) -> None:
    one, two = tasks(app)
    with a_node(server, ONE), a_node(server, TWO):
        waits_s = []
        for number in range(CALLS):
            began_s = time.monotonic()
            assert (one if number % 2 else two).enqueue(number).result(timeout=20) == number
            waits_s.append(time.monotonic() - began_s)
        began_s = time.monotonic()
        jobs = [task.enqueue(number) for number in range(CALLS * 10) for task in (one, two)]
        wait_all(jobs, timeout=30)
        together_s = time.monotonic() - began_s

    assert max(waits_s) < LONGEST_S, waits_s
    assert together_s < 10


def test_what_nobody_knows_waits_is_named_and_runs_when_somebody_comes(server: RealServer, app: App) -> None:
    _, two = tasks(app)
    line = CommandLine(server)
    with a_node(server, ONE):
        jobs = [two.enqueue(number) for number in range(CALLS)]
        wait_until(lambda: app.work_queue().counts().delayed == CALLS, "all are parked")
        with pytest.raises(ResultTimeout):
            jobs[0].result(timeout=0)
        explained = line.type("job", "explain", jobs[0].id)
        wait_until(lambda: "shop.two" in line.type("status").output, "it is shown")
        status = line.type("status")
        with a_node(server, TWO):
            began_s = time.monotonic()
            wait_all(jobs, timeout=20)
            waited_s = time.monotonic() - began_s
    line.store.close()

    assert waited_s < 5
    assert "shop.two" in explained.output
    assert "no node" in explained.output
    assert status.exit_code == 1
    assert "shop.two" in status.output


def test_a_call_for_a_newer_signature_runs_on_the_node_that_has_it(server: RealServer, app: App) -> None:
    newer = app.task(name="shop.one")(lambda number, *, factor=1: number * factor)
    with a_node(server, ONE), a_node(server, NEWER):
        waits_s = []
        for number in range(CALLS):
            began_s = time.monotonic()
            assert newer.enqueue(number, factor=2).result(timeout=20) == 2 * number
            waits_s.append(time.monotonic() - began_s)
        jobs = [newer.enqueue(number, factor=2) for number in range(10 * CALLS)]
        wait_all(jobs, timeout=20)
        assert app.work_queue().counts().totals.get("buried", 0) == 0

    assert max(waits_s) < LONGEST_S, waits_s


def test_in_a_rolling_restart_new_tasks_run_as_soon_as_one_worker_knows_them(
    server: RealServer, app: App
) -> None:
    one, two = tasks(app)
    node = a_node(server, ONE, workers=3)
    with node:
        early = [two.enqueue(number) for number in range(CALLS)]
        wait_until(lambda: app.work_queue().counts().delayed == CALLS, "all are parked")
        (node.directory / "shop.py").write_text(module(ONE, TWO))
        node.signal(signal.SIGHUP)
        waits_s = []
        ends_s = time.monotonic() + 3
        while time.monotonic() < ends_s:
            began_s = time.monotonic()
            assert one.enqueue(1).result(timeout=20) == 1
            waits_s.append(time.monotonic() - began_s)
        wait_all(early, timeout=20)
        wait_all([two.enqueue(number) for number in range(CALLS)], timeout=20)

    assert max(waits_s) < 2 * LONGEST_S, waits_s
