"""RSMQ as a library, on one real server: the documented keys, every operation, every refusal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import redis

from mqworker.errors import InvalidArgument, StoreRefused, UnknownQueue
from mqworker.queues.rsmq.arguments import RsmqError
from mqworker.queues.rsmq.calls import OutgoingMessage, RsmqCalls, RsmqOptions
from mqworker.queues.rsmq.client import AsyncRsmqClient, RsmqClient
from mqworker.store.async_store import AsyncStore
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import open_async_connection
from mqworker.store.link.connection import Connection
from mqworker.store.script import Call
from mqworker.store.store import Store
from tests.support.deadline import wait_until
from tests.support.fault_proxy import FaultProxy
from tests.support.messages import open_store
from tests.support.real_server import RealServer

Anything: TypeAlias = Any
"""What a caller without types may pass."""

Q = "test-queue"
HASH, LINE, SIDE = f"rsmq:{Q}:Q", f"rsmq:{Q}", f"mqw:x:{{rsmq:{Q}}}"
AN_ID = "ho7atlr8t8zRvqNiGiuyEjFF8vmVeZRv"
DOCUMENTED = {"vt", "delay", "maxsize", "created", "modified"}


@pytest.fixture
def rsmq(connection: Connection) -> RsmqClient:
    return RsmqClient(Store(connection))


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


def now_ms(raw: redis.Redis) -> int:
    seconds, microseconds = raw.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def fields(raw: redis.Redis) -> dict[str, bytes]:
    return {name.decode(): value for name, value in raw.hgetall(HASH).items()}


def send_as_a_foreign_client(raw: redis.Redis, message: bytes, message_id: str = AN_ID) -> str:
    """What the document says about sending, in plain commands."""
    raw.zadd(LINE, {message_id: now_ms(raw)})
    raw.hset(HASH, message_id, message)
    raw.hincrby(HASH, "totalsent", 1)
    return message_id


def test_a_new_queue_is_stored_as_documented(rsmq: RsmqClient, raw: redis.Redis) -> None:
    """M01."""
    before_s = now_ms(raw) // 1000

    rsmq.create_queue(Q)

    stored = fields(raw)
    assert raw.smembers("rsmq:QUEUES") == {Q.encode()}
    assert stored.keys() == DOCUMENTED
    assert (stored["vt"], stored["delay"], stored["maxsize"]) == (b"30", b"0", b"65536")
    assert before_s <= int(stored["created"]) <= now_ms(raw) // 1000
    assert stored["modified"] == stored["created"]
    assert rsmq.list_queues() == [Q]


def test_without_queues_nothing_is_listed_and_no_key_is_made(rsmq: RsmqClient, raw: redis.Redis) -> None:
    assert rsmq.list_queues() == []
    assert raw.keys() == []


def test_names_that_we_would_refuse_are_listed_all_the_same(rsmq: RsmqClient, raw: redis.Redis) -> None:
    raw.sadd("rsmq:QUEUES", "a.b", b"\xff", "ok")

    assert rsmq.list_queues() == ["\\xff", "a.b", "ok"]


def test_a_sent_message_is_stored_as_documented(rsmq: RsmqClient, raw: redis.Redis) -> None:
    """M03."""
    rsmq.create_queue(Q)
    before_ms = now_ms(raw)

    message_id = rsmq.send_message(Q, "Hello, World")

    after_ms = now_ms(raw)
    score = raw.zscore(LINE, message_id)
    stored = fields(raw)
    assert re.fullmatch(r"[0-9a-z]{10}[A-Za-z0-9]{22}", message_id)
    assert score is not None
    assert before_ms <= int(message_id[:10], 36) // 1000 == int(score) <= after_ms
    assert stored.keys() == DOCUMENTED | {message_id, "totalsent"}
    assert (stored[message_id], stored["totalsent"]) == (b"Hello, World", b"1")


def test_a_received_message_is_counted_and_hidden_as_documented(rsmq: RsmqClient, raw: redis.Redis) -> None:
    """M04."""
    rsmq.create_queue(Q)
    send_as_a_foreign_client(raw, b"from afar")
    before_ms = now_ms(raw)

    received = rsmq.receive_message(Q)

    stored = fields(raw)
    assert received is not None
    assert (received.id, received.message, received.rc) == (AN_ID, b"from afar", 1)
    assert before_ms <= received.fr == received.ts <= now_ms(raw)
    assert (stored[f"{AN_ID}:rc"], stored[f"{AN_ID}:fr"]) == (b"1", b"%d" % received.fr)
    assert stored["totalrecv"] == b"1"
    assert raw.zscore(LINE, AN_ID) == received.fr + 30_000
    assert rsmq.receive_message(Q) is None


def test_a_second_receive_counts_up_and_keeps_the_first_time(rsmq: RsmqClient) -> None:
    """M05."""
    rsmq.create_queue(Q)
    message_id = rsmq.send_message(Q, "again")
    first = rsmq.receive_message(Q, vt=9_999_999)

    is_changed = rsmq.change_message_visibility(Q, message_id, vt=0)
    second = rsmq.receive_message(Q)

    assert is_changed
    assert first is not None
    assert second is not None
    assert (second.rc, second.fr) == (2, first.fr)


def test_visibility_is_counted_from_now(rsmq: RsmqClient, raw: redis.Redis) -> None:
    rsmq.create_queue(Q)
    message_id = rsmq.send_message(Q, "hide me")
    before_ms = now_ms(raw)

    rsmq.change_message_visibility(Q, message_id, vt=600)

    assert before_ms + 600_000 <= (raw.zscore(LINE, message_id) or 0) <= now_ms(raw) + 600_000
    assert rsmq.change_message_visibility(Q, AN_ID, vt=1) is False


def test_a_deleted_message_leaves_nothing_behind(rsmq: RsmqClient, raw: redis.Redis) -> None:
    """M06."""
    rsmq.create_queue(Q)
    message_id = rsmq.send_message(Q, "bye")
    rsmq.receive_message(Q)

    verdicts = [rsmq.delete_message(Q, message_id), rsmq.delete_message(Q, message_id)]

    assert verdicts == [True, False]
    assert raw.exists(LINE) == 0
    assert fields(raw).keys() == DOCUMENTED | {"totalsent", "totalrecv"}


def test_a_message_that_was_never_received_is_deleted_too(rsmq: RsmqClient) -> None:
    rsmq.create_queue(Q)

    assert rsmq.delete_message(Q, rsmq.send_message(Q, "unseen")) is True


def test_a_delayed_message_waits_and_one_without_delay_does_not(rsmq: RsmqClient) -> None:
    """M08."""
    rsmq.create_queue(Q, delay=1)
    late, early = rsmq.send_message(Q, "late"), rsmq.send_message(Q, "early", delay=0)

    first, second = rsmq.receive_message(Q), rsmq.receive_message(Q)
    came: list[str] = []
    wait_until(lambda: came or came.extend(m.id for m in rsmq.receive_messages(Q, 1)), "the delay was over")

    assert first is not None
    assert (first.id, second) == (early, None)
    assert came == [late]


def test_a_popped_message_is_given_and_gone(rsmq: RsmqClient, raw: redis.Redis) -> None:
    """M09."""
    rsmq.create_queue(Q)
    message_id = rsmq.send_message(Q, b"\x00only once")

    popped = rsmq.pop_message(Q)

    assert popped is not None
    assert (popped.id, popped.message, popped.rc) == (message_id, b"\x00only once", 1)
    assert raw.exists(LINE) == 0
    assert fields(raw).keys() == DOCUMENTED | {"totalsent", "totalrecv"}
    assert fields(raw)["totalrecv"] == b"1"
    assert rsmq.pop_message(Q) is None


def test_pop_tells_what_was_counted_before(rsmq: RsmqClient) -> None:
    rsmq.create_queue(Q)
    rsmq.send_message(Q, "twice")
    first = rsmq.receive_message(Q, vt=0)

    popped = rsmq.pop_message(Q)

    assert first is not None
    assert popped is not None
    assert (popped.rc, popped.fr) == (2, first.fr)


def test_with_vt_0_a_thousand_receives_give_a_thousand_messages(rsmq: RsmqClient, raw: redis.Redis) -> None:
    """M11: a message received with vt 0 stays visible, behind all that were sent before."""
    rsmq.create_queue(Q, vt=0)
    ids = rsmq.send_messages(Q, [f"{n}" for n in range(1_000)])
    sent_ms = int(raw.zrange(LINE, -1, -1, withscores=True)[0][1])
    wait_until(lambda: now_ms(raw) > sent_ms, "the millisecond of sending was over")

    received = [rsmq.receive_message(Q) for _ in range(1_000)]

    assert [message.id for message in received if message] == ids


@pytest.mark.parametrize("name", ["a.b", "a b", "a:b", "a" * 161, "QUEUES", "ä", "a\n", 7])
def test_a_queue_name_outside_the_rule_is_refused(rsmq: RsmqClient, raw: redis.Redis, name: Anything) -> None:
    """M12."""
    for use in (rsmq.create_queue, rsmq.delete_queue, rsmq.pop_message, rsmq.get_queue_attributes):
        with pytest.raises(RsmqError) as refused:
            use(name)
        assert (refused.value.name, refused.value.message) == ("invalidFormat", "Invalid qname format")
        assert isinstance(refused.value, InvalidArgument)
    assert raw.keys() == []


@pytest.mark.parametrize("name", ["", None])
def test_a_missing_queue_name_is_refused(rsmq: RsmqClient, name: Anything) -> None:
    """M12."""
    with pytest.raises(RsmqError) as refused:
        rsmq.create_queue(name)

    assert (refused.value.name, refused.value.message) == ("missingParameter", "No qname supplied")


def test_a_queue_name_of_160_characters_is_accepted(rsmq: RsmqClient) -> None:
    """M12."""
    rsmq.create_queue("a" * 160)

    assert rsmq.send_message("a" * 160, "fits")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vt": -1}, "vt must be between 0 and 9999999"),
        ({"vt": 10_000_000}, "vt must be between 0 and 9999999"),
        ({"vt": "x"}, "vt must be between 0 and 9999999"),
        ({"vt": "12abc"}, "vt must be between 0 and 9999999"),
        ({"vt": 1.5}, "vt must be between 0 and 9999999"),
        ({"vt": True}, "vt must be between 0 and 9999999"),
        ({"delay": -1}, "delay must be between 0 and 9999999"),
        ({"maxsize": 1023}, "maxsize must be between 1024 and 65536"),
        ({"maxsize": 65_537}, "maxsize must be between 1024 and 65536"),
        ({"maxsize": -2}, "maxsize must be between 1024 and 65536"),
    ],
)
def test_a_setting_outside_its_range_is_refused(
    rsmq: RsmqClient, raw: redis.Redis, settings: dict[str, Any], message: str
) -> None:
    """M13."""
    with pytest.raises(RsmqError) as refused:
        rsmq.create_queue(Q, **settings)

    assert (refused.value.name, refused.value.message) == ("invalidValue", message)
    assert raw.keys() == []


def test_a_queue_without_a_maxsize_takes_a_large_message(rsmq: RsmqClient) -> None:
    """M13."""
    rsmq.create_queue(Q, maxsize=-1)
    rsmq.send_message(Q, b"x" * 100_000)

    received = rsmq.receive_message(Q)

    assert received is not None
    assert len(received.message) == 100_000


def test_a_message_larger_than_maxsize_is_refused_and_nothing_stored(
    rsmq: RsmqClient, raw: redis.Redis
) -> None:
    """M14."""
    rsmq.create_queue(Q, maxsize=1024)
    rsmq.send_message(Q, b"x" * 1024)

    with pytest.raises(RsmqError) as refused:
        rsmq.send_messages(Q, [b"fits", b"x" * 1025])

    assert (refused.value.name, refused.value.message) == ("messageTooLong", "Message too long")
    assert raw.zcard(LINE) == 1
    assert fields(raw)["totalsent"] == b"1"


def test_maxsize_counts_bytes_or_what_the_node_client_counts(
    rsmq: RsmqClient, connection: Connection
) -> None:
    rsmq.create_queue(Q, maxsize=1024)
    as_node = RsmqClient(Store(connection), RsmqOptions(maxsize_unit="utf16"))

    with pytest.raises(RsmqError, match="Message too long"):
        rsmq.send_message(Q, "€" * 1024)
    with pytest.raises(RsmqError, match="Message too long"):
        as_node.send_message(Q, "😀" * 513)

    assert as_node.send_message(Q, "€" * 1024)
    assert as_node.send_message(Q, "😀" * 512)


@pytest.mark.parametrize(
    "use",
    [
        lambda rsmq: rsmq.send_message("nowhere", "x"),
        lambda rsmq: rsmq.receive_message("nowhere"),
        lambda rsmq: rsmq.pop_message("nowhere"),
        lambda rsmq: rsmq.change_message_visibility("nowhere", AN_ID, vt=1),
        lambda rsmq: rsmq.get_queue_attributes("nowhere"),
        lambda rsmq: rsmq.set_queue_attributes("nowhere", vt=1),
        lambda rsmq: rsmq.delete_queue("nowhere"),
    ],
    ids=["send", "receive", "pop", "visibility", "get", "set", "delete"],
)
def test_a_queue_that_is_not_there_is_not_found_and_not_made(
    rsmq: RsmqClient, raw: redis.Redis, use: Callable[[RsmqClient], object]
) -> None:
    """M15."""
    with pytest.raises(UnknownQueue) as refused:
        use(rsmq)

    assert isinstance(refused.value, RsmqError)
    assert (refused.value.name, refused.value.message) == ("queueNotFound", "Queue not found")
    assert raw.keys() == []


def test_nothing_is_deleted_from_a_queue_that_is_not_there(rsmq: RsmqClient, raw: redis.Redis) -> None:
    """M15."""
    assert rsmq.delete_message("nowhere", AN_ID) is False
    assert raw.keys() == []


def test_a_subscriber_hears_how_many_messages_there_are(connection: Connection, raw: redis.Redis) -> None:
    """M17."""
    rsmq = RsmqClient(Store(connection), RsmqOptions(realtime=True))
    rsmq.create_queue(Q)
    heard: list[bytes] = []
    with raw.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(f"rsmq:rt:{Q}")
        listener.get_message(timeout=5)  # the confirmation

        rsmq.send_message(Q, "one")
        rsmq.send_message(Q, "hidden", delay=60)
        rsmq.send_messages(Q, ["three", "four"])
        while len(heard) < 3:
            message = listener.get_message(timeout=5)
            assert message is not None
            heard.append(message["data"])

    assert heard == [b"1", b"2", b"4"]


def test_attributes_tell_what_is_hidden_to_the_millisecond(rsmq: RsmqClient, raw: redis.Redis) -> None:
    """M18."""
    rsmq.create_queue(Q, vt=60, delay=1, maxsize=2048)
    rsmq.send_messages(Q, ["visible", "received"], delay=0)
    rsmq.send_message(Q, "delayed", delay=60)
    rsmq.receive_message(Q)

    attributes = rsmq.get_queue_attributes(Q)

    assert (attributes.vt, attributes.delay, attributes.maxsize) == (60, 1, 2048)
    assert (attributes.totalsent, attributes.totalrecv) == (3, 1)
    assert (attributes.msgs, attributes.hiddenmsgs) == (3, 2)
    assert attributes.created == attributes.modified == int(fields(raw)["created"])


def test_setting_nothing_is_refused_before_the_queue_is_looked_for(rsmq: RsmqClient) -> None:
    """M19."""
    with pytest.raises(RsmqError) as refused:
        rsmq.set_queue_attributes("nowhere")

    assert (refused.value.name, refused.value.message) == ("noAttributeSupplied", "No attribute was supplied")


def test_only_given_attributes_change(rsmq: RsmqClient, raw: redis.Redis) -> None:
    rsmq.create_queue(Q, vt=5, delay=6, maxsize=2000)
    raw.hset(HASH, mapping={"created": 1, "modified": 1})

    attributes = rsmq.set_queue_attributes(Q, delay=7)

    assert (attributes.vt, attributes.delay, attributes.maxsize) == (5, 7, 2000)
    assert attributes.created == 1
    assert attributes.modified >= now_ms(raw) // 1000 - 1


def test_bytes_that_are_no_text_come_out_as_they_went_in(rsmq: RsmqClient) -> None:
    """M24."""
    rsmq.create_queue(Q)
    rsmq.send_messages(Q, [bytes(range(256)), b""])

    received = rsmq.receive_messages(Q, 2)

    assert [message.message for message in received] == [bytes(range(256)), b""]


@pytest.mark.parametrize("message", [7, None, 1.5, ["x"], "\ud800"])
def test_only_text_and_bytes_are_messages(rsmq: RsmqClient, message: Anything) -> None:
    rsmq.create_queue(Q)

    with pytest.raises(RsmqError) as refused:
        rsmq.send_message(Q, message)

    assert (refused.value.name, refused.value.message) == ("messageNotString", "Message must be a string")


@pytest.mark.parametrize(
    ("message_id", "name", "message"),
    [
        ("", "missingParameter", "No id supplied"),
        (None, "missingParameter", "No id supplied"),
        ("short", "invalidFormat", "Invalid id format"),
        ("ö" * 32, "invalidFormat", "Invalid id format"),
    ],
)
def test_an_id_of_another_form_is_refused(
    rsmq: RsmqClient, message_id: Anything, name: str, message: str
) -> None:
    rsmq.create_queue(Q)

    for use in (rsmq.delete_message, lambda q, i: rsmq.change_message_visibility(q, i, vt=1)):
        with pytest.raises(RsmqError) as refused:
            use(Q, message_id)
        assert (refused.value.name, refused.value.message) == (name, message)


def test_a_queue_is_not_created_twice_and_the_first_one_stays(rsmq: RsmqClient) -> None:
    rsmq.create_queue(Q, vt=5)

    with pytest.raises(RsmqError) as refused:
        rsmq.create_queue(Q, vt=6)

    assert (refused.value.name, refused.value.message) == ("queueExists", "Queue exists")
    assert rsmq.get_queue_attributes(Q).vt == 5


def test_a_queue_that_is_half_there_is_not_found_and_can_be_completed_or_deleted(
    rsmq: RsmqClient, raw: redis.Redis
) -> None:
    raw.hset(HASH, mapping={"vt": 30, "modified": 1})

    for use in (
        lambda: rsmq.send_message(Q, "x"),
        lambda: rsmq.receive_message(Q),
        lambda: rsmq.set_queue_attributes(Q, vt=1),
    ):
        with pytest.raises(UnknownQueue):
            use()
    untouched = fields(raw)
    rsmq.delete_queue(Q)
    rsmq.create_queue(Q)

    assert untouched == {"vt": b"30", "modified": b"1"}
    assert rsmq.list_queues() == [Q]


def test_a_deleted_queue_takes_its_messages_along(rsmq: RsmqClient, raw: redis.Redis) -> None:
    rsmq.create_queue(Q)
    rsmq.send_message(Q, "lost")

    rsmq.delete_queue(Q)

    assert raw.keys("rsmq:*") == []
    rsmq.create_queue(Q)
    assert rsmq.receive_message(Q) is None


def test_a_fraction_of_a_second_that_another_client_stored_is_kept_to(
    rsmq: RsmqClient, raw: redis.Redis
) -> None:
    rsmq.create_queue(Q)
    raw.hset(HASH, "vt", "1.5")
    rsmq.send_message(Q, "x")

    received = rsmq.receive_message(Q)

    assert received is not None
    assert raw.zscore(LINE, received.id) == received.fr + 1_500
    assert rsmq.get_queue_attributes(Q).vt == 1.5


def test_a_place_in_line_without_a_message_holds_nobody_up(rsmq: RsmqClient, raw: redis.Redis) -> None:
    rsmq.create_queue(Q)
    raw.zadd(LINE, {f"ghost-{n}": n for n in range(5)})
    wanted = rsmq.send_messages(Q, ["one", "two", "three"])

    first, others = rsmq.receive_message(Q), rsmq.receive_messages(Q, 5)

    assert first is not None
    assert [first.id, *(message.id for message in others)] == wanted
    assert raw.zcard(LINE) == 3


def test_messages_of_a_batch_are_received_in_their_order(rsmq: RsmqClient) -> None:
    rsmq.create_queue(Q)

    ids = rsmq.send_messages(Q, [f"{n}" for n in range(2_500)])
    received = [message for _ in range(3) for message in rsmq.receive_messages(Q, 1_000)]
    deleted = rsmq.delete_messages(Q, [*ids, AN_ID])

    assert [message.message for message in received] == [b"%d" % n for n in range(2_500)]
    assert [message.id for message in received] == ids == sorted(ids)
    assert deleted == [True] * 2_500 + [False]


def test_nothing_of_ours_is_in_their_keys_and_what_is_ours_expires(
    rsmq: RsmqClient, raw: redis.Redis
) -> None:
    rsmq.create_queue(Q)
    rsmq.send_message(Q, "x")
    rsmq.receive_message(Q)

    assert {key.decode() for key in raw.scan_iter()} == {"rsmq:QUEUES", HASH, LINE, SIDE}
    assert 0 < raw.pttl(SIDE) <= 3_600_000


def test_a_foreign_type_in_the_way_is_left_alone(rsmq: RsmqClient, raw: redis.Redis) -> None:
    rsmq.create_queue(Q)
    raw.set(LINE, "somebody's")
    before = fields(raw)

    for use in (lambda: rsmq.send_message(Q, "x"), lambda: rsmq.delete_queue(Q)):
        with pytest.raises(StoreRefused, match="another type"):
            use()

    assert (raw.get(LINE), fields(raw)) == (b"somebody's", before)


def test_a_foreign_counter_that_is_no_number_does_no_harm(rsmq: RsmqClient, raw: redis.Redis) -> None:
    rsmq.create_queue(Q)
    raw.hset(HASH, mapping={"totalsent": "many", "totalrecv": "few"})
    raw.hset(HASH, f"{rsmq.send_message(Q, 'x')}:rc", "often")

    received = rsmq.receive_message(Q)

    assert received is not None
    assert received.rc == 1


def run_twice(connection: Connection, call: Call[Any]) -> list[Any]:
    """The same call two times under the same number, as after a lost reply."""
    command = call.command_with_source((f"lane of {call.script.name}", 1))
    replies = [connection.execute([command], call.keys[0])[0] for _ in range(2)]
    return [call.decode(reply) for reply in replies]


def test_a_call_whose_reply_was_lost_is_repeated_without_harm(
    connection: Connection, raw: redis.Redis
) -> None:
    calls = RsmqCalls(RsmqOptions(realtime=True))

    assert run_twice(connection, calls.create_queue(Q, 30, 0, 65_536)) == [None, None]
    sent, sent_again = run_twice(connection, calls.send(Q, [OutgoingMessage(b"1"), OutgoingMessage(b"2")]))
    popped, popped_again = run_twice(connection, calls.pop(Q))
    deleted = run_twice(connection, calls.delete(Q, [sent[1], AN_ID]))
    totals = (fields(raw)["totalsent"], fields(raw)["totalrecv"])
    gone = run_twice(connection, calls.delete_queue(Q))

    assert sent == sent_again
    assert popped == popped_again
    assert popped[0].id == sent[0]
    assert deleted == [[True, False], [True, False]]
    assert totals == (b"2", b"1")
    assert gone == [None, None]


def test_where_replies_are_lost_nothing_is_stored_or_taken_twice(
    server: RealServer, raw: redis.Redis
) -> None:
    with FaultProxy(server.port, lose_every=11) as proxy:
        store = open_store(proxy.url)
        rsmq = RsmqClient(store)
        rsmq.create_queue(Q)

        ids = [rsmq.send_message(Q, f"{n}") for n in range(200)]
        stored = (raw.zcard(LINE), fields(raw)["totalsent"])
        popped = [rsmq.pop_message(Q) for _ in range(100)]
        deleted = [rsmq.delete_message(Q, message_id) for message_id in ids[100:]]
        rsmq.delete_queue(Q)
        store.close()

    assert proxy.lost > 20
    assert stored == (200, b"200")
    assert [message.id for message in popped if message] == ids[:100]
    assert all(deleted)
    assert raw.keys("rsmq:*") == []


def test_lanes_that_nobody_used_for_an_hour_are_forgotten(rsmq: RsmqClient, raw: redis.Redis) -> None:
    rsmq.create_queue(Q)
    raw.hset(SIDE, mapping={f"old-{n}": "1 1000 x" for n in range(8)})

    RsmqClient(Store(rsmq.store.connection)).send_message(Q, "a new lane looks at ten others")

    assert raw.hlen(SIDE) == 2


def test_no_two_messages_have_one_id(rsmq: RsmqClient) -> None:
    rsmq.create_queue(Q)

    ids = [*rsmq.send_messages(Q, ["x"] * 3_000), *(rsmq.send_message(Q, "y") for _ in range(300))]

    assert len(set(ids)) == 3_300
    assert ids == sorted(ids)


def test_another_namespace_has_queues_of_its_own(rsmq: RsmqClient, connection: Connection) -> None:
    other = RsmqClient(Store(connection), RsmqOptions(namespace="other"))
    rsmq.create_queue(Q)

    assert other.list_queues() == []
    with pytest.raises(RsmqError, match="Invalid ns format"):
        RsmqClient(Store(connection), RsmqOptions(namespace="{open"))


def test_asyncio_has_every_operation(server: RealServer) -> None:
    async def use() -> list[object]:
        connection = open_async_connection(
            parse_address(server.url), connect_timeout_s=2.0, read_timeout_s=2.0, client_name="mqw-test"
        )
        store = AsyncStore(connection)
        rsmq = AsyncRsmqClient(store)
        await rsmq.create_queue(Q, vt=7)
        first, second, *others = [
            await rsmq.send_message(Q, "1"),
            *(await rsmq.send_messages(Q, ["2", "3", "4"])),
        ]
        received, batch = await rsmq.receive_message(Q), await rsmq.receive_messages(Q, 1)
        popped = await rsmq.pop_message(Q)
        seen: list[object] = [
            received and received.id == first,
            [message.id for message in batch] == [second],
            popped and popped.id == others[0],
            await rsmq.change_message_visibility(Q, first, vt=0),
            await rsmq.delete_message(Q, first),
            await rsmq.delete_messages(Q, [second, others[1]]),
            (await rsmq.set_queue_attributes(Q, vt=8)).vt,
            (await rsmq.get_queue_attributes(Q)).msgs,
            await rsmq.list_queues(),
        ]
        await rsmq.delete_queue(Q)
        with pytest.raises(RsmqError, match="Queue not found"):
            await rsmq.send_message(Q, "x")
        await store.close()
        return seen

    seen = asyncio.run(use())

    assert seen == [True, True, True, True, True, [True, True], 8, 0, [Q]]


def test_every_operation_of_one_client_is_one_of_the_other() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(RsmqClient) == public(AsyncRsmqClient)
