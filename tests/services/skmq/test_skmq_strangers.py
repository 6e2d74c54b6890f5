"""Programs that speak another protocol, speak too slowly, or never listen; and tokens of all kinds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.services.skmq.conftest import Connect
from tests.services.skmq.plain_sockets import Plain, a_name, frame
from tests.services.skmq.skmq_node import SkmqNode
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

STORED = {"status": "ack", "content": "Message enqueue successful"}
NO_TOKEN = {"status": "error", "content": "token required"}
SOON_S = 5.0
PINGS = 100_000
STRANGERS = 500


@pytest.fixture
def honest(node: SkmqNode, connect: Connect) -> Iterator[Plain]:
    """Somebody else, who is served promptly all the while, by the same process."""
    pid = node.child("gateway:skmq")["pid"]
    client = connect()
    yield client
    began = time.monotonic()
    assert client.ask(type="queue", appid=a_name("app"), msgid=a_name("m"), content="x") == STORED
    assert time.monotonic() - began < SOON_S
    assert node.child("gateway:skmq")["pid"] == pid


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize(
    "banner",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
    ],
    ids=lambda banner: repr(banner[:12]),
)
def test_another_protocol_is_told_so_and_ended(connect: Connect, banner: bytes) -> None:
    stranger = connect()

    stranger.send(banner)

    assert stranger.reply() == {"status": "error", "content": "malformed frame"}
    assert stranger.read() == b""


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize("type_", ["QUEUE", "Queue", "purge", "push", "resp", "queue "])
def test_types_that_nobody_knows_are_refused_and_change_nothing(connect: Connect, type_: str) -> None:
    client, message = connect(), a_name("m")

    reply = client.ask(type=type_, appid="a", msgid=message, content="x")

    assert reply == {"status": "error", "content": f"unknown type: {type_}"}
    assert client.ask(type="arrived", msgid=message) == {"status": "error", "content": ""}


@pytest.mark.usefixtures("honest")
def test_a_hundred_thousand_pings_in_one_go_are_answered(connect: Connect) -> None:
    client = connect()
    client.socket.settimeout(0)
    unsent, heard, pong = memoryview(b"ping\r\n\r\n" * PINGS), bytearray(), b"pong\r\n\r\n"

    def exchange() -> bool:
        nonlocal unsent
        with suppress(BlockingIOError):
            unsent = unsent[client.socket.send(unsent[:262_144]) :] if unsent else unsent
        with suppress(BlockingIOError):
            heard.extend(client.socket.recv(1_048_576))
        return len(heard) >= PINGS * len(pong)

    wait_until(exchange, "all pongs", 60)
    assert bytes(heard) == pong * PINGS


@pytest.mark.usefixtures("honest")
def test_who_does_not_read_is_not_read_from(connect: Connect) -> None:
    deaf = connect()
    deaf.socket.settimeout(1.0)

    with pytest.raises(TimeoutError):
        deaf.socket.sendall(b"ping\r\n\r\n" * 5_000_000)


def test_five_hundred_slow_strangers_hold_up_nobody(connect: Connect, honest: Plain) -> None:
    strangers = [connect() for _ in range(STRANGERS)]
    for each in strangers:
        each.send(b"type=que")

    for _ in range(20):
        assert honest.ask(type="queue", appid=a_name("app"), msgid=a_name("m"), content="x") == STORED
    for each in strangers[:10]:  # and whoever goes on in time is served, too
        each.send(b"ue\r\nappid=a\r\nmsgid=" + a_name("m").encode() + b"\r\n\r\n")
        assert each.reply() == STORED


def test_the_token_is_shown_first_in_time_and_exactly(server: RealServer) -> None:
    with SkmqNode(server.url, namespace="tokens", token="secret") as node:  # noqa: S106 - of this test
        for wrong in ("", "Secret", "secret ", "x" * 10_000):
            with Plain(node.address) as guesser:
                assert guesser.ask(type="auth", content=wrong) == NO_TOKEN
                assert guesser.read() == b""
        with Plain(node.address) as hasty:
            hasty.send(
                frame(type="queue", appid="a", msgid="m", content="x") + frame(type="auth", content="secret")
            )
            assert hasty.reply() == NO_TOKEN
            assert hasty.read() == b""
        with Plain(node.address) as silent, Plain(node.address) as friend:
            assert [friend.ask(type="auth", content="secret")["status"] for _ in range(2)] == ["ack", "ack"]
            assert silent.read() == b""  # its time is over
            assert friend.ask(type="arrived", msgid="m") == {"status": "error", "content": ""}
            assert friend.ask(type="queue", appid="a", msgid="m", content="x") == STORED
        assert "secret" not in node.log_path.read_text()
