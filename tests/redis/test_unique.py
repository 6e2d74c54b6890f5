"""Unique tasks that keep the last call (debounce), and messages of unknown tasks, which are parked."""

from __future__ import annotations

import pytest

from mqworker import App, JobStatus, Unique
from mqworker.errors import InvalidArgument
from mqworker.model.event import decode_block
from mqworker.model.settlement import Park
from tests.support.deadline import wait_until
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer


def test_the_last_call_replaces_the_one_that_waits_and_lets_it_wait_anew(app: App) -> None:
    ran: list[tuple[str, int]] = []

    @app.task(unique=Unique("{user}", keep="last", delay=0.3))
    def save(user: str, version: int) -> None:
        ran.append((user, version))

    first = save.enqueue("ann", 1)
    due_ms = app.work_queue().find(first.id).due_at_ms
    second, other = save.enqueue("ann", 2), save.enqueue("bob", 1)

    assert (second.id, second.is_new, other.is_new) == (first.id, False, True)
    pushed_ms = app.work_queue().find(first.id).due_at_ms
    assert due_ms is not None
    assert pushed_ms is not None
    assert pushed_ms >= due_ms
    worker = HandWorker(app)

    def has_run() -> bool:
        app.work_queue().promote()
        worker.run_all()
        return len(ran) == 2

    wait_until(has_run, "both ran")
    assert sorted(ran) == [("ann", 2), ("bob", 1)]
    assert save.enqueue("ann", 3).is_new


def test_a_call_is_put_off_no_longer_than_it_may_be_in_all(app: App) -> None:
    @app.task(unique=Unique("{user}", keep="last", delay=600, max_wait=900))
    def save(user: str, version: int) -> None: ...

    first = save.enqueue("ann", 1)
    due_ms = app.work_queue().find(first.id).due_at_ms
    save.using(delay=3600).enqueue("ann", 2)
    put_off_ms = app.work_queue().find(first.id).due_at_ms

    assert due_ms is not None
    assert put_off_ms == due_ms + 300_000


def test_a_call_that_is_about_to_run_is_not_changed_any_more(app: App) -> None:
    @app.task(unique=Unique("{user}", keep="last", delay=0.001))
    def save(user: str, version: int) -> str:
        return f"{user} {version}"

    first = save.enqueue("ann", 1)

    def is_ready() -> bool:
        app.work_queue().promote()
        return first.status() is JobStatus.WAITING

    wait_until(is_ready, "it is ready")
    second = save.enqueue("ann", 2)
    assert second.is_new
    worker = HandWorker(app)

    def have_run() -> bool:
        app.work_queue().promote()
        worker.run_all()
        return second.status() is JobStatus.SUCCEEDED

    wait_until(have_run, "both ran")
    assert (first.result(timeout=0), second.result(timeout=0)) == ("ann 1", "ann 2")


def test_a_deadline_belongs_to_the_call_that_stays(app: App) -> None:
    @app.task(unique=Unique("{user}", keep="last", delay=60))
    def save(user: str, version: int) -> str:
        return f"{user} {version}"

    job = save.using(deadline=0.01).enqueue("ann", 1)
    save.enqueue("ann", 2)

    assert app.work_queue().expire() == 0
    assert job.status() is JobStatus.DELAYED
    assert job.cancel()


@pytest.mark.parametrize(
    "options",
    [
        {"keep": "last"},
        {"keep": "latest"},
        {"delay": 5},
        {"keep": "last", "delay": 0},
        {"keep": "last", "delay": 5, "ttl": 5},
        {"keep": "last", "delay": 5, "until": "claimed"},
        {"keep": "last", "delay": 5, "max_wait": 4},
        {"keep": "last", "delay": 5, "max_wait": float("nan")},
        {"max_wait": 5},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=r"accepted|belong together"):
        Unique("{user}", **options)  # type: ignore[arg-type] # wrong on purpose


def test_a_message_of_an_unknown_task_is_parked_and_reported_and_runs_when_the_task_is_known(
    app: App, server: RealServer
) -> None:
    newer = App("shop", settings=app.settings)
    job = newer.task(name="shop.new", retry=0)(lambda: 7).enqueue()

    (parked,) = HandWorker(app).run_all()

    assert isinstance(parked, Park)
    assert job.status() is JobStatus.DELAYED
    assert "retried" not in app.work_queue().counts().totals
    with server.client() as client:
        fields = client.xrevrange("mqw:{default}:events", count=1)[0][1]
        codec, data = next((key.decode(), fields[key]) for key in fields if key in (b"j", b"z"))
        (event,) = decode_block(codec, data)
        assert (event["event"], event["error"], event["task"]) == ("parked", "UnknownTask", "shop.new")
        client.zadd("mqw:{default}:delayed", {job.id: 1})  # half a minute later

    app.work_queue().promote()
    (delivery,) = app.work_queue().claim()
    assert (delivery.failures, delivery.crashes) == (0, 0)
    app.work_queue().settle(HandWorker(newer).runner.run(delivery, "default"))
    assert job.result(timeout=5) == 7
    newer.close()
