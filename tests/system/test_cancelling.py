"""Cancelling what runs: it stops, or it is said that it does not; and nobody else's work suffers for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mqworker import App, Job, JobStatus
from mqworker.errors import StillRunning, TaskCancelled
from mqworker.settings import Settings
from mqworker.tasks.task import Task
from tests.support.command_line import CommandLine
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

APP = """
import asyncio, pathlib, time
from mqworker import App, Context

app = App("shop")
HERE = pathlib.Path(__file__).parent

def note(word):
    with (HERE / "notes").open("a") as notes:
        notes.write(word + "\\n")

@app.task
def loop(seconds: float) -> str:
    note("loop")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    note("looped")
    return "looped"

@app.task
def nap(seconds: float) -> str:
    note("nap")
    time.sleep(seconds)
    note("napped")
    return "napped"

@app.task
async def rest(seconds: float) -> str:
    note("rest")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(1.5)  # longer than the wish is repeated
        note("tidied")
        raise
    return "rested"

@app.task
def deaf(seconds: float) -> str:
    note("deaf")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(until - time.monotonic())
        except Exception:
            note("ignored")
    return "deaf"

@app.task
def quick(number: int) -> int:
    return number
"""


@dataclass
class Shop:
    """A node, and the tasks as a producer sees them."""

    app: App
    node: RealNode
    server: RealServer

    def task(self, name: str) -> Task[[float], str]:
        def call(seconds: float) -> str:
            return str(seconds)

        return self.app.task(name=f"shop.{name}")(call)

    def notes(self) -> list[str]:
        path = self.node.directory / "notes"
        return path.read_text().split() if path.exists() else []

    def begin(self, name: str) -> Job[str]:
        job = self.task(name).enqueue(60)
        wait_until(lambda: name in self.notes(), f"{name} began", 30)
        return job


@pytest.fixture
def shop() -> Iterator[Shop]:
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url))
        node = RealNode(server.url, "shop:app", settings={"MQWORKER_WORKERS": "1"})
        (node.directory / "shop.py").write_text(APP)
        with node:
            yield Shop(app, node, server)
        app.close()


@pytest.mark.parametrize("name", ["loop", "nap", "rest"])
def test_a_running_task_is_stopped_and_counted_as_cancelled(shop: Shop, name: str) -> None:
    job = shop.begin(name)

    assert job.cancel(timeout=20)

    assert job.status() is JobStatus.CANCELLED
    with pytest.raises(TaskCancelled):
        job.result(timeout=10)
    assert shop.task("quick").enqueue(7).result(timeout=20) == 7
    assert shop.notes() == ["rest", "tidied"] if name == "rest" else [name]
    assert shop.app.work_queue().counts().totals["cancelled"] == 1
    assert shop.node.child("worker:0")["restarts"] == 0


def test_a_task_that_will_not_stop_is_said_to_run_and_is_killed_if_wanted(shop: Shop) -> None:
    job = shop.begin("deaf")

    with pytest.raises(StillRunning, match="kill=True"):
        job.cancel(timeout=1.5)
    assert job.status() is JobStatus.RUNNING
    assert job.cancel(kill=True, timeout=20)

    totals = shop.app.work_queue().counts().totals
    assert (totals["cancelled"], totals.get("crashed", 0), totals.get("buried", 0)) == (1, 0, 0)
    assert shop.notes() == ["deaf", "ignored"]
    assert shop.task("quick").enqueue(7).result(timeout=20) == 7


def test_what_ran_beside_a_killed_task_runs_again_uncounted(shop: Shop) -> None:
    beside = shop.task("rest").enqueue(0.5)
    job = shop.begin("deaf")

    assert job.cancel(kill=True, timeout=20)

    assert beside.result(timeout=30) == "rested"
    assert shop.app.work_queue().counts().totals.get("crashed", 0) == 0


def test_a_job_that_waits_behind_a_long_one_is_cancelled_before_it_begins(shop: Shop) -> None:
    shop.begin("nap")
    behind = [shop.task("quick").enqueue(number) for number in range(20)]

    assert all(job.cancel(timeout=20) for job in behind)


def test_the_command_line_stops_a_task_and_says_when_it_cannot(shop: Shop) -> None:
    line, nap = CommandLine(shop.server), shop.begin("nap")

    stopped = line.type("job", "cancel", nap.id)
    deaf = shop.begin("deaf")
    ignored = line.type("job", "cancel", deaf.id, "--timeout", "1")
    killed = line.type("job", "cancel", deaf.id, "--kill")
    line.store.close()

    assert (stopped.exit_code, ignored.exit_code, killed.exit_code) == (0, 1, 0)
    assert f"{nap.id} of queue default is cancelled" in stopped.output
    assert "still runs" in ignored.output
    assert "--kill" in ignored.output
    assert f"{deaf.id} of queue default is cancelled" in killed.output


def test_a_cancel_that_comes_too_late_says_so(shop: Shop) -> None:
    job = shop.task("quick").enqueue(1)
    job.result(timeout=20)

    began = time.monotonic()
    assert not job.cancel()
    assert time.monotonic() - began < 5
