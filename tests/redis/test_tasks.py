"""Tasks from the call to the settlement, on a real server and with a worker by hand."""

from __future__ import annotations

import asyncio
import enum
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from mqworker import App, Context, JobStatus, Retry, Unique, current_context
from mqworker.errors import InvalidArgument, LeaseLost, QueueFull, TaskCancelled, TaskTimeout
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import encode_call
from mqworker.model.instant import After
from mqworker.model.message import Message
from mqworker.model.names import ConsumerName, MessageId, TaskName, consumer_name
from mqworker.model.settlement import Ack, Bury, Park, Release, RetryAt
from mqworker.model.value_codec import unpack
from mqworker.settings import Settings
from mqworker.store.embedded.share import stop_server
from mqworker.tasks.hooks import OutgoingCall
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Order:
    id: str
    price: Decimal
    size: Size


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    """An app on the shared server."""
    made = App("shop", settings=Settings(redis_url=server.url, max_message_bytes=10_000))
    yield made
    made.close()


@pytest.fixture
def worker(app: App) -> HandWorker:
    """Runs what the app enqueues."""
    return HandWorker(app)


def only(settlements: list[object]) -> object:
    (one,) = settlements
    return one


def test_an_enqueued_call_runs_with_its_arguments_and_its_result_is_kept(
    app: App, worker: HandWorker
) -> None:
    @app.task
    def add(a: int, b: int = 0) -> int:
        return a + b

    job = add.enqueue(1, b=2)
    worker.run_all()

    assert job.result(timeout=5) == 3
    assert job.status() is JobStatus.SUCCEEDED


def test_a_bad_call_fails_in_the_producer_and_nothing_is_stored(app: App) -> None:
    @app.task(name="shop.add")
    def add(a: int, b: object) -> None: ...

    with pytest.raises(InvalidArgument, match="missing a required argument: 'b'"):
        add.enqueue(1)  # type: ignore[call-arg] # wrong on purpose
    with pytest.raises(
        InvalidArgument,
        match=r"argument 'b' of shop.add: type object cannot be sent; accepted are",
    ):
        add.enqueue(1, object())
    with pytest.raises(InvalidArgument, match=r"10,\d+ bytes; accepted are up to 10,000"):
        add.enqueue(1, b"x" * 10_000)
    with pytest.raises(InvalidArgument, match="missing a required argument"):
        add.enqueue_many([(1, 2), (1,)])

    assert app.work_queue().counts().waiting == 0


def test_annotated_dataclasses_and_enums_are_rebuilt_in_the_worker_and_in_the_result(
    app: App, worker: HandWorker
) -> None:
    @app.task
    def enlarge(order: Order, sizes: list[Size]) -> Order:
        assert isinstance(order, Order)
        return Order(order.id, order.price, sizes[-1])

    job = enlarge.enqueue(Order("a", Decimal("1.50"), Size.SMALL), [Size.SMALL, Size.LARGE])
    worker.run_all()

    assert job.result(timeout=5) == Order("a", Decimal("1.50"), Size.LARGE)


def test_a_result_of_none_is_kept_too(app: App, worker: HandWorker) -> None:
    job = app.task(name="t")(lambda: None).enqueue()

    settlement = only(list(worker.run_all()))

    assert isinstance(settlement, Ack)
    assert len(settlement.result) == 1
    assert job.result(timeout=5) is None


def test_many_calls_are_stored_in_order(app: App, worker: HandWorker) -> None:
    seen: list[int] = []

    @app.task(result_ttl=0)
    def note(number: int) -> None:
        seen.append(number)

    jobs = note.enqueue_many([*((number,) for number in range(1500)), {"number": 1500}]) + note.map([1501])
    worker.run_all()

    assert seen == list(range(1502))
    assert len({job.id for job in jobs}) == 1502


def test_calls_are_awaited_by_asyncio_too(app: App, worker: HandWorker) -> None:
    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def use() -> int:
        job = await double.aenqueue(4)
        await asyncio.to_thread(worker.run_all)
        result = await job.aresult(timeout=5)
        await app.aclose()
        return result

    assert asyncio.run(use()) == 8
    assert worker.runner.is_async(double.name)


def test_a_call_may_be_delayed_urgent_late_and_elsewhere(app: App, worker: HandWorker) -> None:
    seen: list[str] = []

    @app.task
    def note(text: str) -> None:
        seen.append(text)

    delayed = note.using(delay=3600).enqueue("delayed")
    note.enqueue("second")
    note.using(priority=9).enqueue("first")
    elsewhere = note.using(queue="other").enqueue("elsewhere")
    worker.run_all()

    assert seen == ["first", "second"]
    assert delayed.status() is JobStatus.DELAYED
    assert (elsewhere.queue, elsewhere.status()) == ("other", JobStatus.WAITING)


def test_the_keywords_of_celery_are_understood(app: App, worker: HandWorker) -> None:
    @app.task
    def trace(ctx: Context, text: str) -> str:
        return f"{text} {ctx.headers['trace']} {ctx.id}"

    job = trace.apply_async(("a",), priority=3, queue="q", task_id="mine", headers={"trace": "7"}, expires=60)
    later = trace.apply_async(kwargs={"text": "b"}, eta=datetime.now(UTC) + timedelta(hours=1))
    worker.run_all("q")

    assert job.result(timeout=5) == "a 7 mine"
    assert later.status() is JobStatus.DELAYED
    with pytest.raises(InvalidArgument, match="countdown and eta"):
        trace.apply_async(("a",), countdown=1, eta=datetime.now(UTC))


def test_a_repeated_id_gives_the_job_that_is_there_already(app: App) -> None:
    @app.task
    def pay(order: int) -> None: ...

    one, two = (pay.using(id="order-7").enqueue(7) for _ in range(2))

    assert (one.id, two.id) == ("order-7", "order-7")
    assert (one.is_new, two.is_new) == (True, False)
    assert app.work_queue().counts().waiting == 1


def test_unique_calls_are_those_with_the_same_key(app: App, worker: HandWorker) -> None:
    @app.task(unique="{user}")
    def sync(user: str, source: str) -> None: ...

    @app.task(unique=Unique(until="claimed"))
    def refresh(page: int) -> None: ...

    first, same, other = sync.enqueue("ann", "web"), sync.enqueue("ann", "app"), sync.enqueue("bob", "web")
    pages = [refresh.enqueue(1), refresh.using(headers={"a": "b"}).enqueue(page=1), refresh.enqueue(2)]
    worker.run_all()
    again = sync.enqueue("ann", "web")

    assert (same.id, same.is_new) == (first.id, False)
    assert other.id != first.id
    assert [page.is_new for page in pages] == [True, False, True]
    assert again.is_new


def test_a_failure_is_retried_by_the_policy_and_then_buried_with_its_traceback(
    app: App, worker: HandWorker
) -> None:
    @app.task(retry=Retry(max=1, first=0, jitter=0))
    def fail(ctx: Context) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    fail.enqueue()
    first, second = worker.run_all()

    assert isinstance(first, RetryAt)
    assert first.due == After(0)
    assert isinstance(second, Bury)
    assert second.reason == "retries_exhausted"
    assert second.failure is not None
    assert (second.failure.error, second.failure.message) == ("ValueError", "attempt 2")
    assert 'raise ValueError(f"attempt' in second.failure.traceback
    assert "tasks/running/run.py" not in second.failure.traceback


def test_a_task_may_ask_for_one_more_try(app: App, worker: HandWorker) -> None:
    @app.task
    def later() -> None:
        raise Retry("busy", in_=120)

    later.enqueue()

    settlement = only(list(worker.run_all()))
    assert isinstance(settlement, RetryAt)
    assert settlement.due == After(120_000)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
def test_whatever_a_task_raises_ends_the_task_and_not_the_worker(
    app: App, worker: HandWorker, error: BaseException
) -> None:
    @app.task(retry=0)
    def leave() -> None:
        raise error

    @app.task(retry=0)
    async def leave_async() -> None:
        raise error

    leave.enqueue()
    if isinstance(error, asyncio.CancelledError):  # the others end the event loop of this test
        leave_async.enqueue()

    for settlement in worker.run_all():
        assert isinstance(settlement, Bury)
        assert settlement.failure is not None
        assert settlement.failure.error == type(error).__name__


@pytest.mark.parametrize(
    ("value", "reason"), [(b"x" * 10_000, "result_too_large"), (object(), "result_not_accepted")]
)
def test_a_result_that_cannot_be_kept_is_a_failure_with_a_reason(
    app: App, worker: HandWorker, value: object, reason: str
) -> None:
    @app.task
    def give() -> object:
        return value

    give.enqueue()

    settlement = only(list(worker.run_all()))
    assert isinstance(settlement, Bury)
    assert settlement.reason == reason


def test_a_task_that_keeps_no_result_may_return_anything(app: App, worker: HandWorker) -> None:
    app.task(result_ttl=0, name="t")(object).enqueue()

    settlement = only(list(worker.run_all()))
    assert isinstance(settlement, Ack)
    assert settlement.result == b""


def test_a_call_made_for_another_signature_is_parked_and_runs_when_the_task_fits_again(
    app: App, worker: HandWorker
) -> None:
    newer = App("shop", settings=app.settings)
    newer.task(name="t")(lambda number, factor: number * factor)
    queue = app.work_queue()
    task = app.task(name="t", retry=0)(lambda number: number)
    queue.enqueue(Message(MessageId("m1"), encode_call((6, 7), {}), task.name))

    refused = only(list(worker.run_all()))
    assert isinstance(refused, Park)
    assert refused.mark
    assert "too many positional arguments" in refused.failure.message
    assert (queue.counts().delayed, queue.counts().dead) == (1, 0)

    known = ("t", newer.registry.named("t").binding.version)
    claimed = queue.store.run(queue.calls.claim_records(1, ConsumerName("newer"), (), known))
    assert len(claimed) == 1
    newer.close()


def test_an_undecodable_body_is_buried_and_nothing_runs(app: App, worker: HandWorker) -> None:
    ran: list[int] = []
    task = app.task(name="t")(lambda number: ran.append(number + 1))
    queue = app.work_queue()
    for body in (b"cos\nsystem\n(S'true'\ntR.", b"\x92\x92\x01", b"\x92" + b"\x91" * 999):
        queue.enqueue(Message(MessageId(f"m{len(body)}"), body, task.name))

    settlements = worker.run_all()

    assert [type(each) for each in settlements] == [Bury, Bury, Bury]
    assert {letter.reason for letter in queue.dead_letters()} == {"undecodable"}
    assert ran == []


def test_an_unknown_task_waits_for_a_worker_that_knows_it(app: App, worker: HandWorker) -> None:
    app.work_queue().enqueue(Message(MessageId("m"), b"\x92\x90\x80", TaskName("os.system")))

    settlement = only(list(worker.run_all()))

    assert isinstance(settlement, Park)
    assert settlement.failure.error == "UnknownTask"
    assert app.job("m").status() is JobStatus.DELAYED


def test_a_soft_time_out_is_an_exception_in_the_task(app: App, worker: HandWorker) -> None:
    seen: list[str] = []

    @app.task(timeout=0.05, retry=0)
    def slow() -> None:
        try:
            threading.Event().wait(10)
        except TaskTimeout as error:
            seen.append(str(error))
            raise

    @app.task(timeout=0.05, retry=0)
    async def slow_async() -> None:
        await asyncio.sleep(10)

    slow.enqueue()
    slow_async.enqueue()
    began = time.monotonic()
    settlements = worker.run_all()

    assert time.monotonic() - began < 5
    assert [each.failure.error for each in settlements if isinstance(each, Bury) and each.failure] == [
        "TaskTimeout",
        "TaskTimeout",
    ]
    assert seen[0].endswith("ran longer than 0.05 s")
    assert worker.runner.hard_timeout_ms(slow.name) == 10_050


def test_a_cancelled_async_run_is_left_to_the_worker(app: App, worker: HandWorker) -> None:
    @app.task
    async def wait() -> None:
        await asyncio.sleep(10)

    wait.enqueue()
    (delivery,) = app.work_queue().claim()

    async def drain() -> None:
        run = asyncio.create_task(worker.runner.arun(delivery, "default"))
        await asyncio.sleep(0)
        run.cancel()
        await run

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(drain())


def test_the_context_knows_the_delivery_and_is_found_without_a_parameter(
    app: App, worker: HandWorker
) -> None:
    @app.task
    def look(ctx: Context) -> list[object]:
        assert current_context() is ctx
        return [
            ctx.id,
            ctx.task,
            ctx.queue,
            ctx.attempt,
            ctx.failures,
            ctx.fence > 0,
            ctx.deadline_at_ms is not None,
        ]

    job = look.using(deadline=60, headers={"a": "b"}).enqueue()
    worker.run_all()

    assert job.result(timeout=5) == [job.id, look.name, "default", 1, 0, True, True]
    assert current_context() is None


def test_a_cancelled_task_sees_it_and_may_stop(app: App, worker: HandWorker) -> None:
    @app.task
    def stoppable(ctx: Context) -> None:
        assert job.cancel()
        ctx.stop_if_cancelled()

    job = stoppable.enqueue()
    settlement = only(list(worker.run_all()))

    assert isinstance(settlement, Release)
    assert job.status() is JobStatus.CANCELLED
    with pytest.raises(TaskCancelled):
        job.result(timeout=5)


def test_a_run_whose_lease_ended_knows_and_one_that_was_taken_over_is_still_its_own(
    app: App, worker: HandWorker
) -> None:
    seen: list[bool] = []

    @app.task
    def look(ctx: Context) -> None:
        seen.append(ctx.is_mine())
        queue = app.work_queue()
        keys = queue.calls.keys
        (record,) = queue.store.connection.execute([("HGET", keys.held(None), ctx.fence)], keys.meta)
        assert isinstance(record, bytes)
        moves = [
            ("HSET", keys.held(consumer_name("successor")), ctx.fence, record),
            ("ZADD", keys.named("consumers"), 1, "successor"),
            ("HDEL", keys.held(None), ctx.fence),
        ]
        queue.store.connection.execute(moves, keys.meta)
        seen.append(ctx.is_mine())  # by the same fence
        queue.store.connection.execute(
            [("HDEL", keys.held(consumer_name("successor")), ctx.fence)], keys.meta
        )
        seen.append(ctx.is_mine())
        with pytest.raises(LeaseLost, match="was given to somebody else"):
            ctx.stop_if_lost()
        ctx.stop_if_lost()

    look.enqueue()
    (delivery,) = app.work_queue().claim(1)
    settlement = worker.runner.run(delivery, "default")

    assert seen == [True, True, False]
    assert isinstance(settlement, Release)


def test_a_lease_is_not_thought_lost_because_the_server_is_silent(
    app: App, worker: HandWorker, server: RealServer
) -> None:
    @app.task
    def look(ctx: Context) -> bool:
        server.kill()
        return ctx.is_mine()

    look.enqueue()
    (delivery,) = app.work_queue().claim(1)
    try:
        settlement = worker.runner.run(delivery, "default")
    finally:
        server.start()

    assert isinstance(settlement, Ack)
    assert unpack(settlement.result) is True


def test_the_worker_may_tell_a_running_task_to_stop(app: App, worker: HandWorker) -> None:
    @app.task
    def look(ctx: Context) -> bool:
        worker.runner.cancel(ctx.id)
        return ctx.is_cancelled

    job = look.enqueue()
    worker.run_all()

    assert job.result(timeout=5) is True
    assert worker.runner.cancel(job.id) is False


def test_hooks_run_around_enqueue_start_success_failure_and_retry(app: App, worker: HandWorker) -> None:
    seen: list[str] = []

    @app.hooks.before_enqueue
    def trace(call: OutgoingCall) -> None:
        call.headers["trace"] = "7"

    app.hooks.on_start(lambda ctx: seen.append(f"start {ctx.headers['trace']}"))
    app.hooks.on_success(lambda _, result: seen.append(f"success {result}"))
    app.hooks.on_failure(lambda _, error: seen.append(f"failure {error}"))
    app.hooks.on_retry(lambda _, error, ms: seen.append(f"retry {error} {ms}"))

    @app.hooks.on_start
    def broken(ctx: Context) -> None:
        raise RuntimeError(f"a hook must not change the outcome of {ctx.id}")

    @app.task(retry=Retry(max=1, first=0))
    def work(number: int) -> int:
        return 1 // number

    work.enqueue(1)
    work.enqueue(0)
    worker.run_all()

    division = "integer division or modulo by zero"
    assert seen == [
        *("start 7", "success 1"),
        *("start 7", f"retry {division} 0"),
        *("start 7", f"failure {division}"),
    ]


def test_a_declared_limit_refuses_one_call_too_many(app: App) -> None:
    app.queue("small", weight=3, limit=1)
    task = app.task(name="t", queue="small")(lambda: None)
    task.enqueue()

    with pytest.raises(QueueFull):
        task.enqueue()


def test_a_forked_child_enqueues_with_ids_of_its_own(app: App) -> None:
    task = app.task(name="t")(lambda: None)
    task.enqueue()

    child = os.fork()
    if child == 0:
        try:
            task.enqueue_many([()] * 50)
        finally:
            os._exit(0)
    task.enqueue_many([()] * 50)
    os.waitpid(child, 0)

    deliveries: list[Delivery] = app.work_queue().claim(200)
    assert len({delivery.id for delivery in deliveries}) == 101


def test_threads_enqueue_with_ids_of_their_own(app: App) -> None:
    task = app.task(name="t")(lambda: None)
    threads = [threading.Thread(target=lambda: task.enqueue_many([()] * 100)) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({delivery.id for delivery in app.work_queue().claim(1000)}) == 400


def test_the_registry_tells_how_a_task_is_delivered_and_how_long_its_result_is_kept(app: App) -> None:
    once = app.task(name="once", delivery="at_most_once", result_ttl=7)(lambda: None)
    app.task(name="usual")(lambda: None)

    assert app.settings.result_ttl_s == 600
    assert app.registry.delivery_of(once.name) == "at_most_once"
    assert app.registry.delivery_of(TaskName("usual")) == "at_least_once"
    assert app.registry.result_ttl_ms(once.name) == 7_000
    assert app.registry.result_ttl_ms(TaskName("usual")) == 600_000


def test_the_limit_of_crashes_is_the_tasks_or_else_the_settings(server: RealServer) -> None:
    app = App("shop", settings=Settings(redis_url=server.url, max_crashes=7))
    for name, options in (("set", {}), ("own", {"max_crashes": 2}), ("endless", {"max_crashes": None})):
        app.task(name=name, **options)(lambda: None).enqueue()  # type: ignore[arg-type] # options of a task

    limits = [delivery.max_crashes for delivery in app.work_queue().claim(3)]

    assert limits == [7, 2, None]
    app.close()


def test_a_call_as_a_value_is_checked_and_not_sent(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    signature = add.using(queue="q").s(1, b=2)

    assert (signature.task, signature.args, dict(signature.kwargs)) == (add.name, (1,), {"b": 2})
    assert signature.plan.queue == "q"
    with pytest.raises(InvalidArgument):
        add.s(1, 2, 3)  # type: ignore[call-overload] # wrong on purpose: one too many


def test_a_kept_result_is_the_value_packed(app: App, worker: HandWorker) -> None:
    app.task(name="t")(lambda: (1, "a")).enqueue()

    settlement = only(list(worker.run_all()))

    assert isinstance(settlement, Ack)
    assert unpack(settlement.result) == (1, "a")
    assert settlement.run is not None
    assert (settlement.run.worker, settlement.run.node) == ("hand", "test")


def test_without_a_url_the_embedded_server_of_the_directory_is_used(tmp_path: Path) -> None:
    app = App("shop", settings=Settings(data_dir=tmp_path / "d"))
    task = app.task(name="t")(lambda: None)

    try:
        job = task.enqueue()
        assert job.status() is JobStatus.WAITING
    finally:
        app.close()
        assert stop_server(tmp_path / "d")
