"""The buffering producer: batches, lingers, loses nothing and stores nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker import App
from mqworker.errors import InvalidArgument, QueueFull, StoreUnavailable
from mqworker.settings import Settings
from mqworker.tasks.task import Task
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

NEVER = 60.0


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    """An app on the shared server."""
    made = App("shop", settings=Settings(redis_url=server.url, retry_for_s=0))
    yield made
    made.close()


@pytest.fixture
def note(app: App) -> Task[[int], None]:
    """A task with one argument."""

    @app.task(name="note")
    def note(number: int) -> None: ...

    return note


def stored(app: App) -> int:
    return app.work_queue().counts().ready


def test_calls_wait_in_the_buffer_until_a_batch_is_full(app: App, note: Task[[int], None]) -> None:
    producer = app.producer(push_batch=3, linger=NEVER)

    producer.enqueue(note, 1)
    producer.enqueue(note, 2)
    before = (stored(app), len(producer))
    job = producer.enqueue(note, 3)

    assert before == (0, 2)
    assert (stored(app), len(producer)) == (3, 0)
    assert job.status() == "waiting"
    producer.close()


def test_a_call_lingers_only_so_long(app: App, note: Task[[int], None]) -> None:
    with app.producer(push_batch=1000, linger=0.01) as producer:
        producer.enqueue(note, 1)

        wait_until(lambda: stored(app) == 1, "the lingering call is sent")


def test_closing_sends_what_is_left_and_takes_no_more(app: App, note: Task[[int], None]) -> None:
    with app.producer(push_batch=1000, linger=NEVER) as producer:
        for number in range(10):
            producer.enqueue(note, number)

    assert stored(app) == 10
    with pytest.raises(InvalidArgument, match="the producer is closed"):
        producer.enqueue(note, 1)


def test_a_failed_flush_raises_and_keeps_the_buffer(app: App, note: Task[[int], None]) -> None:
    app.work_queue().limit(2)
    producer = app.producer(push_batch=1000, linger=NEVER)
    for number in range(3):
        producer.enqueue(note, number)

    with pytest.raises(QueueFull):
        producer.flush()
    kept = len(producer)
    app.work_queue().limit(None)
    producer.close()

    assert kept == 3
    assert stored(app) == 3


def test_an_error_behind_the_scenes_reaches_the_next_caller(app: App, note: Task[[int], None]) -> None:
    app.work_queue().limit(1)
    producer = app.producer(push_batch=2, linger=NEVER)
    producer.enqueue(note, 1)
    producer.enqueue(note, 2)  # fills the batch, which is refused; the call itself is in the buffer

    with pytest.raises(QueueFull):
        producer.enqueue(note, 3)
    app.work_queue().limit(None)
    producer.close()

    assert [delivery.body[2] for delivery in app.work_queue().claim(10)] == [1, 2]


def test_a_batch_whose_reply_was_lost_is_not_stored_twice(
    app: App, note: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = app.producer(push_batch=1000, linger=NEVER)
    producer.enqueue(note, 1)
    producer.flush()
    producer.enqueue(note, 2)
    connection = app.connections.store.connection
    execute = connection.execute

    def lose_the_reply(*arguments: object) -> None:
        execute(*arguments)  # type: ignore[arg-type] # passed on as they came
        raise StoreUnavailable("the link broke after the request was sent")

    with monkeypatch.context() as patched:
        patched.setattr(connection, "execute", lose_the_reply)
        with pytest.raises(StoreUnavailable):
            producer.flush()
    producer.enqueue(note, 3)
    producer.close()

    assert [delivery.body[2] for delivery in app.work_queue().claim(10)] == [1, 2, 3]


def test_threads_share_a_producer(app: App, note: Task[[int], None]) -> None:
    def produce() -> None:
        for number in range(250):
            producer.enqueue(note, number)

    with app.producer(push_batch=100, linger=0.01) as producer:
        threads = [threading.Thread(target=produce) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert stored(app) == 1000
    assert len({delivery.id for delivery in app.work_queue().claim(1000)}) == 1000


def test_a_forked_child_leaves_the_buffer_to_its_parent(app: App, note: Task[[int], None]) -> None:
    producer = app.producer(linger=NEVER)
    producer.enqueue(note, 1)

    child = os.fork()
    if child == 0:
        try:
            producer.enqueue(note, 2)
            producer.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    before = stored(app)
    producer.close()

    assert (before, stored(app)) == (1, 2)


def test_a_bad_call_is_refused_and_not_buffered(app: App, note: Task[[int], None]) -> None:
    producer = app.producer(linger=NEVER)

    with pytest.raises(InvalidArgument, match="argument 'number' of note"):
        producer.enqueue(note, object())  # type: ignore[arg-type] # wrong on purpose

    assert len(producer) == 0
    producer.close()


def test_a_forgotten_buffer_is_sent_when_the_program_ends(app: App, server: RealServer) -> None:
    program = (
        "from mqworker import App\n"
        f"app = App('shop', redis_url={server.url!r})\n"
        "task = app.task(name='note')(lambda number: None)\n"
        "app.producer(push_batch=1000, linger=60).enqueue(task, 7)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=30, cwd=Path(__file__).parents[2])

    assert stored(app) == 1


@pytest.mark.parametrize(
    "option", [{"push_batch": 0}, {"push_batch": 1001}, {"linger": -1}, {"linger": 61}], ids=str
)
def test_an_option_outside_its_bounds_is_refused(app: App, option: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        app.producer(**option)  # type: ignore[arg-type] # wrong on purpose
