"""MQ.PUSH, MQ.POP, MQ.ACK, MQ.RECOVER and MQ.INSPECT over a real socket, as the document describes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hiredis
import pytest
import redis

from mqworker.queues.work.queue import WorkQueue
from tests.redis.test_rqueue import ListQueue, _order, _window
from tests.support.real_server import RealServer
from tests.support.resp_client import RespClient, packed

A_DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def client(redismq_port: int) -> Iterator[RespClient]:
    with RespClient(redismq_port) as connected:
        yield connected


@pytest.fixture
def name(queue: WorkQueue) -> str:
    return queue.name


def deliver_earlier(server: RealServer, queue: WorkQueue, item: bytes, ms: int) -> None:
    """As if an element had been delivered so long ago."""
    key = queue.calls.keys.named("popped")
    with server.client() as raw:
        text = raw.hget(key, item)
        assert isinstance(text, bytes)
        at_ms, rest = text.split(b" ", 1)
        raw.hset(key, item, b"%d %b" % (int(at_ms) - ms, rest))  # type: ignore[arg-type]


def is_refusal(reply: Any, start: str) -> bool:  # noqa: ANN401 - whatever came
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith(start)


def test_push_answers_with_rising_ids_of_one_millisecond(client: RespClient, name: str) -> None:
    """R01."""
    ids = client.say("MQ.PUSH", name, "a", "b", "c")

    assert [item.partition(b"-")[2] for item in ids] == [b"1", b"2", b"3"]
    assert len({item.partition(b"-")[0] for item in ids}) == 1
    assert client.say("mq.inspect", name, 0, 10) == [[ids[0], b"a"], [ids[1], b"b"], [ids[2], b"c"]]


def test_pop_delivers_the_oldest(client: RespClient, name: str) -> None:
    """R02."""
    ids = client.say("MQ.PUSH", name, "a", "b", "c")

    assert client.say("MQ.POP", 2, name) == [[ids[0], b"a"], [ids[1], b"b"]]
    assert client.say("MQ.INSPECT", name, 0, 10) == [[ids[2], b"c"]]
    pending = client.say("MQ.INSPECT", name, "pending", 0, 10)
    assert [(item, element, times) for item, element, _, _, times in pending] == [
        (ids[0], b"a", 1),
        (ids[1], b"b", 1),
    ]


def test_pop_gives_fewer_when_there_are_fewer(client: RespClient, name: str) -> None:
    """R03."""
    assert client.say("MQ.POP", 10, name) is None
    ids = client.say("MQ.PUSH", name, "a")

    assert client.say("MQ.POP", 10, name) == [[ids[0], b"a"]]
    assert client.say("MQ.POP", 10, name) == []


def test_ack_answers_with_what_it_really_removed(client: RespClient, name: str) -> None:
    """R04, R05."""
    assert client.say("MQ.ACK", name, "1-1") is None
    first, _, third = client.say("MQ.PUSH", name, "a", "b", "c")
    client.say("MQ.POP", 2, name)

    assert client.say("MQ.ACK", name, first, first, "9-9", "bogus", b"\xff\x00", third) == [first]
    assert client.say("MQ.POP", 1, name) == [[third, b"c"]]


def test_recover_delivers_again_from_the_head(
    client: RespClient, queue: WorkQueue, gateway_server: RealServer
) -> None:
    """R06, R08."""
    assert client.say("MQ.RECOVER", queue.name, 1, 0) is None
    ids = client.say("MQ.PUSH", queue.name, "a", "b", "c", "d")
    client.say("MQ.POP", 4, queue.name)
    for item in ids[:3]:
        deliver_earlier(gateway_server, queue, item, ms=60_000)

    assert client.say("MQ.RECOVER", queue.name, 0, 0) == []
    assert client.say("MQ.RECOVER", queue.name, 5, 3_600_000) == []
    assert client.say("MQ.RECOVER", queue.name, 2, 50_000) == [[ids[0], b"a"], [ids[1], b"b"]]
    pending = client.say("MQ.INSPECT", queue.name, "PENDING", 0, 9)
    assert [(item, times) for item, _, _, _, times in pending] == [
        (ids[2], 1),
        (ids[3], 1),
        (ids[0], 2),
        (ids[1], 2),
    ]


def test_inspect_counts_from_the_end_and_does_not_clamp(client: RespClient, name: str) -> None:
    """R10, R12."""
    assert is_refusal(client.say("MQ.INSPECT", name, 0, 1), "EMPTYKEY")
    ids = client.say("MQ.PUSH", name, *"abcde")

    assert client.say("MQ.INSPECT", name, -2, 2) == [[ids[3], b"d"], [ids[4], b"e"]]
    assert client.say("MQ.INSPECT", name, -6, 1) == []
    assert client.say("MQ.INSPECT", name, 5, 1) == []
    assert is_refusal(client.say("MQ.INSPECT", name, 0, 0), "ERR usage")
    assert is_refusal(client.say("MQ.INSPECT", name, "x", 1), "ERR usage")
    client.say("MQ.POP", 5, name)
    client.say("MQ.ACK", name, *ids)
    assert client.say("MQ.INSPECT", name, 1, 1) == []
    assert client.say("MQ.INSPECT", name, "PENDING", 3, 1) == []


def test_a_key_of_another_type_is_refused_and_left_alone(
    client: RespClient, name: str, gateway_server: RealServer
) -> None:
    """R11."""
    with gateway_server.client() as raw:
        raw.set(name, "mine")
        for command in (
            ["MQ.PUSH", name, "x"],
            ["MQ.POP", 1, name],
            ["MQ.ACK", name, "1-1"],
            ["MQ.RECOVER", name, 1, 0],
            ["MQ.INSPECT", name, 0, 1],
            ["MQ.INSPECT", name, "what", "ever"],
            ["MQ.RECOVER", name, "x"],
        ):
            assert is_refusal(client.say(*command), "WRONGTYPE"), command
        assert is_refusal(client.say("MQ.POP", 0, name), "ERR count must be >= 1")
        assert raw.get(name) == b"mine"


def test_ids_go_on_rising_after_everything_was_acknowledged(client: RespClient, name: str) -> None:
    """R13."""
    (first,) = client.say("MQ.PUSH", name, "a")
    client.say("MQ.POP", 1, name)
    client.say("MQ.ACK", name, first)

    (second,) = client.say("MQ.PUSH", name, "b")

    assert _order(second.decode()) > _order(first.decode())


@pytest.mark.parametrize(
    "element", [b"", b"\x00", b"a\r\nb", b"x" * 1_048_576], ids=["none", "0", "crlf", "1M"]
)
def test_elements_come_back_as_they_were(client: RespClient, name: str, element: bytes) -> None:
    """R14."""
    client.say("MQ.PUSH", name, element)

    assert client.say("MQ.INSPECT", name, 0, 1)[0][1] == element
    assert client.say("MQ.POP", 1, name)[0][1] == element


def test_thousands_of_random_operations_answer_as_two_lists_would(client: RespClient, name: str) -> None:
    """R15, pipelined: an operation is sent before the replies to those before it are there."""
    chance, model, asked = random.Random(15), ListQueue(), 0  # noqa: S311 - a story, no secret
    model.undelivered = [(client.say("MQ.PUSH", name, "first")[0].decode(), b"first")]

    while asked < 5_000:
        counts = [chance.randint(1, 4) for _ in range(chance.randint(1, 20))]
        given = [[chance.randbytes(chance.randrange(20)) for _ in range(count)] for count in counts]
        start, count = chance.randint(-8, 8), chance.randint(1, 6)
        taken = [chance.randint(1, 4) for _ in range(chance.randint(1, 30))]
        client.socket.sendall(b"".join(packed("MQ.PUSH", name, *some) for some in given))
        client.send("MQ.INSPECT", name, start, count)
        client.socket.sendall(b"".join(packed("MQ.POP", wanted, name) for wanted in taken))
        client.send("MQ.RECOVER", name, 2, 0)
        client.send("MQ.INSPECT", name, "PENDING", start, count)
        asked += len(given) + len(taken) + 3

        for some in given:
            model.undelivered += zip([item.decode() for item in client.hear()], some, strict=True)
        assert _pairs(client.hear()) == _window(list(model.undelivered), start, count)
        for wanted in taken:
            assert _pairs(client.hear()) == model.pop(wanted)
        assert _pairs(client.hear()) == model.recover(2)
        pending = [[item.decode(), element, times] for item, element, _, _, times in client.hear()]
        assert pending == _window(list(model.delivered), start, count)
        ids = [str(entry[0]) for entry in model.delivered[: chance.randint(1, 40)]] + ["1-1"]
        assert [item.decode() for item in client.say("MQ.ACK", name, *ids)] == model.ack(ids)


def _pairs(reply: list[list[bytes]]) -> list[tuple[str, bytes]]:
    return [(item.decode(), element) for item, element in reply]


def test_pending_fields_have_their_types(client: RespClient, name: str) -> None:
    """R16."""
    client.say("MQ.PUSH", name, "a")
    client.say("MQ.POP", 1, name)

    client.send("MQ.INSPECT", name, "PENDING", 0, 1)
    ((item, element, at_ms, elapsed_ms, times),) = client.hear()

    assert [type(value) for value in (item, element, at_ms, elapsed_ms, times)] == [
        bytes,
        bytes,
        int,
        int,
        int,
    ]
    assert times == 1
    assert 0 <= elapsed_ms < 30_000


def test_four_clients_popping_at_once_never_get_the_same(redismq_port: int, name: str) -> None:
    """R17."""
    with RespClient(redismq_port) as client:
        client.socket.sendall(b"".join(packed("MQ.PUSH", name, *["x"] * 100) for _ in range(100)))
        ids = [item for _ in range(100) for item in client.hear()]

    def pop_until_empty(_: int) -> list[bytes]:
        mine: list[bytes] = []
        with RespClient(redismq_port) as client:
            while popped := client.say("MQ.POP", 37, name):
                mine += [item for item, _ in popped]
        return mine

    with ThreadPoolExecutor(4) as threads:
        shares = list(threads.map(pop_until_empty, range(4)))

    assert sorted(item for share in shares for item in share) == sorted(ids)
    assert len(ids) == 10_000


def test_delivered_elements_are_never_redelivered_by_themselves(
    client: RespClient, queue: WorkQueue, gateway_server: RealServer
) -> None:
    """R18."""
    (item,) = client.say("MQ.PUSH", queue.name, "a")
    client.say("MQ.POP", 1, queue.name)
    deliver_earlier(gateway_server, queue, item, ms=A_DAY_MS)
    queue.reclaim()
    queue.promote()

    assert client.say("MQ.POP", 1, queue.name) == []


def test_pop_takes_from_several_keys_in_order(client: RespClient, name: str) -> None:
    assert client.say("MQ.POP", 3, f"{name}.a", f"{name}.b") is None
    client.say("MQ.PUSH", f"{name}.b", "b1", "b2", "b3")
    client.say("MQ.PUSH", f"{name}.a", "a1")

    popped = client.say("MQ.POP", 3, f"{name}.a", f"{name}.b")

    assert [element for _, element in popped] == [b"a1", b"b1", b"b2"]


@pytest.mark.parametrize(
    "words",
    [
        ["MQ.PUSH", "q"],
        ["MQ.PUSH"],
        ["MQ.POP", "1"],
        ["MQ.POP", "x", "q"],
        ["MQ.POP", "1_0", "q"],
        ["MQ.POP", "1", "BLOCK", "-1", "q"],
        ["MQ.POP", "1", "BLOCK", "x", "q"],
        ["MQ.POP", "1", "BLOCK", "5"],
        ["MQ.ACK", "q"],
        ["MQ.RECOVER", "q"],
        ["MQ.RECOVER", "q", "1"],
        ["MQ.INSPECT", "q"],
        ["MQ.NOTHING", "q"],
        ["MQ.PUSH", "a\0b", "x"],
        ["MQ.PUSH", "{x}" * 20, "x"],
        ["MQ.PUSH", "a\nb", "x"],
        ["MQ.PUSH", "x" * 129, "x"],
        ["MQ.PUSH", "many", *["x"] * 1_001],
        ["SELECT", "1"],
        ["HELLO", "4"],
        ["FLUSHALL"],
    ],
)
def test_a_wrong_command_is_refused_and_the_next_one_served(client: RespClient, words: list[str]) -> None:
    client.send(*words)
    client.send("PING")

    assert isinstance(client.hear(), hiredis.ReplyError)
    assert client.hear() == b"PONG"


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_works_unmodified(redismq_port: int, name: str, protocol: int) -> None:
    with redis.Redis(port=redismq_port, protocol=protocol, client_name="shop") as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(500):
            pipeline.execute_command("MQ.PUSH", name, str(number))
        pipeline.execute_command("MQ.POP", 1, "nobody.pushed.here")
        *ids, nothing = pipeline.execute()

        assert nothing is None
        assert len({item for (item,) in ids}) == 500
        assert client.ping()
        assert client.echo("x") == b"x"
        assert client.client_getname() in {b"shop", "shop"}
        assert client.client_id() > 0
        assert client.execute_command("MQ.POP", 2, name) == [[ids[0][0], b"0"], [ids[1][0], b"1"]]
        with pytest.raises(redis.ResponseError, match="count must be >= 1"):
            client.execute_command("MQ.POP", 0, name)


def test_pushes_in_a_row_are_refused_one_by_one(client: RespClient, queue: WorkQueue) -> None:
    queue.push(b"0")
    queue.limit(3)
    elements = [b"1", b"2", b"3"]

    client.socket.sendall(b"".join(packed("MQ.PUSH", queue.name, each) for each in elements))
    client.socket.sendall(packed("MQ.PUSH", queue.name, *[b"x"] * 1_001) + packed("MQ.POP", 9, queue.name))
    replies = [client.hear() for _ in range(5)]

    assert [len(reply) for reply in replies[:2]] == [1, 1]
    assert is_refusal(replies[2], "OOM")
    assert is_refusal(replies[3], "ERR push takes at most")
    assert [element for _, element in replies[4]] == [b"0", b"1", b"2"]


def test_words_typed_into_netcat_are_commands(client: RespClient, name: str) -> None:
    client.socket.sendall(b'PING\r\n\r\nmq.push %b "a b" \'c\' "\\n"\nECHO hello\r\nQUIT\r\n' % name.encode())

    assert client.hear() == b"PONG"
    assert len(client.hear()) == 3
    assert client.hear() == b"hello"
    assert client.hear() == b"OK"
    assert client.is_closed_by_peer()
