"""What stands in the way of a connection is said in one sentence, and nobody waits longer than one time-out.

Each is tried by a producer, and by its asynchronous twin.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mqworker import App
from mqworker.errors import ConfigurationError, MqworkerError, StoreRefused
from mqworker.settings import Settings
from tests.support.certificates import Authority
from tests.support.deadline import wait_until
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

CONNECT_S, READ_S = 2.0, 5.0
SLACK_S = 1.5

Attempt = Callable[[str], tuple[MqworkerError, float]]


def one_call(url: str) -> tuple[MqworkerError, float]:
    """The error of enqueue, and after how many seconds it came."""
    app = App("shop", settings=Settings(redis_url=url, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S))
    task = app.task(name="t")(lambda: None)
    began = time.monotonic()
    with pytest.raises(MqworkerError) as raised:
        task.enqueue()
    took_s = time.monotonic() - began
    app.close()
    return raised.value, took_s


def one_awaited_call(url: str) -> tuple[MqworkerError, float]:
    async def attempt() -> tuple[MqworkerError, float]:
        app = App(
            "shop", settings=Settings(redis_url=url, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S)
        )
        task = app.task(name="t")(lambda: None)
        began = time.monotonic()
        with pytest.raises(MqworkerError) as raised:
            await task.aenqueue()
        took_s = time.monotonic() - began
        await app.aclose()
        return raised.value, took_s

    return asyncio.run(attempt())


@pytest.fixture(params=[one_call, one_awaited_call], ids=["sync", "async"])
def attempt(request: pytest.FixtureRequest) -> Attempt:
    found: Attempt = request.param
    return found


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


class StandIn:
    """Answers every command by one reply, and a few in the way of a server of its kind."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(65_536):
                for name in (each.upper() for each in _command_names(data)):
                    is_simple = name in {b"CLIENT", b"SELECT", b"PING"}
                    is_evalsha = name == b"EVALSHA" and b"compiling" in self._reply
                    answer = b"-NOSCRIPT No matching script.\r\n" if is_evalsha else self._reply
                    connection.sendall(b"+OK\r\n" if is_simple else answer)


def _command_names(data: bytes) -> list[bytes]:
    parts = data.split(b"\r\n")
    return [
        parts[place + 2] for place, part in enumerate(parts) if part[:1] == b"*" and place + 2 < len(parts)
    ]


OLD = b"-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#' \r\n"
NO_EVAL = b"-ERR unknown command 'EVALSHA', with args beginning with: 'abc' '1' \r\n"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (
            "ssl_ca_certs=/nowhere/ca.pem",
            "ssl_ca_certs is /nowhere/ca.pem, which cannot be used (No such file",
        ),
        ("ssl_ca_certs=/etc/hostname", "ssl_ca_certs is /etc/hostname, which cannot be used ("),
        ("ssl_certfile=/nowhere/c.pem&ssl_keyfile=/nowhere/k.pem", "ssl_keyfile is /nowhere/k.pem"),
    ],
)
@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster"])
def test_a_missing_file_of_tls_is_named_at_once(
    attempt: Attempt, scheme: str, option: str, text: str
) -> None:
    error, took_s = attempt(f"{scheme}://127.0.0.1:1?{option}")

    assert isinstance(error, ConfigurationError)
    assert text in str(error)
    assert took_s < SLACK_S


def test_tls_on_a_plain_port_is_told(attempt: Attempt, server: RealServer) -> None:
    error, took_s = attempt(f"rediss://127.0.0.1:{server.port}")

    assert isinstance(error, StoreRefused)
    assert "does not speak TLS on this port; use redis://" in str(error)
    assert took_s < READ_S + SLACK_S


def test_the_address_of_a_replica_is_told(attempt: Attempt, server: RealServer) -> None:
    with RealServer() as replica, replica.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", str(server.port))
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", "it replicates", 30)

        error, took_s = attempt(f"redis://127.0.0.1:{replica.port}")

    assert isinstance(error, StoreRefused)
    assert "is a replica, which takes no writes; accepted is the address of its primary" in str(error)
    assert took_s < SLACK_S


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (OLD, "is older than Redis 7.0 or Valkey 7.2 and cannot run our scripts; upgrade it"),
        (NO_EVAL, "runs no scripts (EVAL)"),
    ],
    ids=["6.2", "no EVAL"],
)
def test_a_server_that_cannot_run_our_scripts_is_told(attempt: Attempt, reply: bytes, text: str) -> None:
    stand_in = StandIn(reply)

    error, took_s = attempt(f"redis://127.0.0.1:{stand_in.port}")
    stand_in.close()

    assert isinstance(error, StoreRefused)
    assert text in str(error)
    assert took_s < SLACK_S


def test_a_single_server_with_the_url_of_a_cluster_is_told_at_once(
    attempt: Attempt, server: RealServer
) -> None:
    error, took_s = attempt(f"redis+cluster://127.0.0.1:{server.port}")

    assert isinstance(error, StoreRefused)
    assert "cluster support disabled" in str(error)
    assert took_s < SLACK_S


def test_a_plain_url_for_a_port_with_tls_is_told(tmp_path: Path) -> None:
    import ssl  # noqa: PLC0415 - of this test alone

    own = Authority(tmp_path).sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with suppress(OSError), connection:
                        context.wrap_socket(connection, server_side=True)

        threading.Thread(target=serve, daemon=True).start()
        app = App(
            "shop",
            settings=Settings(redis_url=f"redis://127.0.0.1:{listener.getsockname()[1]}", retry_for_s=0),
        )
        with pytest.raises(MqworkerError) as raised:
            app.task(name="t")(lambda: None).enqueue()
        app.close()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)

    assert "rediss://" in str(raised.value) or "does not speak the Redis protocol" in str(raised.value)


def test_a_hung_first_node_of_a_cluster_costs_less_than_one_time_out() -> None:
    with RealCluster() as cluster, socket.create_server(("127.0.0.1", 0)) as hung:
        url = cluster.url.replace("redis+cluster://", f"redis+cluster://127.0.0.1:{hung.getsockname()[1]},")
        for take in (_enqueue, _aenqueue):
            began = time.monotonic()
            take(url)
            assert time.monotonic() - began < READ_S


def _enqueue(url: str) -> None:
    app = App("shop", settings=Settings(redis_url=url))
    app.task(name="t")(lambda: None).enqueue()
    app.close()


def _aenqueue(url: str) -> None:
    async def enqueue() -> None:
        app = App("shop", settings=Settings(redis_url=url))
        await app.task(name="t")(lambda: None).aenqueue()
        await app.aclose()

    asyncio.run(enqueue())
