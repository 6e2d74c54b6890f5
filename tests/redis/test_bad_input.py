"""What foreigners and mistakes put before a queue: refused with a typed error, or buried; never half-done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from mqworker.errors import InvalidArgument, StoreFull, StoreRefused
from mqworker.model.guard import GuardMode, chosen_id_guard, unique_guard
from mqworker.model.instant import After
from mqworker.model.settlement import Ack, Bury, Crash, Release, RetryAt
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.script import Call
from mqworker.store.store import Store
from tests.support.messages import AN_HOUR_MS, a_message, bodies, open_store, some_messages
from tests.support.raw_queue import LONG_AGO_MS, RawQueue
from tests.support.real_server import RealServer

INJECTION = 'q"] redis.call("FLUSHALL") --'
NO_NUMBERS = [-1, 2**63, float("nan"), float("inf"), 1.5, True, "1e9", None]
CONSUMER = "worker-1"

Foreign: TypeAlias = Any
"""A value that no type checker would let pass: callers have none."""


# Names, ids and numbers


@pytest.mark.parametrize("name", ["", "x" * 129, "a\n", "a\0b", "\ufffd", None, 7])
def test_a_queue_with_an_impossible_name_is_never_made(store: Store, raw: RawQueue, name: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        WorkQueue(name, store)

    assert raw.dump() == {}


@pytest.mark.parametrize("verb", ["cancel", "find", "revive"])
@pytest.mark.parametrize("message", ["", "a b", "a\n", "x" * 10_240, INJECTION, None])
def test_an_impossible_id_is_refused_before_anything_is_sent(
    queue: WorkQueue, raw: RawQueue, verb: str, message: Foreign
) -> None:
    with pytest.raises(InvalidArgument):
        getattr(queue, verb)(message)

    assert raw.dump() == {}


@pytest.mark.parametrize("consumer", ["a b", "a:b", "*", INJECTION, 7])
def test_an_impossible_consumer_is_refused_before_anything_is_sent(
    queue: WorkQueue, raw: RawQueue, consumer: Foreign
) -> None:
    for verb in (
        lambda: queue.claim(consumer=consumer),
        lambda: queue.settle(consumer=consumer),
        lambda: queue.beat(consumer),
        lambda: queue.reap(consumer, silent_ms=0),
    ):
        with pytest.raises(InvalidArgument):
            verb()

    assert raw.dump() == {}


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_impossible_numbers_are_refused_before_anything_is_sent(
    queue: WorkQueue, raw: RawQueue, number: Foreign
) -> None:
    for verb in (
        lambda: queue.claim(number),
        lambda: queue.claim(lease_ms=number),
        lambda: queue.extend(lease_ms=number),
        lambda: queue.reap("a", silent_ms=number),
        lambda: queue.dead_letters(0, number),
        lambda: queue.dead_letters(number, 1),
        lambda: queue.pop(number),
        lambda: queue.inspect(0, number),
    ):
        with pytest.raises(InvalidArgument):
            verb()

    assert raw.dump() == {}


@pytest.mark.parametrize("length", [0, *(number for number in NO_NUMBERS if number is not None)])
def test_an_impossible_limit_is_refused(queue: WorkQueue, raw: RawQueue, length: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        queue.limit(length)

    assert raw.dump() == {}


@pytest.mark.parametrize("element", [b"x" * 1_048_577, "ž" * 524_289, None, 5, ["a"]])
def test_an_element_that_is_too_large_or_no_bytes_is_refused(
    queue: WorkQueue, raw: RawQueue, element: Foreign
) -> None:
    with pytest.raises(InvalidArgument):
        queue.push(b"good", element)

    assert raw.client.exists(raw.key("ready")) == 0


@pytest.mark.parametrize("fence", [0, -1, 2**63, 1.5, "1 OR 1", b"\x00"])
def test_a_forged_fence_settles_nothing(queue: WorkQueue, raw: RawQueue, fence: Foreign) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim()[0]
    before = raw.dump_without_calls()
    forged = replace(delivery, fence=fence)

    for settlement in (Ack(forged), RetryAt(forged), Release(forged), Crash(forged), Bury(forged, "why")):
        assert queue.settle(settlement) == [settlement]
    assert queue.extend(forged) == [forged]

    assert raw.dump_without_calls() == before


def test_a_delivery_of_one_queue_cannot_be_settled_in_another(
    store: Store, queue: WorkQueue, raw: RawQueue
) -> None:
    other = WorkQueue("other", store)
    for each in (queue, other):  # as when they are claimed in the same millisecond
        raw.client.hset(each.calls.keys.meta, "fence", 8_000_000_000_000_000)
    queue.enqueue(a_message())
    other.enqueue(a_message())
    mine, theirs = queue.claim()[0], other.claim(consumer=CONSUMER)[0]

    late = Ack(mine)
    lost = other.settle(late)

    assert mine.fence == theirs.fence
    assert lost == [late]
    assert other.settle(Ack(theirs), consumer=CONSUMER) == []


# Foreign types under our keys


def fill(queue: WorkQueue, raw: RawQueue) -> None:
    """Messages in every state, so that each script has something to do wherever it looks."""
    queue.enqueue(*some_messages(12))
    buried, ended, *_ = queue.claim(4)
    queue.settle(Bury(buried, "why"))
    queue.claim(2, consumer=CONSUMER)
    queue.push(b"a", b"b", b"c")
    queue.pop(3)
    cancelled, doomed, late = a_message(), a_message(), a_message(deadline=After(AN_HOUR_MS))
    queue.enqueue(cancelled, doomed, a_message(priority=5), late, a_message(due=After(AN_HOUR_MS)))
    queue.enqueue(a_message(id="chosen", guard=chosen_id_guard("chosen")))
    queue.enqueue(a_message(guard=unique_guard("k", GuardMode.UNTIL_CLAIMED)))
    due = a_message(due=After(AN_HOUR_MS))
    queue.enqueue(due)
    queue.cancel(cancelled.id)
    raw.end_lease(ended.fence)
    raw.end_delay(due.id, 0)
    raw.pass_deadline(late.id, 0)


def calls_of(queue: WorkQueue, raw: RawQueue) -> list[Call[Any]]:
    """One call of every script, on ids and fences that exist."""
    state = raw.read(CONSUMER)
    dead = [name.decode() for name in state.dead]
    waiting = [record[25:].split(b" ")[0].decode() for record in state.ready if record != b"-"]
    popped = [name.decode() for name in state.delivered]
    held = queue.store.run(queue.calls.claim(1, None, AN_HOUR_MS))
    calls, delivery = queue.calls, held[0]
    guard = unique_guard("k2", GuardMode.UNTIL_SETTLED)
    return [
        calls.enqueue(some_messages(2)),
        calls.enqueue(
            [
                a_message(guard=guard),
                a_message(priority=1),
                a_message(due=After(9)),
                a_message(deadline=After(9)),
                a_message(id="new", guard=chosen_id_guard("new")),
            ]
        ),
        calls.claim(9, None, AN_HOUR_MS),
        calls.claim(9, CONSUMER, AN_HOUR_MS),  # type: ignore[arg-type]
        calls.settle([Ack(delivery, b"result")], None),
        calls.settle([RetryAt(delivery, After(AN_HOUR_MS))], None),
        calls.settle([Release(delivery)], None),
        calls.settle([Bury(delivery, "why")], None),
        calls.extend([delivery.fence], AN_HOUR_MS),
        calls.reclaim(100),
        calls.beat(CONSUMER),  # type: ignore[arg-type]
        calls.reap(CONSUMER, 0, 100, losses=1),  # type: ignore[arg-type]
        calls.begin_probation(delivery.fence, CONSUMER),  # type: ignore[arg-type]
        calls.begin_spawn(delivery.fence, CONSUMER),  # type: ignore[arg-type]
        calls.promote(100),
        calls.expire(100),
        calls.cancel(waiting[-1], 0, 1_000),  # type: ignore[arg-type]
        calls.find(waiting[-1], 0, 1_000),  # type: ignore[arg-type]
        calls.revive(dead),  # type: ignore[arg-type]
        calls.purge("waiting", 1_000),
        calls.purge("dead", 1_000),
        calls.configure(paused="1"),
        calls.set_limit("t", 4),
        calls.close(["t"], 1_000),
        calls.forget(0, "0", "0"),
        calls.rotate_results(),
        calls.wait(waiting[:2]),  # type: ignore[arg-type]
        calls.request_cancel(delivery.id),
        calls.repair("0", "0"),
        calls.push([b"x"]),
        calls.pop(9),
        calls.ack(popped),
        calls.recover(9, 0),
        calls.inspect(0, 9),
        calls.inspect_pending(0, 9),
    ]


CALL_COUNT = 35
KEY_COUNT = 18


@pytest.mark.parametrize("call_number", range(CALL_COUNT))
def test_a_foreign_key_is_refused_with_nothing_half_written(
    queue: WorkQueue, raw: RawQueue, call_number: int
) -> None:
    keys = [*queue.calls.keys.rqueue, queue.calls.keys.held(None), queue.calls.keys.held(CONSUMER)]  # type: ignore[arg-type]
    refused = 0

    for key in keys:
        raw.client.flushall()
        fill(queue, raw)
        call = calls_of(queue, raw)[call_number]
        raw.client.delete(key)
        raw.client.set(key, "foreign")
        before = raw.dump()
        try:
            queue.store.run(call)
        except StoreRefused:
            refused += 1
            assert raw.dump() == before, f"{call.script.name} half-wrote with a foreign {key}"
        else:
            assert raw.client.get(key) == b"foreign", f"{call.script.name} overwrote a foreign {key}"

    assert refused > 0
    assert len(keys) >= KEY_COUNT


def test_every_script_of_the_queue_meets_foreign_keys(queue: WorkQueue, raw: RawQueue) -> None:
    fill(queue, raw)

    calls = calls_of(queue, raw)

    assert len(calls) == CALL_COUNT


def test_a_foreign_registry_is_refused(queue: WorkQueue, raw: RawQueue) -> None:
    raw.client.set("mqw:queues", "foreign")
    before = raw.dump()

    with pytest.raises(StoreRefused):
        queue.enqueue(a_message())

    assert raw.dump() == before


# Foreign bytes in our keys

GARBAGE = [
    b"",
    b"x",
    b"cos\nsystem\n(S'touch canary'\ntR.",
    b"\x80\x04\x95" + b"\x00" * 40,
    b'{"task": "os.system", "args": ["id"]}',
    b"17000000000000--3",
    b"17000000000000-d300000000id task no-deadline ",
    b"17000000000000r-300000000id task ",
    b"170000000000001-x00000000id task body",
    b"17000000000000--300000000id\xff task body",
    b'17000000000000--300000000id"} task body',
    b"9" * 5_000,
]


def with_every_exception(queue: WorkQueue) -> None:
    """Guards, deadlines and holes, so that records are looked at one by one."""
    doomed = a_message()
    queue.enqueue(
        doomed, a_message(deadline=After(AN_HOUR_MS), guard=unique_guard("k", GuardMode.UNTIL_SETTLED))
    )
    queue.cancel(doomed.id)


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("is_exceptional", [False, True])
def test_garbage_in_the_line_is_buried_and_the_line_goes_on(
    queue: WorkQueue, raw: RawQueue, garbage: bytes, *, is_exceptional: bool
) -> None:
    if is_exceptional:
        with_every_exception(queue)
    raw.client.rpush(raw.key("ready"), garbage)
    queue.enqueue(a_message(b"good"))

    claimed = queue.claim(10)

    letter = queue.dead_letters()[0]
    assert bodies(claimed)[-1:] == [b"good"]
    assert (letter.reason, letter.message) == ("undecodable", None)
    assert queue.claim() == []
    assert queue.counts().ready == 0
    assert queue.counts().leased == len(claimed)


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("is_exceptional", [False, True])
def test_garbage_among_the_urgent_is_buried(
    queue: WorkQueue, raw: RawQueue, garbage: bytes, *, is_exceptional: bool
) -> None:
    if is_exceptional:
        with_every_exception(queue)
    raw.client.zadd(raw.key("urgent"), {garbage: 5})
    queue.enqueue(a_message(b"good", priority=1))

    claimed = queue.claim(10)

    assert b"good" in bodies(claimed)
    assert [letter.reason for letter in queue.dead_letters()] == ["undecodable"]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_hand_is_buried_when_its_lease_ends(
    queue: WorkQueue, raw: RawQueue, garbage: bytes
) -> None:
    raw.client.hset(raw.key("held:"), "77", garbage)
    raw.client.zadd(raw.key("leases"), {"77": LONG_AGO_MS})

    reclaimed = queue.reclaim()

    assert reclaimed == (0, 1)
    assert [letter.id for letter in queue.dead_letters()] == ["unreadable-77"]
    assert queue.counts().leased == 0


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_the_hands_of_a_consumer_is_buried_in_the_end(
    queue: WorkQueue, raw: RawQueue, garbage: bytes
) -> None:
    raw.client.hset(raw.key(f"held:{CONSUMER}"), "77", garbage)

    released = queue.reap(CONSUMER, silent_ms=0)
    claimed = queue.claim(10)

    assert released == 1
    assert claimed == []
    assert [letter.reason for letter in queue.dead_letters()] == ["undecodable"]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_among_the_delayed_is_buried_when_it_is_due(
    queue: WorkQueue, raw: RawQueue, garbage: bytes
) -> None:
    raw.client.zadd(raw.key("delayed"), {"m": LONG_AGO_MS})
    raw.client.hset(raw.key("parcels"), "m", garbage)

    assert queue.promote() == -1
    assert queue.claim(10) == []
    assert [letter.reason for letter in queue.dead_letters()] == ["undecodable"]
    assert queue.counts().waiting == 0


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("verb", ["expire", "cancel", "purge_waiting", "find", "inspect"])
def test_garbage_does_not_stop_the_upkeep(queue: WorkQueue, raw: RawQueue, garbage: bytes, verb: str) -> None:
    with_every_exception(queue)
    raw.client.zadd(raw.key("delayed"), {"m": LONG_AGO_MS * 3})
    raw.client.hset(raw.key("parcels"), "m", garbage)
    raw.client.zadd(raw.key("deadlines"), {"m": LONG_AGO_MS})
    raw.client.rpush(raw.key("ready"), garbage)
    raw.client.zadd(raw.key("urgent"), {garbage: 5})
    arguments = {"cancel": ["m"], "find": ["m"], "inspect": [0, 10]}

    getattr(queue, verb)(*arguments.get(verb, []))
    getattr(queue, verb)(*arguments.get(verb, []))
    before = queue.counts().waiting
    queue.push(b"good")

    assert queue.counts().waiting == before + 1


@pytest.mark.parametrize("text", [b"", b"x", b"1 1", b"a b c", b"99999999999999999999 1 x"])
def test_garbage_among_the_delivered_does_not_stop_the_verbs(
    queue: WorkQueue, raw: RawQueue, text: bytes
) -> None:
    (good,) = queue.push(b"good")
    queue.pop()
    raw.client.zadd(raw.key("delivered"), {"bad": 0, "without": 1})
    raw.client.hset(raw.key("popped"), "bad", text)

    queue.inspect_pending(0, 10)
    recovered = queue.recover(10, 0)
    acked = queue.ack("bad", "without", good)

    assert recovered is not None
    assert (good, b"good") in recovered
    assert acked is not None
    assert good in acked


def test_a_garbled_dead_letter_is_listed_and_not_revived(queue: WorkQueue, raw: RawQueue) -> None:
    raw.client.zadd(raw.key("dead"), {"m": LONG_AGO_MS, b"\xff": LONG_AGO_MS, "without": LONG_AGO_MS})
    raw.client.hset(raw.key("letters"), mapping={"m": b"garbage", b"\xff": b"2 {}x"})

    listed = queue.dead_letters()

    assert {letter.reason for letter in listed} == {"undecodable"}
    assert queue.revive("m") == []
    assert queue.purge_dead() == 3


# Scores that nobody can have meant


@pytest.mark.parametrize("score", ["+inf", "-inf", -1, 1e300])
def test_a_lease_with_an_impossible_end_ends(queue: WorkQueue, raw: RawQueue, score: Foreign) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim()[0]
    raw.client.zadd(raw.key("leases"), {delivery.fence: score})

    reclaimed = queue.reclaim()

    assert reclaimed == (1, 0)
    assert queue.claim()[0].id == delivery.id


def test_a_lease_without_a_delivery_is_dropped(queue: WorkQueue, raw: RawQueue) -> None:
    raw.client.zadd(raw.key("leases"), {"5": LONG_AGO_MS, "no-fence": LONG_AGO_MS})

    assert queue.reclaim() == (0, 0)
    assert raw.client.zcard(raw.key("leases")) == 0


@pytest.mark.parametrize("score", ["-inf", -1])
def test_a_delay_with_an_impossible_end_is_over(queue: WorkQueue, raw: RawQueue, score: Foreign) -> None:
    message = a_message(due=After(AN_HOUR_MS))
    queue.enqueue(message)
    raw.client.zadd(raw.key("delayed"), {message.id: score})

    assert queue.promote() == -1
    assert queue.claim()[0].id == message.id


@pytest.mark.parametrize("score", ["+inf", 1e300])
def test_a_delay_without_end_does_not_confuse_the_promoter(
    queue: WorkQueue, raw: RawQueue, score: Foreign
) -> None:
    message = a_message(due=After(AN_HOUR_MS))
    queue.enqueue(message)
    raw.client.zadd(raw.key("delayed"), {message.id: score})

    until_next_ms = queue.promote()

    assert until_next_ms > AN_HOUR_MS
    assert queue.cancel(message.id)


def test_a_delayed_id_without_a_message_is_dropped(queue: WorkQueue, raw: RawQueue) -> None:
    raw.client.zadd(raw.key("delayed"), {"ghost": LONG_AGO_MS})

    assert queue.promote() == -1
    assert queue.claim() == []


@pytest.mark.parametrize("score", ["+inf", "-inf", -1])
def test_an_impossible_deadline_neither_loses_nor_repeats_the_message(
    queue: WorkQueue, raw: RawQueue, score: Foreign
) -> None:
    message = a_message(deadline=After(AN_HOUR_MS))
    queue.enqueue(message)
    raw.client.zadd(raw.key("deadlines"), {message.id: score})
    queue.expire()

    claimed = queue.claim(5)

    assert [delivery.id for delivery in claimed] == [message.id]
    assert queue.claim() == []


# Memory, scripts and permissions


@pytest.fixture
def full_server() -> Iterator[RealServer]:
    with RealServer("--maxmemory-policy", "noeviction") as running:
        yield running


def test_a_full_server_takes_nothing_in_and_lets_everything_out(full_server: RealServer) -> None:
    with full_server.client() as client:
        store = open_store(full_server.url)
        queue = WorkQueue("q", store)
        raw = RawQueue(client, queue.calls.keys)
        fill(queue, raw)
        client.config_set("maxmemory", 1)
        before = raw.dump()

        for refused in (
            lambda: queue.enqueue(a_message()),
            lambda: queue.enqueue(a_message(priority=1)),
            lambda: queue.push(b"x"),
            lambda: WorkQueue("new", store).enqueue(a_message()),
        ):
            with pytest.raises(StoreFull):
                refused()
        assert raw.dump() == before

        _drain(queue)
        client.config_set("maxmemory", 0)
        assert queue.enqueue(a_message())[0].is_new
        store.close()


def _drain(queue: WorkQueue) -> None:
    """Every verb that takes something out, until only two are left that `fill` holds."""
    assert queue.reclaim() == (1, 0)
    assert queue.expire() == 1
    queue.promote()
    queue.beat(CONSUMER)
    assert queue.reap(CONSUMER, silent_ms=0) == 2
    assert queue.recover(1, 0) != []
    pending = [item.id for item in queue.inspect_pending(0, 10)]
    assert queue.ack(*pending) == pending
    again, released, crashed, buried, extended = queue.claim(5)
    assert queue.extend(extended) == []
    endings = [RetryAt(again), Release(released), Crash(crashed), Bury(buried, "why"), Ack(extended, b"r")]
    assert queue.settle(*endings) == []
    while claimed := queue.claim(100):
        assert queue.settle(*map(Ack, claimed)) == []
    queue.purge_waiting()
    queue.purge_dead()
    queue.forget()
    assert (queue.counts().waiting, queue.counts().leased, queue.counts().dead) == (0, 2, 0)


def test_script_flush_before_every_verb_is_not_noticed(queue: WorkQueue, raw: RawQueue) -> None:
    """X04."""
    fill(queue, raw)
    send = queue.store.connection.execute

    def forgetful(commands: Foreign, key: Foreign) -> Foreign:
        if commands[0][0] == "EVALSHA":
            raw.client.script_flush()
        return send(commands, key)

    queue.store.connection.execute = forgetful  # type: ignore[method-assign]
    _drain(queue)


def test_two_calls_in_one_round_trip_survive_a_script_flush(queue: WorkQueue, raw: RawQueue) -> None:
    queue.enqueue(*some_messages(3))
    first = queue.claim()[0]
    raw.client.script_flush()

    lost, claimed = queue.store.run_together(
        [queue.calls.settle([Ack(first)], None), queue.calls.claim(1, None, AN_HOUR_MS)]
    )

    assert lost == []
    assert bodies(claimed) == [b"1"]


RESTRICTED = [
    *("reset", "on", ">secret", "~mqw:*", "&mqw:*"),
    *("-@all", "+@read", "+@write", "+@connection", "+eval", "+evalsha", "+time", "+spublish", "-@dangerous"),
]


@pytest.fixture
def restricted(server: RealServer) -> Iterator[Callable[..., WorkQueue]]:
    """Opens the queue as a user with those rules."""
    opened: list[Store] = []

    def open_as(*more_rules: str) -> WorkQueue:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "limited", *RESTRICTED, *more_rules)
        opened.append(open_store(server.tcp_url.replace("redis://", "redis://limited:secret@")))
        return WorkQueue("q", opened[-1])

    yield open_as
    for store in opened:
        store.close()
    with server.client() as client:
        client.execute_command("ACL", "DELUSER", "limited")


def test_a_user_restricted_to_our_keys_can_do_everything(
    restricted: Callable[..., WorkQueue], raw: RawQueue
) -> None:
    queue = restricted("~q")  # the verbs of RedisMQ look at the key of the bare name: scripts declare it
    fill(queue, raw)

    _drain(queue)


def test_a_user_restricted_to_our_keys_can_do_all_but_the_verbs_of_redismq(
    restricted: Callable[..., WorkQueue],
) -> None:
    queue = restricted()
    queue.enqueue(*some_messages(2), a_message(priority=3, due=After(1)))

    claimed = queue.claim(2)

    assert queue.settle(*map(Ack, claimed)) == []
    with pytest.raises(StoreRefused, match="NOPERM"):
        queue.push(b"x")


@pytest.mark.parametrize(
    "command",
    [("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("DEBUG", "SLEEP", "0"), ("GET", "foreign")],
)
def test_a_restricted_user_can_do_nothing_else(
    restricted: Callable[..., WorkQueue], command: tuple[str, ...]
) -> None:
    queue = restricted()

    with pytest.raises(StoreRefused, match="NOPERM"):
        queue.store.send([command], None)


def test_the_upkeep_of_a_queue_that_never_was_is_harmless(queue: WorkQueue, raw: RawQueue) -> None:
    for verb in (queue.reclaim, queue.promote, queue.expire, queue.forget, queue.purge_waiting, queue.counts):
        with suppress(StoreRefused):
            verb()
    queue.claim()

    assert raw.dump() == {}
