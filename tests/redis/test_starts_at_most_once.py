"""What runs at most once is acknowledged at its start: not before, for then it could be lost unbegun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mqworker import App
from mqworker.errors import StoreUnavailable
from mqworker.model.clock import SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import encode_call
from mqworker.model.names import ConsumerName, MessageId
from mqworker.model.settlement import Ack, Park, Release, Settlement
from mqworker.model.strike import Strike
from mqworker.store.exchange import Exchange
from mqworker.tasks.running.run import TaskRunner
from mqworker.tasks.running.task_link import StoreTaskLink
from tests.support.messages import a_message

CONSUMER = ConsumerName("node")


class Stage:
    """A worker by hand, on a queue with one at-most-once task and its async twin."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: list[int] = []
        self.note: Callable[[int], object] = self.ran.append

        def run(number: int) -> None:
            self.note(number)

        async def run_on_loop(number: int) -> None:
            self.note(number)

        self.task = app.task(name="once", delivery="at_most_once")(run)

        self.async_task = app.task(name="aonce", delivery="at_most_once")(run_on_loop)
        self.queue = app.work_queue("default")
        connections = app.connections
        link = StoreTaskLink(
            app.work_queue, SystemClock(), connections.async_queue, consumer=CONSUMER, acks_starts=True
        )
        self.runner = TaskRunner(app.registry, worker="w", node="n", clock=SystemClock(), link=link)

    def run(self, *deliveries: Delivery) -> list[Settlement]:
        """All at once where they are asynchronous."""
        if not self.runner.is_async(deliveries[0].task):
            return [self.runner.run(each, "default") for each in deliveries]

        async def run_all() -> list[Settlement]:
            ends = await asyncio.gather(*(self.runner.arun(each, "default") for each in deliveries))
            await self.app.aclose()
            return ends

        return asyncio.run(run_all())

    def claim(self) -> Delivery:
        (delivery,) = self.queue.claim(consumer=CONSUMER)
        return delivery

    def state_of(self, delivery: Delivery) -> str:
        return self.queue.find(MessageId(delivery.id)).state


@pytest.fixture
def stage(app: App) -> Stage:
    return Stage(app)


@pytest.mark.parametrize("name", ["task", "async_task"])
def test_it_is_held_until_its_start_and_settled_at_its_first_line(stage: Stage, name: str) -> None:
    getattr(stage, name).enqueue(1)
    delivery = stage.claim()
    before = stage.state_of(delivery)
    seen: list[str] = []
    stage.note = lambda _number: seen.append(stage.state_of(delivery))

    (settlement,) = stage.run(delivery)

    assert isinstance(settlement, Ack)
    assert (before, seen) == ("leased", ["absent"])


def test_what_somebody_else_has_by_now_does_not_begin(stage: Stage) -> None:
    stage.task.enqueue(1)
    old = stage.claim()
    stage.queue.settle(Release(old), consumer=CONSUMER)
    new = stage.claim()

    ends = [stage.runner.run(delivery, "default") for delivery in (old, new, new)]

    assert [type(end) for end in ends] == [Release, Ack, Release]
    assert stage.ran == [1]


def test_an_answer_that_was_lost_costs_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.task.enqueue(1)
    delivery, store, lost = stage.claim(), stage.queue.store, []
    attempt = store.attempt

    def attempt_and_lose(exchange: Exchange) -> list[Any]:
        answer = attempt(exchange)
        if len(lost) < 2:
            lost.append(answer)
            raise StoreUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(store, "attempt", attempt_and_lose)
    settlement = stage.runner.run(delivery, "default")

    assert (type(settlement), stage.ran, len(lost)) == (Ack, [1], 2)


def test_without_an_answer_it_does_not_begin(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.task.enqueue(1)
    delivery, store = stage.claim(), stage.queue.store

    def fail(exchange: Exchange) -> list[Any]:
        raise StoreUnavailable(f"away, {exchange}")

    monkeypatch.setattr(store, "attempt", fail)
    monkeypatch.setattr("mqworker.tasks.running.task_link.LONGEST_START_MS", 300)
    settlement = stage.runner.run(delivery, "default")

    assert (type(settlement), stage.ran) == (Release, [])


def test_what_is_not_to_be_run_now_is_not_lost(stage: Stage) -> None:
    stage.task.enqueue(1)
    delivery = stage.claim()
    stage.runner.strike([Strike("s1", "once")])

    struck = stage.runner.run(delivery, "default")
    stage.runner.strike([])
    delivery.start_by_ms = 1
    unpermitted = stage.runner.run(delivery, "default")
    delivery.start_by_ms = 0
    ran = stage.runner.run(delivery, "default")

    assert not isinstance(struck, Ack)
    assert (type(unpermitted), type(ran), stage.ran) == (Release, Ack, [1])


def test_a_call_for_another_signature_is_parked_and_not_lost(stage: Stage) -> None:
    stage.queue.enqueue(a_message(encode_call((1, 2), {}), task=stage.task.name))
    delivery = stage.claim()

    settlement = stage.runner.run(delivery, "default")

    assert isinstance(settlement, Park)
    assert stage.queue.settle(settlement, consumer=CONSUMER) == []  # still ours to park


def test_many_at_once_on_one_loop(stage: Stage) -> None:
    stage.async_task.enqueue_many([(number,) for number in range(50)])
    deliveries = stage.queue.claim(50, consumer=CONSUMER)

    ends = stage.run(*deliveries, *deliveries)

    assert sorted(stage.ran) == list(range(50))
    assert sum(isinstance(end, Ack) for end in ends) == 50


def test_a_key_of_another_type_costs_no_worker(stage: Stage) -> None:
    stage.task.enqueue(1)
    delivery = stage.claim()
    keys = stage.queue.calls.keys
    stage.queue.store.send([("DEL", keys.held(CONSUMER)), ("SET", keys.held(CONSUMER), "foreign")], keys.meta)

    settlement = stage.runner.run(delivery, "default")

    assert (type(settlement), stage.ran) == (Release, [])


def test_a_full_server_lets_it_start(stage: Stage) -> None:
    stage.task.enqueue(1)
    delivery, keys = stage.claim(), stage.queue.calls.keys
    stage.queue.store.send([("CONFIG", "SET", "maxmemory", "1")], keys.meta)
    try:
        settlement = stage.runner.run(delivery, "default")
    finally:
        stage.queue.store.send([("CONFIG", "SET", "maxmemory", "0")], keys.meta)

    assert (type(settlement), stage.ran) == (Ack, [1])
