"""Thousands of jobs awaited at once: waiting costs the server next to nothing, and still every wait ends."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest

import mqworker.tasks.job as jobs
from mqworker import App, wait_all
from mqworker.errors import ResultNotKept, ResultTimeout
from mqworker.tasks.job import ResultWatch
from mqworker.tasks.outcome import NotKept, Outcome, Succeeded
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

MANY = 3_000


def calls_of(server: RealServer, command: str) -> int:
    """How often the server did that."""
    with server.client() as client:
        return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


def test_jobs_that_wait_in_a_long_line_are_not_all_searched_for(
    app: App, server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "FIRST_SEARCH_MS", 500)
    task = app.task(name="t")(lambda: 1)
    awaited = task.enqueue_many([()] * MANY)
    before = calls_of(server, "lrange")

    with pytest.raises(ResultTimeout, match=f"{MANY} of {MANY}"):
        wait_all(awaited, timeout=2.5)

    searches = calls_of(server, "lrange") - before
    assert 0 < searches < MANY / 20
    HandWorker(app).run_all()
    wait_all(awaited, timeout=20)


def test_all_of_many_that_vanished_are_found_to_be_gone_in_one_look(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "FIRST_SEARCH_MS", 100)
    monkeypatch.setattr(jobs, "SEARCH_BUDGET_MS", 0)
    awaited = app.task(name="t")(lambda: 1).enqueue_many([()] * 200)
    keys = app.work_queue().calls.keys
    app.work_queue().store.send([("DEL", keys.named("ready"))], keys.meta)
    began = time.monotonic()

    waits = [job.begin_wait() for job in awaited]

    assert {wait.result(timeout=20) for wait in waits} == {NotKept()}
    assert time.monotonic() - began < 15


def test_one_that_vanished_among_many_that_wait_is_found_in_the_end(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_MS", 5)
    monkeypatch.setattr(jobs, "FIRST_SEARCH_MS", 1)
    monkeypatch.setattr(jobs, "LONGEST_SEARCH_PAUSE_MS", 1)  # those in place are due again and again
    monkeypatch.setattr(jobs, "SEARCH_BUDGET_MS", 0)  # one search in each poll
    task = app.task(name="t")(lambda: 1)
    *waiting, vanished = task.enqueue_many([()] * 30)
    for job in waiting:
        job.begin_wait()
    keys = app.work_queue().calls.keys
    app.work_queue().store.send([("RPOP", keys.named("ready"))], keys.meta)

    with pytest.raises(ResultNotKept):
        vanished.result(timeout=20)


def test_lost_announcements_of_more_jobs_than_a_poll_asks_for_cost_no_result(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_MS", 20)
    monkeypatch.setattr(jobs, "MOST_POLLED", 10)
    awaited = app.task(name="t")(lambda: 1).enqueue_many([()] * 95)
    futures = [job.begin_wait() for job in awaited]
    worker, keys = HandWorker(app), app.work_queue().calls.keys
    for _ in range(3):  # whatever was asked for meanwhile, nobody is told of it
        app.work_queue().store.send([("DEL", keys.done)], keys.meta)
    worker.run_all()

    wait_all(awaited, timeout=20)

    assert all(future.done() for future in futures)


def test_a_wait_that_begins_while_the_thread_clears_its_pokes_is_heard_at_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_MS", 60_000)
    task = app.task(name="t")(lambda: 1)
    announced, heard, poked = task.enqueue_many([()] * 3)
    wait = announced.begin_wait()
    HandWorker(app).run_all()
    wait.result(timeout=10)  # its thread has nothing to make up for any more
    begun: list[Future[Outcome]] = []
    drain = ResultWatch._drain_pokes

    def drain_late(watch: ResultWatch) -> None:
        if not begun:
            begun.append(poked.begin_wait())
        drain(watch)

    monkeypatch.setattr(ResultWatch, "_drain_pokes", drain_late)

    assert heard.result(timeout=10) == 1
    assert isinstance(begun[0].result(timeout=10), Succeeded)
