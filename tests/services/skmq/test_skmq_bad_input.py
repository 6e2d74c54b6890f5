"""What strangers may try, and what happens while Redis is away: nothing is lost, nobody else notices."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.services.skmq.conftest import Connect
from tests.services.skmq.plain_sockets import Consumer, Plain, a_name, acknowledge, frame
from tests.services.skmq.skmq_node import SkmqNode
from tests.support.real_server import RealServer

STORED = {"status": "ack", "content": "Message enqueue successful"}
SOON_S = 5.0
"""Generous for a busy machine; a hang would be a minute."""


@pytest.fixture
def honest(connect: Connect) -> Iterator[Plain]:
    """Somebody else, who must be served promptly all the while."""
    client = connect()
    yield client
    began = time.monotonic()
    assert client.ask(type="queue", appid=a_name("app"), msgid=a_name("m"), content="x") == STORED
    assert time.monotonic() - began < SOON_S


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"type=queue\r\nlength=2147483647\r\ncontent=", "frame too large"),
        (b"type=queue\r\nlength=4294967295\r\ncontent=", "frame too large"),
        (b"type=queue\r\nlength=-1\r\ncontent=x\r\n\r\n", "malformed frame"),
        (b"colour=" + b"x" * 100_000, "frame too large"),
        (b"*1000000000\r\n", "malformed frame"),
    ],
)
def test_frames_without_measure_are_refused_before_they_are_there(
    connect: Connect, data: bytes, content: str
) -> None:
    client = connect()

    client.send(data)

    assert client.reply() == {"status": "error", "content": content}
    assert client.read() == b""


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize("msgid", [b"\x00", b"\xff\xfe", b"m" * 10_000, b"a\nb", b"\xed\xa0\x80"])
def test_ids_that_cannot_be_kept_are_rejected_by_name(connect: Connect, msgid: bytes) -> None:
    reply = connect().ask(type="queue", appid="a", msgid=msgid, content="x")

    assert reply["status"] == "reject"
    assert reply["content"].startswith("Invalid parameters: msgid is")


@pytest.mark.usefixtures("honest")
def test_an_end_of_line_in_a_field_starts_no_second_request(connect: Connect, server: RealServer) -> None:
    app = a_name("app")

    reply = connect().ask(
        type="queue", appid=app, msgid=a_name("m"), content="x\r\nmsgid=other\r\ntype=topic"
    )

    assert reply == STORED
    with server.client() as raw:
        assert raw.llen(f"mqw:{{skmq.{app}}}:ready") <= 1


@pytest.mark.usefixtures("honest")
def test_a_reset_in_the_middle_of_a_frame_leaves_nothing(connect: Connect) -> None:
    for _ in range(50):
        client = connect()
        client.send(b"type=queue\r\nappid=a\r\nmsgid=half\r\ncontent=x")
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()

    assert connect().ask(type="arrived", msgid="half") == {"status": "error", "content": ""}


@pytest.mark.usefixtures("honest")
def test_many_frames_at_once_are_all_answered(connect: Connect) -> None:
    client, app = connect(), a_name("app")
    ids = [a_name("m") for _ in range(3_000)]

    client.send(b"".join(frame(type="queue", appid=app, msgid=id_, content="x") for id_ in ids))

    assert [client.reply() for _ in ids] == [STORED] * len(ids)


def test_without_the_token_nothing_is_done(server: RealServer) -> None:
    with SkmqNode(server.url, namespace="token", token="secret") as node:  # noqa: S106 - of this test
        with Plain(node.address) as stranger:
            refused = stranger.ask(type="queue", appid="a", msgid="m", content="x")
            closed = stranger.read()
        with Plain(node.address) as guesser:
            wrong = guesser.ask(type="auth", content="secre")
        with Plain(node.address) as friend:
            welcome = friend.ask(type="auth", content="secret")
            stored = friend.ask(type="queue", appid="a", msgid="m", content="x")

    assert refused == wrong == {"status": "error", "content": "token required"}
    assert closed == b""
    assert welcome == {"status": "ack", "content": ""}
    assert stored == STORED


def test_while_redis_is_away_nothing_is_acknowledged_and_nothing_is_lost() -> None:
    app = a_name("app")
    with RealServer(aof="always") as server, SkmqNode(server.url, retry_delay=100) as node:
        with Plain(node.address) as client:
            before = client.ask(type="queue", appid=app, msgid="before", content="x")
            server.kill()
            client.send(frame(type="queue", appid=app, msgid="meanwhile", content="x"))
            text = client.read()  # a rejection, or the end where nobody can know
        server.start()
        with Plain(node.address) as client, Consumer(acknowledge) as consumer:
            after = _ask_until_stored(client, app)
            about = {"id": "r", "app_id": app, "host": "127.0.0.1", "port": str(consumer.port)}
            client.ask(type="register", content=json.dumps(about))
            pushed = {consumer.next().msgid, consumer.next().msgid}
            if pushed != {"before", "after"}:  # the one of which nobody could know was stored after all
                pushed |= {consumer.next().msgid}

    assert before == after == STORED
    assert text == b"" or b'"status":"reject","content":"Message enqueue failed"' in text
    assert pushed >= {"before", "after"}


def _ask_until_stored(client: Plain, app: str) -> dict[str, str]:
    while True:
        reply = client.ask(type="queue", appid=app, msgid="after", content="x")
        if reply["status"] == "ack":
            return reply | {"content": STORED["content"]}
