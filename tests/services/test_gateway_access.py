"""Who may come in at the three gateways, and do what: strangers, users, certificates.

Strangers are held against a well-behaved client that is served all the while.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest

from mqworker.queues.skmq.client import SkmqClient
from mqworker_services.gateways.gomq.client import GomqClient
from mqworker_services.gateways.gomq.client_calls import GomqRefused
from tests.services.skmq.plain_sockets import Plain, a_name, frame
from tests.support.certificates import Authority
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer, free_port
from tests.support.resp_client import RespClient, packed

NAMES = ("redismq", "skmq", "gomq")
TOKENS = {name: f"{name}-token-of-this-test" for name in ("all", "shop", "other")}
STORED = {"status": "ack", "content": "Message enqueue successful"}
STRANGERS = 20
HANDSHAKE_S = 5.0
DEADLINE_S = 30.0


def users_file(folder: Path) -> Path:
    digests = {name: hashlib.sha256(token.encode()).hexdigest() for name, token in TOKENS.items()}
    path = folder / "users.toml"
    path.write_text(
        f"""
[users.all]
token_sha256 = "{digests["all"]}"
publish = ["*"]
consume = ["*"]
inspect = ["*"]

[users.shop]
token_sha256 = "{digests["shop"]}"
certificate = "shop.example"
publish = ["shop.*"]
consume = ["shop.in"]

[users.other]
token_sha256 = "{digests["other"]}"
publish = ["other.*"]
consume = ["other.*"]
"""
    )
    return path


class Gateways:
    """A node with all three, and where they listen."""

    def __init__(self, redis_url: str, **settings: object) -> None:
        self.port_by_name = {name: free_port() for name in NAMES}
        values = {
            "gateways": ",".join(f"{name}=127.0.0.1:{port}" for name, port in self.port_by_name.items()),
            "log_format": "json",
            **settings,
        }
        self.node = RealNode(redis_url, settings={f"MQWORKER_{k.upper()}": str(v) for k, v in values.items()})

    def connect(self, name: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port_by_name[name]), DEADLINE_S)

    def resp(self, user: str) -> RespClient:
        client = RespClient(self.port_by_name["redismq"])
        assert client.say("AUTH", TOKENS[user]) == b"OK"
        return client

    def skmq(self, user: str) -> Plain:
        client = Plain(("127.0.0.1", self.port_by_name["skmq"]))
        assert client.ask(type="auth", content=TOKENS[user])["status"] == "ack"
        return client

    def gomq(self, user: str) -> GomqClient:
        return GomqClient(f"127.0.0.1:{self.port_by_name['gomq']}", token=TOKENS[user])


@pytest.fixture(scope="module")
def gateways(gateway_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    """Three gateways with users, on loopback and without TLS."""
    path = users_file(tmp_path_factory.mktemp("users"))
    found = Gateways(gateway_server.url, gateway_users_file=path)
    with found.node:
        yield found


def serve_each(gateways: Gateways) -> None:
    """A client of each gateway is served at once."""
    began = time.monotonic()
    with gateways.resp("all") as resp, gateways.skmq("all") as skmq, gateways.gomq("all") as gomq:
        assert len(resp.say("MQ.PUSH", a_name("honest"), "x")) == 1
        assert skmq.ask(type="queue", appid=a_name("app"), msgid=a_name("m"), content="x") == STORED
        gomq.publish("HONEST", b"x")
    assert time.monotonic() - began < HANDSHAKE_S


def is_ended(connection: socket.socket, within_s: float) -> bool:
    connection.settimeout(within_s)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


# Before anybody is known


@pytest.mark.parametrize("name", NAMES)
def test_who_says_nothing_is_cut_off_in_time(gateways: Gateways, name: str) -> None:
    began = time.monotonic()
    with gateways.connect(name) as silent:
        assert is_ended(silent, DEADLINE_S)

    assert HANDSHAKE_S - 1 < time.monotonic() - began < HANDSHAKE_S * 3


DRIPS = {
    "redismq": b"*2\r\n$4\r\nAUTH\r\n$9000\r\n" + b"x" * 9_000,
    "skmq": b"ping\r\n\r\n" * 1_000,
    "gomq": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" * 1_000,
}


@pytest.mark.parametrize("name", NAMES)
def test_who_says_a_byte_now_and_then_buys_no_time(gateways: Gateways, name: str) -> None:
    began = time.monotonic()
    with suppress(OSError), gateways.connect(name) as slow:
        slow.settimeout(0.2)
        for byte in DRIPS[name]:
            slow.sendall(bytes([byte]))
            with suppress(TimeoutError):
                if not slow.recv(65_536):
                    break
            assert time.monotonic() - began < HANDSHAKE_S * 3
    assert time.monotonic() - began < HANDSHAKE_S * 3


@pytest.mark.parametrize("name", NAMES)
def test_one_address_has_few_strangers_and_any_number_of_users(gateways: Gateways, name: str) -> None:
    with ExitStack() as stack:
        users = [stack.enter_context(gateways.resp("all")) for _ in range(STRANGERS * 2)]
        strangers = [stack.enter_context(gateways.connect(name)) for _ in range(STRANGERS + 5)]

        def ended() -> int:
            return sum(is_ended(each, 0.01) for each in strangers)

        wait_until(lambda: ended() >= 5, "those that are too many are ended", HANDSHAKE_S - 1)
        assert ended() <= 6  # a moment may pass until the client before us is known to have left
        assert all(each.say("PING") == b"PONG" for each in users)


@pytest.mark.parametrize(
    "sent",
    [
        b"*11\r\n" + b"$4\r\nPING\r\n" * 11,
        b"*2\r\n$4\r\nAUTH\r\n$16385\r\n" + b"x" * 16_385,
        b"AUTH " + b"x" * 17_000 + b"\r\n",
        packed("PING") * 1_300,
    ],
    ids=["arguments", "bytes of one", "a line", "bytes in all"],
)
def test_a_stranger_says_little_to_redismq(gateways: Gateways, sent: bytes) -> None:
    began = time.monotonic()
    with gateways.connect("redismq") as stranger:
        with suppress(OSError):
            stranger.sendall(sent)
        assert is_ended(stranger, DEADLINE_S)

    assert time.monotonic() - began < HANDSHAKE_S - 1


@pytest.mark.parametrize(
    "sent",
    [b"type=auth\r\ncontent=" + b"x" * 17_000, b"ping\r\n\r\n" * 3_000, b"length=20000\r\ncontent="],
    ids=["a frame", "pings", "a promise"],
)
def test_a_stranger_says_little_to_skmq(gateways: Gateways, sent: bytes) -> None:
    began = time.monotonic()
    with gateways.connect("skmq") as stranger:
        with suppress(OSError):
            stranger.sendall(sent)
        assert is_ended(stranger, DEADLINE_S)

    assert time.monotonic() - began < HANDSHAKE_S - 1


def test_what_comes_in_one_piece_with_the_token_is_not_a_strangers(gateways: Gateways) -> None:
    queue, elements = a_name("many"), [b"x" * 2_000] * 50
    with RespClient(gateways.port_by_name["redismq"]) as client:
        client.socket.sendall(packed("AUTH", "all", TOKENS["all"]) + packed("MQ.PUSH", queue, *elements))
        heard = [client.hear(), client.hear()]
    with Plain(("127.0.0.1", gateways.port_by_name["skmq"])) as plain:
        large = frame(type="queue", appid="big", msgid=a_name("m"), content="y" * 40_000)
        plain.send(frame(type="auth", content=TOKENS["all"]) + large)
        replies = [plain.reply(), plain.reply()]

    assert heard[0] == b"OK"
    assert len(heard[1]) == 50
    assert [each["status"] for each in replies] == ["ack", "ack"]


def test_a_strangers_call_of_gomq_is_refused_before_its_body_is_there(gateways: Gateways) -> None:
    """The body is never sent: whoever waits for it does not answer."""
    channel = grpc.insecure_channel(f"127.0.0.1:{gateways.port_by_name['gomq']}")
    call = channel.stream_unary("/routeguide.RouteGuide/Publish")
    stop = iter(lambda: time.sleep(DEADLINE_S) or b"", b"")

    with pytest.raises(grpc.RpcError) as refused:
        call(stop, metadata=(("authorization", "Bearer wrong"),), timeout=DEADLINE_S)
    channel.close()

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    serve_each(gateways)


# Users


def test_redismq_keeps_a_user_to_its_queues(gateways: Gateways) -> None:
    with gateways.resp("shop") as shop:
        allowed = [
            shop.say("MQ.PUSH", "shop.in", "x"),
            shop.say("MQ.POP", 1, "shop.in"),
        ]
        refused = [
            shop.say("MQ.PUSH", "mail", "x"),
            shop.say("MQ.POP", 1, "shop.out"),
            shop.say("MQ.POP", 1, "BLOCK", 10, "shop.in", "mail"),
            shop.say("MQ.ACK", "mail", "1-1"),
            shop.say("MQ.RECOVER", "mail", 1, 1),
            shop.say("MQ.RECOVER", "mail", "x", 1),
            shop.say("MQ.INSPECT", "shop.in", 0, 1),
        ]
        shop.socket.sendall(packed("MQ.PUSH", "shop.a", "1") * 3 + packed("MQ.PUSH", "mail", "2"))
        pipelined = [shop.hear() for _ in range(4)]

    assert all(isinstance(each, list) for each in allowed)
    assert [str(each)[:17] for each in refused] == ["NOPERM user shop "] * 7
    assert [isinstance(each, list) for each in pipelined] == [True, True, True, False]


def test_redismq_asks_for_the_token_of_the_user_who_is_named(gateways: Gateways) -> None:
    with RespClient(gateways.port_by_name["redismq"]) as client:
        wrong = client.say("AUTH", "all", TOKENS["shop"])
        right = client.say("HELLO", "2", "AUTH", "shop", TOKENS["shop"])
        then = client.say("MQ.PUSH", "mail", "x")
        client.say("RESET")
        after = client.say("MQ.PUSH", "shop.in", "x")

    assert str(wrong).startswith("WRONGPASS")
    assert b"server" in right
    assert str(then).startswith("NOPERM")
    assert str(after).startswith("NOAUTH")


def test_gomq_keeps_a_user_to_its_topics(gateways: Gateways) -> None:
    def status_of(call: Callable[[], object]) -> str:
        try:
            call()
        except GomqRefused as refused:
            return refused.status
        return "OK"

    with gateways.gomq("shop") as shop:
        found = [
            status_of(lambda: shop.publish("shop.a", b"x")),
            status_of(lambda: shop.subscribe("shop.in", "c")),
            status_of(lambda: shop.observe("c")),
            status_of(lambda: shop.publish("mail", b"x")),
            status_of(lambda: shop.subscribe("shop.a", "c")),
            status_of(lambda: shop.unsubscribe("mail", "c")),
        ]

    assert found == ["OK"] * 3 + ["PERMISSION_DENIED"] * 3


def test_skmq_keeps_a_user_to_its_apps(gateways: Gateways) -> None:
    recipient, message = a_name("r"), a_name("m")
    with gateways.skmq("shop") as shop, gateways.skmq("other") as other, gateways.skmq("all") as admin:
        stored = shop.ask(type="queue", appid="shop.in", msgid=message, content="x")
        refused = shop.ask(type="queue", appid="mail", msgid=a_name("m"), content="x")
        shop.register("shop.in", recipient, free_port())
        not_mine = shop.register("mail", a_name("r"), free_port())
        stolen = other.register("other.a", recipient, free_port())
        acked = other.ask(type="ack", msgid=message)
        still = admin.ask(type="queue", appid="shop.in", msgid=message, content="x")

    assert stored == STORED
    assert refused == {"status": "reject", "content": "user shop may not publish on app mail"}
    assert not_mine == {"status": "reject", "content": "user shop may not consume on app mail"}
    assert stolen == {"status": "reject", "content": "Recipient register failed."}
    assert acked == {"status": "ack", "content": ""}  # as for a message that nobody knows
    assert still["content"].startswith("message already exists")


def test_who_is_pushed_to_says_nothing_but_what_became_of_it(gateways: Gateways) -> None:
    """A recipient has shown no token on the connection that we opened."""
    app, message, stray = "shop.in", a_name("m"), a_name("stray")
    with socket.create_server(("127.0.0.1", 0)) as listener, gateways.skmq("all") as admin:
        listener.settimeout(DEADLINE_S)
        admin.register(app, a_name("r"), listener.getsockname()[1], weight=1_000)
        admin.ask(type="topic", appid=app, msgid=message, content="x")
        said = []
        while not said:
            connection, _ = listener.accept()
            with connection:
                data = connection.recv(65_536)
                if data.startswith(b"ping"):
                    connection.sendall(b"pong\r\n\r\n")
                    continue
                connection.sendall(frame(type="queue", appid=app, msgid=stray, content="y"))
                said.append(connection.recv(65_536))
                connection.sendall(frame(type="ack", msgid=message))
                said.append(connection.recv(65_536))
        unknown = admin.ask(type="arrived", msgid=stray)

    assert b"token required" in said[0]
    assert b'"ack"' in said[1]
    assert unknown == {"status": "error", "content": ""}


# Certificates, sockets and files


def test_client_certificates_say_who_comes(gateway_server: RealServer, tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    own, shop, forged = authority.sign("gateway"), authority.sign("shop.example"), foreign.sign("forged")
    found = Gateways(
        gateway_server.url,
        gateway_users_file=users_file(tmp_path),
        gateway_tls_certificate=own.certificate,
        gateway_tls_key=own.key,
        gateway_tls_client_ca=authority.certificate,
    )
    context = authority.client_context(shop)

    def secured(name: str) -> ssl.SSLSocket:
        return context.wrap_socket(found.connect(name), server_hostname="127.0.0.1")

    with found.node:
        with secured("redismq") as client:
            client.sendall(packed("MQ.PUSH", "shop.a", "x") + packed("MQ.PUSH", "mail", "x"))
            heard = b""
            while heard.count(b"\r\n") < 4:
                heard += client.recv(65_536)
        with SkmqClient("127.0.0.1", found.port_by_name["skmq"], tls=context) as skmq:
            assert skmq.send("shop.a", a_name("m"), b"x").status == "ack"
        credentials = grpc.ssl_channel_credentials(
            authority.certificate.read_bytes(), shop.key.read_bytes(), shop.certificate.read_bytes()
        )
        with GomqClient(f"127.0.0.1:{found.port_by_name['gomq']}", credentials=credentials) as gomq:
            gomq.publish("shop.a", b"x")
            with pytest.raises(GomqRefused):
                gomq.publish("mail", b"x")
        for name in NAMES:
            for bad in (authority.client_context(), authority.client_context(forged)):
                with (
                    suppress(OSError),
                    bad.wrap_socket(found.connect(name), server_hostname="127.0.0.1") as stranger,
                ):
                    stranger.settimeout(DEADLINE_S)
                    stranger.sendall(b"x")
                    assert stranger.recv(1) == b"", name
        with ExitStack() as stack:
            silent = [stack.enter_context(found.connect(name)) for name in NAMES]
            began = time.monotonic()
            assert all(is_ended(each, DEADLINE_S) for each in silent)
            assert time.monotonic() - began < HANDSHAKE_S * 3

    assert b"NOPERM user shop may not publish on queue 'mail'" in heard


def test_unix_sockets_are_for_one_user_whatever_the_umask(gateway_server: RealServer, tmp_path: Path) -> None:
    places = ",".join(f"{name}=unix:{tmp_path / name}" for name in NAMES)
    before = os.umask(0)
    try:
        with RealNode(gateway_server.url, settings={"MQWORKER_GATEWAYS": places}):
            modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in NAMES}
    finally:
        os.umask(before)

    assert modes == dict.fromkeys(NAMES, 0o600)


def test_a_token_from_a_file_lets_in(gateway_server: RealServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("from-a-file\n")
    found = Gateways(gateway_server.url, gateway_token_file=path)
    with found.node, RespClient(found.port_by_name["redismq"]) as client:
        assert client.say("AUTH", "from-a-file") == b"OK"
        log = found.node.log()

    assert "from-a-file" not in log
    assert json.loads(log.splitlines()[0])
