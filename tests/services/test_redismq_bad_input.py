"""What clients should not do: each is told so or cut off, and an honest client does not notice."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import hiredis
import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mqworker.queues.work.queue import WorkQueue
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.resp_client import RespClient, packed

MOST_GROWTH_BYTES = 16 * 1024 * 1024


@pytest.fixture
def honest(redismq_node: RealNode, redismq_port: int) -> Iterator[RespClient]:
    """A client that is served before and after, by the same process, which has not grown."""
    pid = redismq_node.child("gateway:redismq")["pid"]
    before = psutil.Process(pid).memory_info().rss
    with RespClient(redismq_port) as client:
        assert client.say("PING") == b"PONG"
        yield client
        assert client.say("PING") == b"PONG"
    assert redismq_node.child("gateway:redismq")["pid"] == pid
    assert psutil.Process(pid).memory_info().rss - before < MOST_GROWTH_BYTES


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize(
    "data",
    [
        b"*1000000000\r\n",
        b"*2147483647\r\n",
        b"*-1\r\n",
        b"*+3\r\n",
        b"*03\r\n",
        b"*0x10\r\n",
        b"*1_000\r\n",
        b"*" + b"9" * 1_000_000,
        b"*1\r\n$2147483647\r\n",
        b"*1\r\n$4294967295\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        b"*1\r\n$4\r\nPINGPONG",
        b"*10\r\n" + b"$1048576\r\n%b\r\n" % (b"x" * 1_048_576) * 10,
        b"x" * 70_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PING \x00\r\n",
        b'PING "unbalanced\r\n',
        b"MQ.PUSH q\x01 x\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_command_ends_the_connection(redismq_port: int, data: bytes) -> None:
    with RespClient(redismq_port) as client:
        try:
            client.socket.sendall(data)
        except ConnectionError:
            return
        assert client.is_closed_by_peer()


def test_line_ends_in_arguments_begin_no_second_command(honest: RespClient, queue: WorkQueue) -> None:
    reply = honest.say("MQ.PUSH", f"{queue.name}\r\nMQ.PUSH other x", "y")

    assert isinstance(reply, hiredis.ReplyError)
    assert honest.say("PING") == b"PONG"


def test_a_hundred_thousand_commands_in_one_go_are_served_in_order(
    honest: RespClient, redismq_port: int
) -> None:
    with RespClient(redismq_port) as client:
        client.socket.setblocking(False)  # noqa: FBT003 - the socket's own signature
        unsent, replies = b"".join(packed("ECHO", number) for number in range(100_000)), bytearray()
        wanted = b"".join(b"$%d\r\n%d\r\n" % (len(str(number)), number) for number in range(100_000))

        def exchange() -> bool:
            nonlocal unsent
            with suppress(BlockingIOError):
                unsent = unsent[client.socket.send(unsent[:262_144]) :] if unsent else unsent
            with suppress(BlockingIOError):
                replies.extend(client.socket.recv(1_048_576))
            return len(replies) >= len(wanted)

        wait_until(exchange, "all replies", 60)
        assert bytes(replies) == wanted
    assert honest.say("PING") == b"PONG"


@pytest.mark.usefixtures("honest")
def test_who_does_not_read_is_not_read_from(redismq_port: int) -> None:
    with RespClient(redismq_port) as client:
        client.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            client.socket.sendall(packed("ECHO", b"x" * 100_000) * 2_000)


@pytest.mark.parametrize("delivered", [False, True], ids=["inspect", "recover"])
def test_who_asks_for_all_of_a_long_queue_again_and_again_holds_up_nobody(
    redismq_port: int, queue: WorkQueue, *, delivered: bool
) -> None:
    for _ in range(8):
        queue.push(b"x" * 1_000_000)
    if delivered:
        queue.pop(8)
    asked = packed("MQ.RECOVER", queue.name, 8, 0) if delivered else packed("MQ.INSPECT", queue.name, 0, 8)

    with RespClient(redismq_port) as greedy, RespClient(redismq_port) as client:
        greedy.socket.sendall(asked * 1_000)
        assert len(greedy.hear()) == 8
        answers = []
        began = time.monotonic()
        for _ in range(20):
            answers.append(client.say("MQ.PUSH", f"{queue.name}-b", "x"))
            answers.append(client.say("MQ.INSPECT", f"{queue.name}-b", 0, 1))
        took_s = time.monotonic() - began

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert took_s < 15  # it was 9 s for the first, and that one was refused


@pytest.mark.usefixtures("honest")
def test_half_closed_and_reset_connections_leave_nothing_behind(
    redismq_node: RealNode, redismq_port: int
) -> None:
    before = redismq_node.facts("gateway:redismq")["connections"]
    for _ in range(50):
        client = RespClient(redismq_port)
        client.socket.sendall(b"*3\r\n$7\r\nMQ.PU")
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()
    with RespClient(redismq_port) as half:
        half.socket.sendall(packed("PING"))
        half.socket.shutdown(socket.SHUT_WR)
        assert half.hear() == b"PONG"

    wait_until(lambda: redismq_node.facts("gateway:redismq")["connections"] <= before, "all are gone", 30)


@pytest.fixture(scope="module")
def guarded(gateway_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A node whose gateway wants TLS and a token, has room for few, and is impatient."""
    folder = tmp_path_factory.mktemp("tls")
    wanted = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    )
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    subprocess.run([*wanted, *files], check=True, capture_output=True)
    settings = {
        "MQWORKER_GATEWAYS": "redismq=0.0.0.0:0",
        "MQWORKER_GATEWAY_TOKEN": "open-sesame",
        "MQWORKER_GATEWAY_TLS_CERTIFICATE": str(folder / "cert.pem"),
        "MQWORKER_GATEWAY_TLS_KEY": str(folder / "key.pem"),
        "MQWORKER_GATEWAY_MAX_CONNECTIONS": "5",
        "MQWORKER_GATEWAY_IDLE_S": "1",
        "MQWORKER_NODE": "guarded",
    }
    with RealNode(gateway_server.url, settings=settings) as node:
        yield node


def guarded_client(node: RealNode, token: str | None) -> redis.Redis:
    port = int(node.facts("gateway:redismq")["listens"].rpartition(":")[2])
    once = Retry(NoBackoff(), 0)
    return redis.Redis(
        port=port, password=token, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False, retry=once
    )


def test_with_tls_and_token_a_client_comes_in_from_anywhere(guarded: RealNode, queue: WorkQueue) -> None:
    with guarded_client(guarded, "open-sesame") as client:
        assert len(client.execute_command("MQ.PUSH", queue.name, "a")) == 1


@pytest.mark.parametrize("token", [None, "wrong", "open-sesam", "x" * 10_000])
def test_without_the_token_nothing_is_served(guarded: RealNode, token: str | None) -> None:
    with guarded_client(guarded, token) as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.execute_command("MQ.PUSH", "q", "a")


def test_the_token_may_be_shown_again_and_verbs_come_in_any_case(guarded: RealNode, queue: WorkQueue) -> None:
    with guarded_client(guarded, "open-sesame") as client:
        assert client.execute_command("AUTH", "open-sesame")
        with pytest.raises(redis.RedisError):
            client.execute_command("AUTH", "")
        assert len(client.execute_command("mq.push", queue.name, "a")) == 1
        with pytest.raises(redis.ResponseError):
            client.execute_command("MQ.PUSHED", queue.name, "a")
        assert [element for _, element in client.execute_command("Mq.Pop", 9, queue.name)] == [b"a"]


def test_who_is_silent_or_one_too_many_is_shown_out(guarded: RealNode) -> None:
    port = int(guarded.facts("gateway:redismq")["listens"].rpartition(":")[2])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as closing:
        strangers = [
            closing.enter_context(context.wrap_socket(socket.create_connection(("127.0.0.1", port), 60)))
            for _ in range(5)
        ]
        wait_until(lambda: guarded.facts("gateway:redismq")["connections"] == 5, "all are in", 60)

        client = closing.enter_context(guarded_client(guarded, "open-sesame"))
        with pytest.raises(redis.RedisError):
            client.ping()

        assert [stranger.recv(1) for stranger in strangers] == [b""] * 5  # none of them ever said a word
        wait_until(lambda: guarded.facts("gateway:redismq")["connections"] == 0, "all are out", 60)
        assert client.ping()


def test_a_plain_client_gets_nothing_out_of_tls(guarded: RealNode) -> None:
    port = int(guarded.facts("gateway:redismq")["listens"].rpartition(":")[2])
    with RespClient(port) as client:
        client.send("PING")
        assert client.is_closed_by_peer()


def test_a_byte_now_and_then_buys_a_stranger_no_more_time(guarded: RealNode) -> None:
    port = int(guarded.facts("gateway:redismq")["listens"].rpartition(":")[2])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), 60)) as stranger:
        stranger.settimeout(0.2)
        began_s, is_cut_off = time.monotonic(), False
        while not is_cut_off and time.monotonic() - began_s < 60:
            try:
                stranger.sendall(b"*1\r\n$4\r\nPING\r\n")
                is_cut_off = stranger.recv(4_096) == b""
            except TimeoutError:
                continue
            except OSError:
                is_cut_off = True
    assert is_cut_off
