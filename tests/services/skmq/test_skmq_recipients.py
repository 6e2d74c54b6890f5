"""Whom the gateway connects to and writes to: nobody who did not ask for it."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker.queues.skmq.client import SkmqClient
from mqworker.queues.skmq.listener import SkmqListener, SkmqPush
from tests.services.skmq.conftest import Connect
from tests.services.skmq.plain_sockets import Consumer, Plain, a_name, acknowledge
from tests.services.skmq.skmq_node import SkmqNode
from tests.support.certificates import Authority
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

DEADLINE_S = 30.0
ATTACK = "x\r\nSET pwned 1\r\nPING"
REGISTERED = {"status": "ack", "content": "Recipient register successful."}


@pytest.fixture
def foreign() -> Iterator[RealServer]:
    """Somebody else's server, on a port of this machine."""
    with RealServer() as running:
        yield running


def register(client: Plain, app: str, host: str, port: int) -> dict[str, str]:
    about = {"id": a_name("r"), "app_id": app, "host": host, "port": str(port)}
    reply: dict[str, str] = client.ask(type="register", content=json.dumps(about))
    return reply


def test_a_foreign_redis_is_not_written_to(connect: Connect, node: SkmqNode, foreign: RealServer) -> None:
    app, client = a_name("app"), connect()
    register(client, app, "127.0.0.1", foreign.port)

    for _ in range(3):
        length = str(len(ATTACK))
        client.ask(type="queue", appid=app, msgid=a_name("m"), length=length, content=ATTACK)

    wait_until(lambda: app in node.log() or "no pong" in node.log(), "the gateway gave it up", DEADLINE_S)
    with foreign.client() as raw:
        wait_until(lambda: raw.info("stats")["total_connections_received"] >= 2, "it was asked", DEADLINE_S)
        assert raw.exists("pwned") == 0
        assert "cmdstat_set" not in raw.info("commandstats")


@pytest.mark.parametrize("host", ["192.0.2.1", "localhost.example", "::ffff:192.0.2.1"])
def test_another_address_than_ones_own_is_refused(connect: Connect, host: str) -> None:
    reply = register(connect(), a_name("app"), host, 2_000)

    assert reply["status"] == "reject"
    assert "accepted is 127.0.0.1" in reply["content"]


def test_ports_of_the_system_and_of_our_servers_are_refused(connect: Connect, node: SkmqNode) -> None:
    replies = [register(connect(), a_name("app"), "127.0.0.1", port) for port in (25, 80, node.address[1])]

    assert [each["status"] for each in replies] == ["reject"] * 3
    assert "where a server of this node listens" in replies[2]["content"]


def test_a_listed_address_is_accepted_and_who_cannot_greet_may_be_let_off(server: RealServer) -> None:
    with (
        SkmqNode(server.url, namespace="listed", recipients="192.0.2.0/24", greeting="no") as node,
        Plain(node.address) as client,
        Consumer(acknowledge, says_pong=False) as consumer,
    ):
        app = a_name("app")
        assert register(client, app, "192.0.2.7", 2_000) == REGISTERED
        other = a_name("app")
        client.register(other, a_name("r"), consumer.port)
        client.ask(type="queue", appid=other, msgid=a_name("m"), content="x")

        assert consumer.next().fields["content"] == b"x"
        assert consumer.pings == 0


def test_a_recipient_greets_before_it_is_pushed_to_and_once(connect: Connect) -> None:
    app, client = a_name("app"), connect()
    with Consumer(acknowledge) as consumer:
        client.register(app, a_name("r"), consumer.port)
        for _ in range(20):
            client.ask(type="queue", appid=app, msgid=a_name("m"), content="x")
        for _ in range(20):
            consumer.next()

        assert consumer.pings == 1


def test_pushes_go_by_tls_where_that_is_asked_for(server: RealServer, tmp_path: Path) -> None:
    authority, pushed = Authority(tmp_path), list[SkmqPush]()
    own = authority.sign("recipient")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    options = {"push_tls": "yes", "push_tls_ca": authority.certificate, "retry_delay": 100}
    with (
        SkmqNode(server.url, namespace="pushtls", **options) as node,
        SkmqListener(pushed.append, tls=context) as listener,
        socket.create_server(("127.0.0.1", 0)) as plain,
        SkmqClient(*node.address) as client,
    ):
        plain.settimeout(DEADLINE_S)
        app = a_name("app")
        client.register(app, "secured", listener.host, listener.port)
        client.send(app, a_name("m"), b"secret")
        wait_until(lambda: len(pushed) == 1, "it is pushed by TLS", DEADLINE_S)
        other = a_name("app")
        client.register(other, "plain", "127.0.0.1", plain.getsockname()[1])
        client.send(other, a_name("m"), b"secret")
        connection, _ = plain.accept()
        with connection:
            heard = connection.recv(65_536)

    assert pushed[0].content == b"secret"
    assert heard[:1] == b"\x16"  # a handshake, and nothing of the message
    assert b"secret" not in heard
