"""The runner, without a worker: what surrounds the call of a task."""

from __future__ import annotations

import asyncio
import io
import json
from contextvars import ContextVar
from dataclasses import replace

import pytest
from structlog.contextvars import bind_contextvars

from mqworker import App, Context
from mqworker.log import add_processors, configure_logging, get_logger, keep_processors
from mqworker.model.clock import ManualClock
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import encode_call
from mqworker.model.keyring import Keyring, SigningKey
from mqworker.model.names import MessageId, TaskName
from mqworker.model.seal import Seal
from mqworker.model.settlement import Ack
from mqworker.tasks.context import name_task
from mqworker.tasks.payloads import Payloads
from mqworker.tasks.running.run import TaskRunner

TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


def a_delivery(task: str, number: int) -> Delivery:
    body = encode_call((), {})
    return Delivery(number, MessageId(f"m{number}"), TaskName(task), body, enqueued_at_ms=1_000)


def a_runner(app: App) -> TaskRunner:
    return TaskRunner(app.registry, worker="worker:0", node="n", clock=ManualClock())


@pytest.mark.parametrize("timeout", [None, 30], ids=["untimed", "timed"])
def test_what_a_task_sets_in_context_variables_ends_with_it(timeout: float | None) -> None:
    app, seen = App("shop"), []

    @app.task(name="bind", timeout=timeout)
    def bind() -> None:
        seen.append(TENANT.get())
        TENANT.set("acme")

    runner = a_runner(app)
    ends = [runner.run(a_delivery("bind", number), "default") for number in range(2)]

    assert [type(end) for end in ends] == [Ack, Ack]
    assert seen == ["nobody", "nobody"]
    assert TENANT.get() == "nobody"


def test_a_line_of_a_task_names_the_task_and_what_it_bound_by_structlog() -> None:
    app, stream = App("shop"), io.StringIO()

    @app.task(name="say")
    def say(ctx: Context) -> None:
        bind_contextvars(order=ctx.id)
        get_logger(task="mine").info("said")

    @app.task(name="asay")
    async def asay() -> None:
        await asyncio.sleep(0)
        get_logger().info("said")

    configure_logging("info", "json", stream)
    with keep_processors():
        add_processors(name_task)
        runner = a_runner(app)
        runner.run(a_delivery("say", 1), "default")
        runner.run(replace(a_delivery("asay", 2), deliveries=1), "default")
        get_logger().info("between_tasks")
    configure_logging("warning", "auto")

    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert (first["task"], first["task_id"], first["attempt"], first["order"]) == ("mine", "m1", 1, "m1")
    assert (second["task"], second["task_id"]) == ("asay", "m2")
    assert "order" not in second
    assert set(third) == {"timestamp", "level", "event"}


def test_a_result_for_a_queue_of_another_model_is_not_sealed() -> None:
    """Who reads it there, Celery's AsyncResult for one, knows no keys."""
    app = App("shop")
    app.task(name="seven")(lambda: 7)
    seal = Seal(Keyring(SigningKey("k", b"0" * 32), accept_unsigned=["celery"]), "mqw")
    runner = TaskRunner(
        app.registry,
        worker="worker:0",
        node="n",
        clock=ManualClock(),
        payloads=Payloads(seal),
        other_models={"celery"},
    )

    end = runner.run(a_delivery("seven", 1), "celery")

    assert isinstance(end, Ack)
    assert end.result == b"\x07"
