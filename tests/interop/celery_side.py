"""The side of Celery: an application as people have it, run by the interpreter that has Celery.

Nothing of mqworker is imported. As a program it prints one JSON value: `python celery_side.py produce 100`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import sys
import time
import uuid
from pathlib import Path

from celery import Celery, chain, chord, group

URL = os.environ["MQW_TEST_CELERY_URL"]
app = Celery("shop", broker=URL, backend=URL)
app.conf.update(
    accept_content=["json", "msgpack", "pickle"],
    result_expires=600,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
)


def note(*words: object) -> None:
    path = Path(os.environ["MQW_TEST_LEDGER"]) / "celery.ledger"
    line = " ".join(map(str, words)) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@app.task(name="shop.count")
def count(number, *args, **kwargs):
    note("begun", number, os.getpid(), "celery")
    time.sleep(kwargs.get("pause", 0.0))
    note("ended", number, os.getpid(), "celery")
    return number


@app.task(name="shop.only_celery")
def only_celery(number):
    return count(number)


@app.task(name="shop.add")
def add(one, other):
    return one + other


@app.task(name="shop.fail")
def fail(word):
    raise ValueError(word)


MOMENT = dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=dt.UTC)


def send(number, kind):
    """One call of each kind; those of `expired` must never run."""
    match kind:
        case "plain":
            count.delay(number)
        case "kwargs":
            count.apply_async((), {"number": number, "pause": 0.0})
        case "countdown":
            count.apply_async((number,), countdown=0.5 + number % 3)
        case "eta":
            now = dt.datetime.now(dt.UTC)
            count.apply_async((number,), eta=now + dt.timedelta(seconds=1))
        case "expires":
            count.apply_async((number,), expires=600)
        case "expired":
            count.apply_async((number,), expires=MOMENT)
        case "priority":
            count.apply_async((number,), priority=number % 10)
        case "retries":
            count.apply_async((number,), retries=2)
        case "gzip":
            count.apply_async((number, "x" * 500), compression="gzip")
        case "bzip2":
            count.apply_async((number, "x" * 500), compression="bzip2")
        case "msgpack":
            count.apply_async((number, 1.5, b"bytes"), serializer="msgpack")
        case "headers":
            count.apply_async((number,), headers={"tenant": "acme", "level": 3})
        case "large":
            count.apply_async((number, "y" * 200_000))
        case "unicode":
            count.apply_async((number, "Grüße, мир, 你好, 🎉"))
        case "types":
            count.apply_async((number, MOMENT, MOMENT.date(), decimal.Decimal("1.50"), uuid.uuid4(), b"\xff"))
        case "limits":
            count.apply_async((number,), time_limit=60, soft_time_limit=50)
        case "ignored":
            count.apply_async((number,), ignore_result=True)
        case "group":
            group([count.s(number)]).apply_async()
        case "chain":  # two numbers: the second one is reached by the chain
            chain(add.si(number, 0), count.s()).apply_async()
        case "link":
            add.apply_async((number, 0), link=count.s())
        case _:
            raise ValueError(kind)


# fmt: off
KINDS = (
    "plain", "kwargs", "countdown", "eta", "expires", "expired", "priority", "retries", "gzip", "bzip2",
    "msgpack", "headers", "large", "unicode", "types", "limits", "ignored", "group", "chain", "link",
)
# fmt: on


def produce(amount):
    kinds = [KINDS[number % len(KINDS)] for number in range(int(amount))]
    for number, kind in enumerate(kinds):
        send(number, kind)
    return kinds


def fleet(amount):
    # Celery's workers throw away what they do not know, so that there is no task of ours alone.
    tasks = (count, only_celery)
    for number in range(int(amount)):
        app.send_task(tasks[number % 2].name, (number,), {"pause": 0.02} if number % 2 == 0 else {})
    return int(amount)


def slow(amount):
    for number in range(int(amount)):
        count.apply_async((number,), {"pause": 3.0})
    return int(amount)


def results():
    """What Celery's own AsyncResult reads of calls that only our node runs."""
    told = {}
    told["sum"] = add.delay(2, 3).get(timeout=60)
    told["types"] = [
        str(each) for each in app.send_task("shop.echo", ([MOMENT, decimal.Decimal("1.5")],)).get(60)
    ]
    failed = fail.delay("no such order")
    try:
        failed.get(timeout=60)
    except ValueError as error:
        told["error"] = [type(error).__name__, str(error)]
    told["state"], told["has_traceback"] = failed.state, "ValueError" in failed.traceback
    last = chain(add.s(1, 2), add.s(3), add.s(4)).apply_async()
    told["chain"], told["parents"] = last.get(timeout=60), [last.parent.get(60), last.parent.parent.get(60)]
    broken = chain(fail.s("first"), add.s(3), add.s(4)).apply_async()
    try:
        broken.get(timeout=60)
    except ValueError as error:
        told["broken"] = str(error)
    told["group"] = group([add.s(one, 1) for one in range(3)]).apply_async().get(timeout=60)
    pickled = add.apply_async((1, 2), serializer="pickle")
    told["pickle"] = str(pickled.get(timeout=60, propagate=False))
    member = chord([add.s(1, 2), add.s(3, 4)])(add.s(1))
    told["chord"] = [str(each.get(timeout=60, propagate=False)) for each in member.parent.results]
    retried = app.send_task("shop.flaky")
    told["retried"] = retried.get(timeout=60)
    late = count.apply_async((1,), expires=MOMENT)
    told["expired"] = [type(late.get(timeout=60, propagate=False)).__name__, late.state]
    linked = add.apply_async((1, 1), link_error=count.s())
    told["linked"] = linked.get(timeout=60)
    fail.apply_async(("x",), link_error=app.signature("shop.told"))
    return told


def main():
    command, *words = sys.argv[1:]
    print(json.dumps({"produce": produce, "fleet": fleet, "slow": slow, "results": results}[command](*words)))


if __name__ == "__main__":
    main()
