"""What the link layer relies on in redis-py beyond its documented interface (decision 22).

redis-py promises none of this. Whoever raises its version and finds a failure here looks at
`store/link/pool.py`, `subscription.py`, `server_errors.py` and `queues/work/heartbeat.py`.
"""

from __future__ import annotations

import inspect
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import hiredis
import pytest
from redis import exceptions
from redis.asyncio import connection as asynchronous
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection

from mqworker.errors import StoreUnavailable
from mqworker.store.link.address import Credentials
from mqworker.store.link.options import Access, Limits
from mqworker.store.link.pool import Link, open_link, reader_of, socket_of
from mqworker.store.link.server_errors import CODE_BY_CLASS, REPLY_ERRORS, ServerName, code_and_text

CLIENT_INFO = b"id=7 addr=127.0.0.1:1 name="
LIMITS = Limits(connect_timeout_s=2.0, read_timeout_s=2.0)
NOBODY = Access(Credentials())
SERVER = ServerName("the test")


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Link, socket.socket]]:
    """A link, and the server's end of it."""
    path = str(tmp_path / "socket")
    accepted: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer_introduction() -> None:
            accepted.append(listener.accept()[0])
            accepted[0].recv(65_536)
            accepted[0].sendall(b"$%d\r\n%s\r\n" % (len(CLIENT_INFO), CLIENT_INFO))

        thread = threading.Thread(target=answer_introduction)
        thread.start()
        link = open_link(path, NOBODY, LIMITS, SERVER)
        thread.join()
    yield link, accepted[0]
    link.disconnect()
    accepted[0].close()


def test_a_connection_keeps_its_socket_as_sock_and_the_reader_of_hiredis_in_its_parser(
    ends: tuple[Link, socket.socket],
) -> None:
    """Subscriptions and heartbeats wait for many sockets at once, which no public method allows."""
    link, server = ends
    server.sendall(b"+hello\r\n")

    reader = reader_of(link)
    reader.feed(socket_of(link).recv(100))

    assert isinstance(reader, hiredis.Reader)
    assert reader.gets() == b"hello"


def test_a_reader_without_a_whole_reply_answers_with_one_and_the_same_object(
    ends: tuple[Link, socket.socket],
) -> None:
    """redis-py chooses that object, so that we ask for it on each new link instead of naming it."""
    link, _ = ends
    nothing = reader_of(link).gets()

    reader_of(link).feed(b"$5\r\nhal")

    assert reader_of(link).gets() is nothing


@pytest.mark.parametrize(
    "kind",
    [
        Connection,
        SSLConnection,
        UnixDomainSocketConnection,
        asynchronous.Connection,
        asynchronous.SSLConnection,
        asynchronous.UnixDomainSocketConnection,
    ],
)
def test_a_connection_takes_an_attribute_of_ours(kind: type) -> None:
    """`link.kill` says how to close the link at the server; a class with slots would refuse it."""
    assert kind.__dictoffset__ != 0


@pytest.mark.parametrize("kind", [Connection, asynchronous.Connection])
def test_methods_of_a_connection_take_the_arguments_that_we_give(kind: type) -> None:
    """These methods are public, but documented nowhere: pools and clients of redis-py use them."""
    arguments = {
        name: inspect.signature(getattr(kind, name)).parameters
        for name in ("connect", "disconnect", "can_read", "send_packed_command", "read_response")
        if hasattr(kind, name)
    }

    assert "check_health" in arguments["send_packed_command"]
    assert "disconnect_on_error" in arguments["read_response"]
    assert len(arguments) == 5


@pytest.mark.parametrize("code", ["NOSCRIPT", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOPERM"])
def test_the_code_is_cut_off_the_text_of_errors_that_have_a_class(
    ends: tuple[Link, socket.socket], code: str
) -> None:
    """So the code is found by the class; a new class in redis-py would make it unknown to us."""
    link, server = ends
    server.sendall(f"-{code} the text\r\n".encode())

    with pytest.raises(REPLY_ERRORS) as raised:
        link.read_response(disconnect_on_error=False)

    assert code_and_text(raised.value) == (code, "the text")
    assert CODE_BY_CLASS[type(raised.value)] == code


@pytest.mark.parametrize("code", ["MQW_FULL", "WRONGTYPE", "BUSY", "MISCONF"])
def test_the_code_stays_in_the_text_of_errors_without_a_class(
    ends: tuple[Link, socket.socket], code: str
) -> None:
    link, server = ends
    server.sendall(f"-{code} the text\r\n".encode())

    with pytest.raises(exceptions.ResponseError) as raised:
        link.read_response(disconnect_on_error=False)

    assert code_and_text(raised.value) == (code, "the text")


def test_a_connection_is_tried_once_and_no_more(tmp_path: Path) -> None:
    """Our layers repeat calls; a second one below them would multiply the waiting time."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        accepted: list[int] = []

        def hang_up() -> None:
            listener.settimeout(0.5)
            try:
                while True:
                    listener.accept()[0].close()
                    accepted.append(1)
            except TimeoutError:
                return

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            open_link(str(tmp_path / "socket"), NOBODY, LIMITS, SERVER)
        thread.join()

    assert accepted == [1]
