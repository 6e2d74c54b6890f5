"""A node with keys runs what a key of its own sealed, for this place, and nothing else."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from mqworker import App, Keyring, SigningKey, chain, group
from mqworker.errors import MqworkerError, NotVerified, TaskFailed
from mqworker.model.envelope import encode_call
from mqworker.model.keyring import new_key
from mqworker.model.value_codec import pack
from mqworker.operate.edit import edit_letter, editable
from mqworker.operate.system import System
from mqworker.queues.work.keys import workflow_key
from mqworker.settings import Settings
from mqworker.tasks.schedules.stored import decode_stored
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

pytestmark = pytest.mark.usefixtures("node")

WAIT_S = 60.0
APP = """
import time
from pathlib import Path

from mqworker import App, Context

app = App("shop")


def trace(line: str) -> None:
    with Path("ran").open("a") as file:
        file.write(line + "\\n")


@app.task(name="greet")
def greet(who: str) -> str:
    trace(f"greet {who}")
    return f"hello {who}"


@app.task(name="shout")
def shout(text: str) -> str:
    trace(f"shout {text}")
    return text.upper()


@app.task(name="join")
def join(texts: list[str]) -> str:
    trace(f"join {texts}")
    return " ".join(texts)


@app.task(name="count")
def count(ctx: Context, path: str) -> None:
    ctx.progress(3, 4)
    while not Path(path).exists():
        time.sleep(0.01)


@app.schedule(every=1, args=("tick",))
@app.task(name="tick", queue="ticks")
def tick(word: str) -> None:
    trace(f"tick {word}")


@app.subscribe("orders")
@app.task(name="heard", queue="events")
def heard(event: dict) -> None:
    trace(f"heard {event['id']}")


@app.task(name="old", queue="legacy")
def old(who: str) -> str:
    return who


@app.task(name="fails", retry=0)
def fails(word: str) -> None:
    raise ValueError("no")
"""


@pytest.fixture(scope="module", params=["sign", "encrypt"])
def key(request: pytest.FixtureRequest) -> str:
    return new_key("k1", request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture(scope="module")
def node(server: RealServer, key: str) -> Iterator[RealNode]:
    with server.client() as client:
        client.flushall()
    made = RealNode(
        server.url,
        "shop:app",
        settings={"MQWORKER_WORKERS": "2", "MQWORKER_KEYS": key, "MQWORKER_ACCEPT_UNSIGNED": "legacy"},
    )
    (made.directory / "shop.py").write_text(APP)
    with made:
        yield made


@pytest.fixture
def shop(server: RealServer, key: str) -> Iterator[App]:
    app = App("shop", settings=Settings(redis_url=server.url, keys=key))
    yield app
    app.close()


@pytest.fixture
def attacker(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


def ran(node: RealNode) -> list[str]:
    trace = node.directory / "ran"
    return trace.read_text().splitlines() if trace.exists() else []


def record(message: str, task: str, body: bytes) -> bytes:
    return b"%013d0--300000000%b %b %b" % (int(time.time() * 1000), message.encode(), task.encode(), body)


def reason_of(shop: App, message: str, queue: str = "default") -> str:
    job = shop.job(message, queue)
    wait_until(lambda: job.status() == "failed", f"{message} is dead", WAIT_S)
    with pytest.raises(TaskFailed) as failed:
        job.result(timeout=WAIT_S)
    return failed.value.reason


def sealed_body(attacker: redis.Redis, shop: App, queue: str = "parking") -> tuple[str, bytes]:
    """A record that somebody with keys made and nobody runs: id and body."""
    greet = shop.named("greet").using(queue=queue)
    job = greet.enqueue("stolen")
    (stored,) = attacker.lrange(f"mqw:{{{queue}}}:ready", -1, -1)
    return job.id, stored.split(b" ", 2)[2]


def test_calls_results_and_steps_go_through(node: RealNode, shop: App) -> None:
    greet = shop.named("greet")
    shout = shop.named("shout")
    join = shop.named("join")

    assert greet.enqueue("ann").result(timeout=WAIT_S) == "hello ann"
    assert [job.result(timeout=WAIT_S) for job in greet.enqueue_many([("a",), ("b",)])] == [
        "hello a",
        "hello b",
    ]
    flow = chain(group(greet.s("x"), chain(greet.s("y"), shout.s())), join.s()).enqueue()
    assert flow.result(timeout=WAIT_S) == "hello x HELLO Y"
    shop.publish("orders", {"id": 7})
    wait_until(lambda: "heard 7" in ran(node), "the event", WAIT_S)
    wait_until(lambda: "tick tick" in ran(node), "a tick", WAIT_S)


def test_what_is_encrypted_stands_nowhere_in_redis(shop: App, attacker: redis.Redis, key: str) -> None:
    if ":sign:" in key:
        pytest.skip("signing hides nothing")
    greet = shop.named("greet")
    parked = shop.named("greet").using(queue="parking2")
    parked.using(delay=3600).enqueue("confidential")
    parked.enqueue("confidential")

    assert greet.enqueue("confidential").result(timeout=WAIT_S) == "hello confidential"

    for name in attacker.keys("*"):
        assert b"confidential" not in (attacker.dump(name) or b""), name


@pytest.mark.parametrize("how", ["unsigned", "garbage", "other key", "assembled", "bit flipped"])
def test_a_forged_call_is_buried_and_never_run(
    node: RealNode, shop: App, attacker: redis.Redis, how: str
) -> None:
    message = f"forged-{how.replace(' ', '-')}"
    body = encode_call([message], {})
    wrong = Keyring(SigningKey("k1", b"x" * 32)).newest
    forged = {
        "unsigned": body,
        "garbage": b"\xc1s\x02k1" + b"0" * 40,
        "other key": wrong.close(b"call\0mqw\0default\0greet\0" + message.encode() + b"\0", body),
        "assembled": b"\xc1c" + pack([body, None]),
        "bit flipped": shop.connections.payloads.close_message(  # type: ignore[union-attr]
            "default", "greet", message, body, None
        )[:-1]
        + b"\0",
    }[how]

    attacker.rpush("mqw:{default}:ready", record(message, "greet", forged))
    attacker.execute_command("SPUBLISH", "mqw:{default}:meta", "ready")

    assert reason_of(shop, message) == "unverified"
    assert not [line for line in ran(node) if message in line]


def test_a_sealed_call_runs_in_no_other_queue_task_or_id(
    node: RealNode, shop: App, attacker: redis.Redis
) -> None:
    message, body = sealed_body(attacker, shop)

    attacker.rpush(
        "mqw:{default}:ready",
        record(message, "greet", body),  # of another queue
        record("another", "greet", body),
        record("other-task", "shout", body),
    )
    attacker.execute_command("SPUBLISH", "mqw:{default}:meta", "ready")

    assert reason_of(shop, message) == "unverified"
    assert reason_of(shop, "another") == "unverified"
    assert reason_of(shop, "other-task") == "unverified"
    assert not [line for line in ran(node) if "stolen" in line]


def test_a_hand_over_with_the_right_place_and_a_forged_call_runs_nothing(
    node: RealNode, shop: App, attacker: redis.Redis
) -> None:
    """Who reads `meta` and publishes has the place; without a key it is worth nothing."""

    def offer() -> list[bytes]:
        return (attacker.hget("mqw:{default}:meta", "offer") or b"").split()

    greet = shop.named("greet")
    for number in range(5):
        wait_until(lambda: len(offer()) > 1, "an offer", WAIT_S)
        consumer, ticket = (part.decode() for part in offer()[:2])
        forged = record(f"handed{number}", "greet", encode_call([f"handed{number}"], {}))
        text = b"%d %b %b" % (10**15 + number, ticket.encode(), forged)
        attacker.execute_command("SPUBLISH", f"mqw:{{default}}:begin:{consumer}:{ticket.split(':')[0]}", text)
        attacker.execute_command("SPUBLISH", f"mqw:{{default}}:held:{consumer}", text)
        assert greet.enqueue(f"after{number}").result(timeout=WAIT_S) == f"hello after{number}"

    assert not [line for line in ran(node) if "handed" in line]


def test_a_forged_result_is_refused(shop: App, attacker: redis.Redis) -> None:
    greet = shop.named("greet")
    real = greet.enqueue("ann")
    assert real.result(timeout=WAIT_S) == "hello ann"
    stored = attacker.hget("mqw:{default}:results", real.id)
    assert stored is not None

    attacker.hset("mqw:{default}:results", "made-up", b"S" + pack("hello"))
    attacker.hset("mqw:{default}:results", "moved", stored)

    for message in ("made-up", "moved"):
        with pytest.raises(NotVerified):
            shop.job(message).result(timeout=WAIT_S)


def test_a_forged_step_does_not_feed_the_next(node: RealNode, shop: App, attacker: redis.Redis) -> None:
    """The result of a member is made up in the outbox, or one of another workflow stands there."""
    shout = shop.named("shout")
    parked = shop.named("greet").using(queue="parking")
    greet = shop.named("greet")
    other = chain(greet.s("other"), shout.s()).enqueue()
    assert other.result(timeout=WAIT_S) == "HELLO OTHER"
    stolen = attacker.hget(workflow_key("mqw", other.id), "r0")
    for outcome in (b"S" + pack("evil"), stolen):
        assert outcome is not None
        flow = chain(parked.s("slow"), shout.s()).enqueue()
        wait_until(lambda flow=flow: flow.status() == "running", "the start", WAIT_S)

        attacker.hset("mqw:{parking}:outbox", f"{flow.id}~0", outcome)
        attacker.execute_command("SPUBLISH", "mqw:{parking}:delayed", "outbox")

        with pytest.raises(TaskFailed) as failed:
            flow.result(timeout=WAIT_S)
        assert failed.value.reason == "unverified"
    assert "shout evil" not in ran(node)


def test_a_step_whose_call_was_changed_does_not_run(shop: App, attacker: redis.Redis) -> None:
    shout = shop.named("shout")
    greet = shop.named("greet")
    flow = chain(greet.using(delay=1).s("ann"), shout.s()).enqueue()
    name = workflow_key("mqw", flow.id)
    stored = attacker.hget(name, "t1")
    assert stored is not None
    plain = base64.b64encode(encode_call([None], {"x": "evil"})).decode()
    attacker.hset(name, "t1", json.dumps(json.loads(stored) | {"body": plain}))

    with pytest.raises(TaskFailed) as failed:
        flow.result(timeout=WAIT_S)

    assert failed.value.reason in {"unverified", "undecodable"}


def test_a_forged_event_and_a_forged_schedule_run_nothing(
    node: RealNode, shop: App, attacker: redis.Redis
) -> None:
    attacker.hset("mqw:{topic:orders}:outbox", "evil", b"1 shop/heard\n" + pack({"id": 666}))
    assert reason_of(shop, "evil:shop/heard", "events") == "unverified"

    ((name, published),) = attacker.hgetall("mqw:schedules").items()
    spec = decode_stored(name, published)
    body = base64.b64encode(spec.call.message.body)
    attacker.hset("mqw:schedules", name, published.replace(body, base64.b64encode(encode_call(["evil"], {}))))
    dead = "mqw:{ticks}:letters"
    wait_until(lambda: attacker.hlen(dead) > 0, "a forged tick is buried", WAIT_S)
    attacker.hset("mqw:schedules", name, published)

    assert not [line for line in ran(node) if "evil" in line or "666" in line]


def test_schedules_are_run_now_made_up_for_and_put_as_data(node: RealNode, shop: App) -> None:
    ticks = shop.schedules
    ticks.run_now("shop/tick").result(timeout=WAIT_S)
    end = datetime.now(UTC) - timedelta(minutes=1)

    made_up_for = ticks.backfill("shop/tick", end - timedelta(seconds=3), end).ids
    for each in made_up_for:
        shop.job(each, "ticks").result(timeout=WAIT_S)
    ticks.put("acme/greet", shop.named("greet").s("data"), every=1)
    wait_until(lambda: "greet data" in ran(node), "data is fired", WAIT_S)

    assert ticks.delete("acme/greet")
    assert len(made_up_for) == 3


def test_forged_progress_is_refused(shop: App, attacker: redis.Redis, tmp_path: Path) -> None:
    count = shop.named("count")
    end = tmp_path / "end"
    job = count.enqueue(str(end))
    wait_until(lambda: job.progress() is not None, "progress", WAIT_S)
    progress = job.progress()
    assert progress is not None
    assert (progress.done, progress.total) == (3, 4)

    attacker.set(f"mqw:{{default}}:progress:{job.id}", f"{progress.fence} 4 4")
    with pytest.raises(NotVerified):
        job.progress()
    end.touch()
    job.result(timeout=WAIT_S)


def test_unsigned_messages_run_where_they_are_accepted(server: RealServer) -> None:
    stranger = App("stranger", settings=Settings(redis_url=server.url))
    old = stranger.named("old").using(queue="legacy")

    job = old.enqueue("ann")

    with pytest.raises(NotVerified, match="MQWORKER_KEYS"):
        job.result(timeout=WAIT_S)
    assert job.status() == "succeeded"
    stranger.close()


def test_a_dead_call_is_revived_and_edited_with_keys(shop: App, server: RealServer, key: str) -> None:
    fails = shop.named("fails")
    job = fails.enqueue("first")
    assert reason_of(shop, job.id) == "failed"
    assert job.retry()
    assert reason_of(shop, job.id) == "failed"
    without = System(Settings(redis_url=server.url), shop.connections.store)
    with pytest.raises(MqworkerError, match="MQWORKER_KEYS"):
        editable(without, "default", job.id)

    system = System(Settings(redis_url=server.url, keys=key), shop.connections.store)
    assert editable(system, "default", job.id)["args"] == ["first"]
    edit_letter(system, "default", job.id, "ann", args='["second"]')

    assert editable(system, "default", job.id)["args"] == ["second"]
    assert job.retry()
    assert reason_of(shop, job.id) == "failed"
