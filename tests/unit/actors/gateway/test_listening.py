"""Listening: whom a place lets in."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from mqworker.actors.gateway.listening import listen
from mqworker.errors import ConfigurationError
from mqworker.model.gateway_options import GatewayOptions, TcpPlace, UnixPlace
from mqworker.model.gateway_users import users_of_token


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_unix_socket_is_for_this_user_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "sock"
    options = GatewayOptions("redismq", UnixPlace(str(path)))

    async def mode_while_open() -> int:
        server, _ = await listen(options, asyncio.Protocol)
        found = stat.S_IMODE(path.stat().st_mode)
        server.close()
        await server.wait_closed()
        return found

    before = os.umask(umask)
    try:
        assert asyncio.run(mode_while_open()) == 0o600
    finally:
        os.umask(before)


def test_tls_without_a_token_is_refused_where_other_machines_come(tmp_path: Path) -> None:
    place, file = TcpPlace("0.0.0.0", 0), tmp_path / "pem"  # noqa: S104 - never listened at

    with pytest.raises(ConfigurationError, match="accepted: a loopback address"):
        GatewayOptions("redismq", place, tls_certificate=file, tls_key=file)

    GatewayOptions("redismq", place, users=users_of_token("t"), tls_certificate=file, tls_key=file)
