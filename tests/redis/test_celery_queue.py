"""A Celery queue as a queue of tasks, beyond what tests/conformance asks of every model.

Messages are made as kombu makes them; tests/interop/test_celery.py has the real thing.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from mqworker.errors import ConfigurationError, InvalidArgument, StoreRefused
from mqworker.model.delivery import Delivery
from mqworker.model.instant import After
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import (
    UNKNOWN_TASK,
    Ack,
    Bury,
    Crash,
    Failure,
    Park,
    Release,
    RetryAt,
)
from mqworker.queues.celery.calls import CeleryCalls, Ended
from mqworker.queues.celery.keys import CeleryKeys
from mqworker.queues.celery.outgoing import message_text, protocol_headers
from mqworker.queues.celery.queue import CeleryOptions, CeleryTaskQueue
from mqworker.store.command import ReplyError
from mqworker.store.link.connection import Connection
from mqworker.store.script import Call
from mqworker.store.store import Store
from tests.support.deadline import wait_until
from tests.support.messages import a_message
from tests.support.real_server import RealServer

Q = "celery"
KEYS = CeleryKeys("", Q)
HOUR_S = 3_600
FAILED = Failure("ValueError", "no such order", "Traceback …")


@pytest.fixture
def queue(connection: Connection) -> CeleryTaskQueue:
    return CeleryTaskQueue(Q, Store(connection))


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


# Any: headers and options of all kinds.
def text(task_id: str, *args: object, embed: object = None, task: str = "shop.count", **headers: Any) -> str:  # noqa: ANN401
    """A message as Celery's producers push it."""
    following = {"callbacks": None, "errbacks": None, "chain": None, "chord": None, **(embed or {})}  # type: ignore[dict-item]
    return message_text(
        protocol_headers(task=task, task_id=task_id, **headers), [list(args), {}, following], queue=Q
    )


def ids(deliveries: list[Any]) -> list[str]:
    return [each.id for each in deliveries]


def result_of(raw: redis.Redis, task_id: str) -> dict[str, Any]:
    stored = raw.get(f"celery-task-meta-{task_id}")
    assert isinstance(stored, bytes)
    found: dict[str, Any] = json.loads(stored)
    return found


def everything(raw: redis.Redis) -> int:
    """How many messages there are, wherever."""
    stored = raw.hlen(KEYS.messages) + raw.hlen(KEYS.dead[0])  # type: ignore[operator]
    return int(stored) + sum(int(raw.llen(each)) for each in KEYS.lists)  # type: ignore[arg-type]


def test_the_most_urgent_list_comes_first_and_each_from_its_right(
    queue: CeleryTaskQueue, raw: redis.Redis
) -> None:
    for key in reversed(KEYS.lists):
        raw.lpush(key, text(f"{KEYS.lists.index(key)}-first"), text(f"{KEYS.lists.index(key)}-second"))

    claimed = ids(queue.claim(100))

    assert claimed == [f"{list_}-{place}" for list_ in range(4) for place in ("first", "second")]


def test_what_celerys_workers_hold_is_not_touched(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.hset("unacked", "tag", "[]")
    raw.zadd("unacked_index", {"tag": 1})
    raw.lpush(Q, text("a"))

    queue.settle(Ack(queue.claim()[0]))
    queue.reclaim()

    assert (raw.hlen("unacked"), raw.zcard("unacked_index")) == (1, 1)


def test_a_late_ack_is_refused_and_the_message_comes_back_counted(
    queue: CeleryTaskQueue, raw: redis.Redis
) -> None:
    raw.lpush(Q, text("a"))
    late = Ack(queue.claim(lease_ms=1)[0])
    wait_until(lambda: queue.extend(late.delivery, lease_ms=1), "the lease was over")

    assert queue.settle(late) == [late]
    assert queue.reclaim() == (1, 0)
    assert queue.settle(late) == [late]
    assert queue.claim()[0].attempt == 2
    assert raw.get("celery-task-meta-a") is None


def test_a_retry_goes_on_counting_where_celery_had_come(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("a", retries=2))
    delivery = queue.claim()[0]
    assert (delivery.attempt, delivery.failures) == (3, 2)

    queue.settle(RetryAt(delivery, After(0), FAILED))

    assert result_of(raw, "a")["status"] == "RETRY"
    again = queue.claim()[0]
    assert (again.attempt, again.failures) == (4, 3)


def test_a_crash_is_counted_and_stays_with_us(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("a"))

    queue.settle(Crash(queue.claim()[0]))

    assert raw.llen(Q) == 0
    assert queue.claim()[0].crashes == 1


def test_what_nobody_began_goes_back_to_where_it_was_byte_by_byte(
    queue: CeleryTaskQueue, raw: redis.Redis
) -> None:
    raw.lpush(Q, *(text(f"m{number}", "Grüße") for number in range(5)))
    before = raw.lrange(Q, 0, -1)

    queue.settle(*(Release(each) for each in queue.claim(3)))

    assert raw.lrange(Q, 0, -1) == before


def test_a_task_that_nobody_here_knows_is_left_for_celery_and_others_are_taken_past_it(
    queue: CeleryTaskQueue, raw: redis.Redis
) -> None:
    raw.lpush(
        Q, *(text(f"m{number}", task="shop.old" if number % 2 else "shop.new") for number in range(400))
    )
    before: list[bytes] = raw.lrange(Q, 0, -1)  # type: ignore[assignment]

    taken: list[str] = []
    for _ in range(300):
        found = queue.claim(7)
        taken += [each.id for each in found if each.task == "shop.new"]
        unknown = [each for each in found if each.task == "shop.old"]
        queue.settle(*(Park(each, After(30_000), FAILED, UNKNOWN_TASK) for each in unknown))
        if not found:
            break

    assert len(taken) == 200
    assert raw.lrange(Q, 0, -1) == [each for each in before if b"shop.old" in each]


def test_a_left_task_is_tried_again_after_a_while(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("a", task="shop.old"))
    queue.settle(Park(queue.claim()[0], After(50), FAILED, UNKNOWN_TASK))

    assert queue.claim() == []
    wait_until(queue.claim, "it was tried again")


def test_a_name_that_no_task_of_ours_can_have_is_left_for_celery(
    queue: CeleryTaskQueue, raw: redis.Redis
) -> None:
    raw.lpush(Q, text("b", task="shop.count"), text("a", task="shop/old task"))

    assert ids(queue.claim(5)) == ["b"]
    assert queue.claim(5) == []
    assert raw.llen(Q) == 1


def test_a_call_for_later_waits_in_redis(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("later", eta="2050-01-01T00:00:00+00:00"), text("now"))

    assert ids(queue.claim(5)) == ["now"]
    assert queue.counts() == {"waiting": 0, "later": 1, "held": 1, "dead": 0}


def test_thousands_of_calls_for_later_hold_nobody_up(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, *(text(f"m{number}", eta="2050-01-01T00:00:00") for number in range(3_000)))
    raw.lpush(Q, text("now"))

    assert ids(queue.claim(500)) == ["now"]
    assert queue.counts()["later"] == 3_000


def test_what_has_expired_is_revoked_and_never_begun(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("late", expires="2020-01-01T00:00:00+00:00"))

    assert queue.claim() == []
    assert result_of(raw, "late")["status"] == "REVOKED"
    assert everything(raw) == 0


def test_the_same_text_twice_is_two_messages(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("a"), text("a"))
    first, second = queue.claim(2)

    queue.settle(Bury(first, "failed", FAILED), Bury(second, "failed", FAILED))

    assert [each.id.partition("~")[0] for each in queue.burials()] == ["a", "a"]


BROKEN: dict[str, bytes] = {
    "no JSON": b"hello",
    "no object": b"[]",
    "no headers": b'{"body": "e30="}',
    "not UTF-8": b"\xff\xfe",
    "deep": b'{"body": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "no base64": text("x").replace('"body": "', '"body": "*').encode(),
    "a bomb": json.dumps(
        {
            "body": base64.b64encode(zlib.compress(b"x" * 50_000_000)).decode(),
            "content-type": "application/json",
            "headers": {"task": "shop.count", "id": "bomb", "compression": "application/x-gzip"},
            "properties": {"body_encoding": "base64"},
        }
    ).encode(),
    "nan": text("x", float("nan")).encode(),
    "huge number": text("x", 10**40).encode(),
    "unknown type": text("x", {"__type__": "money", "__value__": "1"}).encode(),
    "eta": text("x", eta="tomorrow").encode(),
    "no id": text("").encode(),
    "a link that cannot be sent": text(
        "x", embed={"callbacks": [{"task": "shop.told", "options": {"countdown": 1e300}}]}
    ).encode(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_entry_is_kept_with_its_reason_and_the_rest_goes_on(
    queue: CeleryTaskQueue, raw: redis.Redis, name: str
) -> None:
    raw.lpush(Q, text("before"), BROKEN[name], text("behind"))

    assert ids(queue.claim(5)) == ["before", "behind"]

    (burial,) = queue.burials()
    assert burial.message == BROKEN[name]
    assert burial.reason == "undecodable"
    assert burial.details["error_msg"]


PICKLE, YAML = "application/x-python-serialize", "application/x-yaml"
TO_A_GROUP = {"callbacks": [{"task": "celery.group", "subtask_type": "group"}]}
REFUSED: dict[str, tuple[str, str]] = {
    "pickle": (
        text("x").replace("application/json", "application/x-python-serialize"),
        "task_serializer = 'json'",
    ),
    "yaml": (text("x").replace("application/json", YAML), "task_serializer = 'json'"),
    "a list": (text("x").replace('"application/json"', "[]"), "accepted are JSON and msgpack"),
    "zstd": (text("x", compression="application/zstd"), "gzip and bzip2"),
    "chord": (text("x", embed={"chord": {"task": "shop.sum"}}), "member of a chord"),
    "chord_unlock": (text("x", task="celery.chord_unlock"), "counts the members of a chord"),
    "link to a group": (
        text("x", embed={"callbacks": [{"task": "celery.group", "subtask_type": "group"}]}),
        "link",
    ),
    "chain into a chord": (
        text("x", embed={"chain": [{"task": "shop.sum", "options": {"chord": {"task": "a"}}}]}),
        "chain",
    ),
    "protocol 1": (json.dumps({"body": "e30=", "headers": {}, "properties": {}}), "protocol 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_carried_over_is_refused_in_a_sentence_and_kept(
    queue: CeleryTaskQueue, raw: redis.Redis, name: str
) -> None:
    message, sentence = REFUSED[name]
    raw.lpush(Q, message)

    assert queue.claim() == []

    (burial,) = queue.burials()
    assert (burial.reason, burial.message) == ("refused", message.encode())
    assert sentence in str(burial.details["error_msg"])
    if name != "protocol 1":
        assert sentence in result_of(raw, "x")["result"]["exc_message"][0]
    assert queue.revive(burial.id) == [True]
    assert raw.lrange(Q, 0, -1) == [message.encode()]


def test_a_result_is_where_celery_reads_it_and_expires(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("a", group="g", parent_id="p"))
    with raw.pubsub() as pubsub:
        pubsub.subscribe("celery-task-meta-a")
        pubsub.get_message(timeout=5)

        queue.settle(Ack(queue.claim()[0], b"\x07"))

        heard = pubsub.get_message(timeout=5)
    assert heard is not None
    told = result_of(raw, "a")
    assert json.loads(heard["data"]) == told
    assert (told["status"], told["result"], told["task_id"], told["group_id"], told["parent_id"]) == (
        "SUCCESS",
        7,
        "a",
        "g",
        "p",
    )
    assert 86_000 < raw.ttl("celery-task-meta-a") <= 86_400  # type: ignore[operator]


def test_what_has_succeeded_stays_so(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("a"), text("a"))
    first, second = queue.claim(2)

    queue.settle(Ack(first, b"\x07"))
    queue.settle(Bury(second, "failed", FAILED))

    assert result_of(raw, "a")["status"] == "SUCCESS"


def test_no_result_is_written_where_none_is_wanted(
    queue: CeleryTaskQueue, connection: Connection, raw: redis.Redis
) -> None:
    raw.lpush(Q, text("a", ignore_result=True), text("b"))
    without = CeleryTaskQueue(Q, Store(connection), CeleryOptions(writes_results=False))

    queue.settle(Ack(queue.claim()[0]))
    without.settle(Ack(without.claim()[0]))

    assert raw.keys("celery-task-meta-*") == []


def test_results_may_go_to_another_database(connection: Connection, raw: redis.Redis) -> None:
    queue = CeleryTaskQueue(Q, Store(connection), CeleryOptions(result_db=3, result_prefix="p:"))
    raw.lpush(Q, text("a"))

    queue.settle(Ack(queue.claim()[0], b"\x07"))

    assert raw.keys("*meta*") == []
    raw.select(3)
    assert raw.keys("*") == [b"p:celery-task-meta-a"]
    raw.flushdb()
    raw.select(0)


CHAIN = {"chain": [{"task": "shop.last", "options": {"task_id": "last"}}, {"task": "shop.next", "args": [9]}]}


def test_a_success_sends_what_follows_in_the_same_step(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    link = {"task": "shop.told", "immutable": True, "options": {"queue": "other", "priority": 9}}
    raw.lpush(Q, text("a", embed={**CHAIN, "callbacks": [link]}))

    queue.settle(Ack(queue.claim()[0], b"\x07"))

    (following,) = queue.claim(5)
    assert following.task == "shop.next"
    assert following.body == b"\x92\x92\x07\x09\x80"
    assert raw.llen("other\x06\x169") == 1
    queue.settle(Ack(following, b"\x08"))
    assert ids(queue.claim(5)) == ["last"]


def test_a_failure_tells_the_error_links_and_fails_the_rest_of_the_chain(
    queue: CeleryTaskQueue, raw: redis.Redis
) -> None:
    raw.lpush(Q, text("a", embed={**CHAIN, "errbacks": [{"task": "shop.told"}]}))

    queue.settle(Bury(queue.claim()[0], "failed", FAILED))

    assert {result_of(raw, each)["status"] for each in ("a", "last")} == {"FAILURE"}
    (told,) = queue.claim(5)
    assert (told.task, told.body) == ("shop.told", b"\x92\x91\xa1a\x80")


def test_a_lost_lease_sends_nothing(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("a", embed=CHAIN))
    late = Ack(queue.claim(lease_ms=1)[0], b"\x07")
    wait_until(lambda: queue.extend(late.delivery, lease_ms=1), "the lease was over")

    queue.settle(late)

    assert queue.claim(5) == []
    assert raw.get("celery-task-meta-a") is None


def test_another_process_settles_what_it_adopted_with_all_that_follows(
    queue: CeleryTaskQueue, connection: Connection, raw: redis.Redis
) -> None:
    raw.lpush(Q, text("a", embed=CHAIN))
    delivery = queue.claim()[0]
    successor = CeleryTaskQueue(Q, Store(connection))

    assert successor.adopt(delivery) == []
    assert successor.settle(Ack(delivery, b"\x07")) == []

    assert result_of(raw, "a")["status"] == "SUCCESS"
    assert len(successor.claim(5)) == 1


@pytest.mark.parametrize(
    ("result", "sentence"),
    [(b"\x81\xc4\x01x\x01", "cannot be a key in JSON"), (b"\xc1", "are not an encoded value")],
)
def test_a_result_that_json_has_no_words_for_fails_in_a_sentence(
    queue: CeleryTaskQueue, raw: redis.Redis, result: bytes, sentence: str
) -> None:
    raw.lpush(Q, text("a"))

    queue.settle(Ack(queue.claim()[0], result))

    assert sentence in result_of(raw, "a")["result"]["exc_message"][0]
    assert len(queue.burials()) == 1


def test_the_way_back_to_celery_returns_what_waits_here(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    raw.lpush(Q, text("later", eta="2050-01-01T00:00:00"), text("failed"))
    queue.settle(RetryAt(queue.claim(2)[0], After(60_000), FAILED))

    assert queue.give_back() == 2
    assert raw.llen(Q) == 2
    assert everything(raw) == 2


def test_a_prefix_stands_before_all_of_celerys_keys(connection: Connection, raw: redis.Redis) -> None:
    queue = CeleryTaskQueue(Q, Store(connection), CeleryOptions(prefix="app:", steps=(0, 5)))
    raw.lpush("app:celery\x06\x165", text("a"))

    assert ids(queue.claim()) == ["a"]


def test_our_own_call_is_a_message_of_celery(queue: CeleryTaskQueue, raw: redis.Redis) -> None:
    queue.send(a_message(b"\x92\x91\x07\x80", task="shop.count", id="a", due=After(HOUR_S * 1000)))

    stored = json.loads(raw.lindex(Q, 0))  # type: ignore[arg-type]
    assert json.loads(base64.b64decode(stored["body"]))[:2] == [[7], {}]
    assert stored["headers"]["task"] == "shop.count"
    assert stored["headers"]["eta"]


def test_what_has_no_place_in_celery_is_refused(queue: CeleryTaskQueue) -> None:
    with pytest.raises(InvalidArgument, match="priority: a Celery queue offers none"):
        queue.send(a_message(priority=3))


def calls() -> CeleryCalls:
    return CeleryCalls(KEYS, result_ms=1_000, result_db=None)


def send(queue: CeleryTaskQueue, call: Call[Any], number: int) -> Any:  # noqa: ANN401 - any answer
    """The very same command, as the store sends it again; decoded."""
    command = call.command_with_source(("lane", number))
    reply = queue.store.connection.execute([command], call.keys[0])[0]
    return reply if isinstance(reply, ReplyError) else call.decode(reply)


ACK_OF_1 = Ended(Ack(Delivery(1, MessageId("m0"), TaskName("shop.count"), b"", 0)))
NUMBERED: dict[str, Callable[[], Call[Any]]] = {
    "claim": lambda: calls().claim(2, 60_000, []),
    "claim past others": lambda: calls().claim(2, 60_000, ["shop.old"]),
    "settle": lambda: calls().settle([ACK_OF_1]),
    "extend": lambda: calls().extend([1], 60_000),
    "revive": lambda: calls().revive(["dead"]),
    "send": lambda: calls().send([text("sent")]),
}


@pytest.mark.parametrize("name", NUMBERED)
def test_a_repeated_call_gives_the_same_answer_and_a_late_one_is_refused(
    queue: CeleryTaskQueue, raw: redis.Redis, name: str
) -> None:
    raw.lpush(Q, *(text(f"m{number}") for number in range(8)))
    queue.claim(2)
    call = NUMBERED[name]()

    first = send(queue, call, 5)
    count = everything(raw)
    left = raw.llen(Q)

    again = send(queue, call, 5)
    assert (again[1] if name.startswith("claim") else again) == (
        first[1] if name.startswith("claim") else first
    )
    late = send(queue, call, 4)
    assert isinstance(late, ReplyError)
    assert late.code == "MQW_STALE"
    assert (everything(raw), raw.llen(Q)) == (count, left)


@pytest.mark.parametrize("position", range(12))
@pytest.mark.parametrize("name", [*NUMBERED, "reclaim", "give_back"])
def test_a_foreign_type_in_the_place_of_a_key_is_an_error_before_anything_is_written(
    queue: CeleryTaskQueue, raw: redis.Redis, name: str, position: int
) -> None:
    raw.lpush(Q, text("a"), text("b"))
    queue.claim()
    key = KEYS.shared[position]
    raw.delete(key)
    raw.set(key, "foreign")
    before = {each: raw.dump(each) for each in raw.keys("*")}  # type: ignore[union-attr]
    call = {**NUMBERED, "reclaim": lambda: calls().reclaim(5), "give_back": lambda: calls().give_back(5)}[
        name
    ]()
    if (position >= 8 and name in {"extend", "reclaim"}) or (position == 0 and not call.is_numbered):
        pytest.skip("is not used")

    with pytest.raises(StoreRefused):
        queue.store.run(call)

    assert {each: raw.dump(each) for each in raw.keys("*")} == before  # type: ignore[union-attr]


def test_a_cluster_is_refused_unless_the_prefix_keeps_the_keys_together(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqworker.queues.celery.queue.ClusterConnection", type(connection))

    with pytest.raises(ConfigurationError, match="global_keyprefix"):
        CeleryTaskQueue(Q, Store(connection))
    CeleryTaskQueue(Q, Store(connection), CeleryOptions(prefix="{celery}:", result_prefix="{celery}:"))
