"""What Sentry is told by a node: errors, retries and crashes of tasks, and the check-ins of schedules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mqworker import App
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.sentry_receiver import SentryReceiver
from tests.support.shop_node import shop_app, shop_node

DEADLINE_S = 60.0
APP = """
import os
import sentry_sdk
from mqworker import App, Context, Retry, Secret
from mqworker.contrib import sentry

sentry_sdk.init(dsn=os.environ["DSN"], traces_sample_rate=1.0, default_integrations=False)
app = App("shop")
sentry.install(app, arguments=os.environ["ARGUMENTS"] == "yes")

@app.task(retry=Retry(max=1, first=0.01))
def fail_twice(card: str) -> None:
    raise ValueError("no such order")

@app.task(max_crashes=3)
def die_once(ctx: Context, card: str) -> None:
    if ctx.attempt == 1:
        os.kill(os.getpid(), 9)

@app.task(max_crashes=1)
def die(card: str) -> None:
    os.kill(os.getpid(), 9)

@app.task(retry=0)
def charge(card: Secret[str], token: str) -> None:
    copy = [card]
    raise ValueError(f"cannot charge {card} with {token}")

@app.task
def price(number: int) -> int:
    return number

@app.schedule(every=1)
@app.task
def tidy() -> None:
    pass
"""


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[SentryReceiver]:
    with SentryReceiver() as listening:
        yield listening


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    with shop_app(server) as made:
        yield made


def a_node(server: RealServer, receiver: SentryReceiver, *, arguments: str, **settings: str) -> RealNode:
    usual = {"MQWORKER_WORKERS": "1", "DSN": receiver.dsn, "ARGUMENTS": arguments}
    return shop_node(server, APP, usual | settings)


def _told(receiver: SentryReceiver, task: str) -> list[dict[str, Any]]:
    return [event for event in receiver.items("event") if event["tags"]["mqworker.task"] == task]


@pytest.mark.parametrize("arguments", ["no", "yes"])
def test_failures_and_crashes_come_with_task_id_and_attempt_and_arguments_only_if_allowed(
    server: RealServer, receiver: SentryReceiver, app: App, arguments: str
) -> None:
    fail_twice = app.task(name="shop.fail_twice")(lambda _card: None)
    die_once = app.task(name="shop.die_once", max_crashes=3)(lambda _card: None)
    die = app.task(name="shop.die", max_crashes=1)(lambda _card: None)
    with a_node(server, receiver, arguments=arguments):
        failing = fail_twice.enqueue("4711-secret")
        # One after the other: what a worker had not sent when it was killed is lost.
        wait_until(lambda: len(_told(receiver, "shop.fail_twice")) == 2, "both failures", DEADLINE_S)
        once = die_once.enqueue("4711-secret")
        wait_until(lambda: _told(receiver, "shop.die_once"), "the crash", DEADLINE_S)
        dying = die.enqueue("4711-secret")
        wait_until(lambda: _told(receiver, "shop.die"), "the burial", DEADLINE_S)

    first, last = _told(receiver, "shop.fail_twice")
    assert [(each["level"], each["contexts"]["mqworker"]["attempt"]) for each in (first, last)] == [
        ("warning", 1),
        ("error", 2),
    ]
    assert {each["contexts"]["mqworker"]["id"] for each in (first, last)} == {failing.id}
    assert last["exception"]["values"][0]["type"] == "ValueError"
    assert last["contexts"]["mqworker"]["messaging.message.retry.count"] == 1
    crashes = [*_told(receiver, "shop.die_once"), *_told(receiver, "shop.die")]
    assert [each["contexts"]["mqworker"]["id"] for each in crashes] == [once.id, dying.id]
    assert all("SIGKILL" in each["exception"]["values"][0]["value"] for each in crashes)
    assert ("4711-secret" in json.dumps(receiver.items("event"))) is (arguments == "yes")


@pytest.mark.parametrize("arguments", ["no", "yes"])
def test_values_of_secret_arguments_are_never_sent(
    server: RealServer, receiver: SentryReceiver, app: App, arguments: str
) -> None:
    charge = app.task(name="shop.charge", retry=0)(lambda _card, _token: None)
    with a_node(server, receiver, arguments=arguments):
        charge.enqueue("card-4711", "token-0815")
        wait_until(lambda: _told(receiver, "shop.charge"), "the failure", DEADLINE_S)

    [event] = _told(receiver, "shop.charge")
    assert event["exception"]["values"][0]["value"] == "cannot charge *** with ***"
    assert ("args" in event["contexts"]["mqworker"]) is (arguments == "yes")
    sent = json.dumps([receiver.items(kind) for kind in ("event", "transaction", "check_in")])
    assert [value for value in ("card-4711", "token-0815") if value in sent] == []


def test_a_worker_that_is_recycled_sends_what_it_has_to_say_first(
    server: RealServer, receiver: SentryReceiver, app: App
) -> None:
    price = app.task(name="shop.price")(lambda number: number)
    with a_node(server, receiver, arguments="no", MQWORKER_MAX_TASKS="1"):
        jobs = price.enqueue_many([(number,) for number in range(5)])
        assert [job.result(DEADLINE_S) for job in jobs] == [0, 1, 2, 3, 4]

        wait_until(lambda: len(_priced(receiver)) == 5, "a transaction of each", DEADLINE_S)

    found = {each["contexts"]["trace"]["data"]["messaging.message.id"] for each in _priced(receiver)}
    assert found == {job.id for job in jobs}
    assert {each["contexts"]["trace"]["op"] for each in _priced(receiver)} == {"queue.process"}


def test_each_tick_of_a_schedule_checks_in_and_out(server: RealServer, receiver: SentryReceiver) -> None:
    with a_node(server, receiver, arguments="no"):
        wait_until(lambda: "ok" in _statuses(receiver), "a tick has ended", DEADLINE_S)

    ended = next(each for each in receiver.items("check_in") if each["status"] == "ok")
    same = [
        each["status"] for each in receiver.items("check_in") if each["check_in_id"] == ended["check_in_id"]
    ]
    assert sorted(same) == ["in_progress", "ok"]
    assert ended["monitor_slug"] == "shop-shop-tidy"
    assert ended["monitor_config"]["schedule"] == {"type": "interval", "value": 1, "unit": "minute"}


def _priced(receiver: SentryReceiver) -> list[dict[str, Any]]:
    return [each for each in receiver.items("transaction") if each["transaction"] == "shop.price"]


def _statuses(receiver: SentryReceiver) -> set[str]:
    return {each["status"] for each in receiver.items("check_in")}
