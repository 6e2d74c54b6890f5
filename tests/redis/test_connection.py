"""The sync connection on a healthy server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
import redis

from mqworker.errors import StoreRefused, StoreUnavailable
from mqworker.store.command import Command, Reply, ReplyError
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import Connection, open_connection
from tests.support.real_server import RealServer

NAME: Command = ("CLIENT", "ID")


def number_of_clients(server: RealServer) -> int:
    with server.client() as client:
        return sum(1 for entry in client.client_list() if entry["name"] == "mqw-test")


def test_replies_are_raw_values(connection: Connection) -> None:
    replies = connection.execute(
        [
            ("SET", "k", b"\xff\x00"),
            ("GET", "k"),
            ("RPUSH", "l", 1, 2.5),
            ("LRANGE", "l", 0, -1),
            ("GET", "x"),
        ],
        "k",
    )

    assert replies == [b"OK", b"\xff\x00", 2, [b"1", b"2.5"], None]


def test_all_commands_travel_in_one_write(server: RealServer, connection: Connection) -> None:
    connection.execute([("PING",)], None)
    with server.client() as client:
        before = client.info("stats")["total_reads_processed"]
        connection.execute([("INCR", "n")] * 50, "n")
        after = client.info("stats")["total_reads_processed"]

    assert after - before == 2  # one for the batch, one for the second INFO


def test_one_link_serves_consecutive_calls(connection: Connection) -> None:
    first, second = connection.execute([NAME], None), connection.execute([NAME], None)

    assert first == second


def test_large_values_travel_both_ways(connection: Connection) -> None:
    body = os.urandom(3_000_000)

    replies = connection.execute([("SET", "big", body), ("GET", "big")], "big")

    assert replies == [b"OK", body]


def test_unknown_script_is_an_answer_and_the_rest_of_the_batch_counts(connection: Connection) -> None:
    replies = connection.execute([("INCR", "n"), ("EVALSHA", "0" * 40, 0), ("INCR", "n")], "n")

    assert replies[0::2] == [1, 2]
    assert isinstance(replies[1], ReplyError)
    assert replies[1].code == "NOSCRIPT"


def test_refusal_of_our_own_script_is_an_answer(connection: Connection) -> None:
    replies = connection.execute([("EVAL", "return redis.error_reply('MQW_FULL 7 of 7')", 0)], None)

    assert replies == [ReplyError("MQW_FULL", "7 of 7")]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("LPUSH", "text", "x"), "WRONGTYPE"),
        (("NOSUCH", "secret argument"), "unknown command"),
        (("EVAL", "return redis.call('LPUSH', KEYS[1], 1)", 1, "text"), "WRONGTYPE"),
        (("EVAL", "error('bang')", 0), "bang"),
    ],
)
def test_refused_command_raises_after_all_replies_were_read(
    connection: Connection, command: Command, text: str
) -> None:
    connection.execute([("SET", "text", "x")], "text")

    with pytest.raises(StoreRefused, match=text) as raised:
        connection.execute([command, ("SET", "after", 1)], "text")

    assert "secret argument" not in str(raised.value)
    assert connection.execute([("GET", "after")], "after") == [b"1"]


def test_argument_of_a_wrong_type_is_refused_before_anything_is_sent(connection: Connection) -> None:
    with pytest.raises(TypeError):
        connection.execute([("SET", "a", 1), ("SET", "k", None)], "k")  # type: ignore[list-item]

    assert connection.execute([("EXISTS", "a")], "a") == [0]


def test_threads_share_a_connection_without_mixing_replies(connection: Connection) -> None:
    wrong: list[list[Reply]] = []

    def echo(word: str) -> None:
        for number in range(200):
            replies = connection.execute([("ECHO", f"{word}{number}"), ("ECHO", word)], None)
            if replies != [f"{word}{number}".encode(), word.encode()]:
                wrong.append(replies)

    threads = [threading.Thread(target=echo, args=(f"t{index}-",)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def in_child(action: Callable[[], object]) -> str:
    """Run `action` in a forked child; its result as text."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.write(writing, repr(action()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as result:
        text = result.read()
    os.wait()
    return text


def test_forked_child_uses_a_link_of_its_own_and_leaves_the_parents_alone(connection: Connection) -> None:
    before = connection.execute([NAME], None)

    def use_and_close() -> list[Reply]:
        replies = connection.execute([NAME], None)
        connection.close()
        return replies

    in_the_child = in_child(use_and_close)

    assert in_the_child.startswith("[")
    assert in_the_child != repr(before)
    assert connection.execute([NAME], None) == before


def test_close_ends_the_links(server: RealServer, connection: Connection) -> None:
    connection.execute([("PING",)], None)
    assert number_of_clients(server) == 1

    connection.close()

    assert number_of_clients(server) == 0


def test_each_primary_names_the_server(server: RealServer, connection: Connection) -> None:
    assert connection.each_primary([("PING",)]) == {f"unix://{server.socket_path}?db=0": [b"PONG"]}


def test_database_and_tcp_of_the_url_are_used(
    server: RealServer, connect: Callable[[str], Connection]
) -> None:
    connect(f"{server.tcp_url}/3").execute([("SET", "k", "three")], "k")

    with redis.Redis(port=server.port, db=3) as client:
        assert client.get("k") == b"three"


def test_absent_server_is_unavailable_and_nothing_was_executed() -> None:
    absent = open_connection(
        parse_address("unix:///nowhere/s.sock"), connect_timeout_s=1, read_timeout_s=1, client_name=None
    )

    with pytest.raises(StoreUnavailable, match="/nowhere/s") as raised:
        absent.execute([("PING",)], None)

    assert not raised.value.maybe_executed
