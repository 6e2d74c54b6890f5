"""TLS: the right authority and host are needed, and nothing falls back to plain text."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqworker.errors import StoreRefused, StoreUnavailable
from mqworker.store.command import Reply
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import open_async_connection
from mqworker.store.link.connection import Connection
from tests.support.real_server import RealServer
from tests.support.tls_proxy import TlsProxy, make_authority, make_certificate

Connect = Callable[[str], Connection]

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


@dataclass(frozen=True)
class TlsServer:
    port: int
    authority: Path
    other_authority: Path


@pytest.fixture(scope="module")
def tls_server(server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    directory = tmp_path_factory.mktemp("tls")
    authority, other = make_authority(directory, "ours"), make_authority(directory, "theirs")
    proxy = TlsProxy(make_certificate(directory, authority, "localhost"), server.port)
    yield TlsServer(proxy.port, authority, other)
    proxy.close()


def executed_async(url: str) -> list[Reply]:
    async def ping() -> list[Reply]:
        connection = open_async_connection(
            parse_address(url), connect_timeout_s=2, read_timeout_s=2, client_name=None
        )
        try:
            return await connection.execute([("PING",)], None)
        finally:
            await connection.close()

    return asyncio.run(ping())


def test_trusted_authority_and_right_host_work(tls_server: TlsServer, connect: Connect) -> None:
    url = f"rediss://localhost:{tls_server.port}?ssl_ca_certs={tls_server.authority}"

    assert connect(url).execute([("PING",)], None) == [b"PONG"]
    assert executed_async(url) == [b"PONG"]


def test_wake_ups_arrive_over_tls(tls_server: TlsServer, connect: Connect) -> None:
    connection = connect(f"rediss://localhost:{tls_server.port}?ssl_ca_certs={tls_server.authority}")
    subscription = connection.subscribe(["a"])

    connection.execute([("SPUBLISH", "a", "1")], "a")

    assert subscription.get(5) == ("a", b"1")
    subscription.close()


@pytest.mark.parametrize("authority", ["?ssl_ca_certs={other}", ""])
def test_untrusted_authority_is_refused(tls_server: TlsServer, connect: Connect, authority: str) -> None:
    options = authority.format(other=tls_server.other_authority)
    url = f"rediss://localhost:{tls_server.port}{options}"

    with pytest.raises(StoreRefused, match="certificate"):
        connect(url).execute([("PING",)], None)
    with pytest.raises(StoreRefused, match="certificate"):
        executed_async(url)


def test_wrong_host_is_refused_unless_the_check_is_switched_off(
    tls_server: TlsServer, connect: Connect
) -> None:
    url = f"rediss://127.0.0.1:{tls_server.port}?ssl_ca_certs={tls_server.authority}"

    with pytest.raises(StoreRefused, match="certificate"):
        connect(url).execute([("PING",)], None)
    with pytest.raises(StoreRefused, match="certificate"):
        executed_async(url)

    assert connect(f"{url}&ssl_check_hostname=false").execute([("PING",)], None) == [b"PONG"]


def test_plain_text_to_a_tls_port_fails(tls_server: TlsServer, connect: Connect) -> None:
    with pytest.raises((StoreUnavailable, StoreRefused)):
        connect(f"redis://localhost:{tls_server.port}").execute([("PING",)], None)


def test_tls_to_a_plain_port_is_refused(server: RealServer, connect: Connect) -> None:
    with pytest.raises((StoreUnavailable, StoreRefused)):
        connect(f"rediss://127.0.0.1:{server.port}").execute([("PING",)], None)
