"""Strangers at the console's port: they take no place of those who have a token."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
import uvicorn

from mqworker.operate.system import System
from mqworker_services.web import connections
from mqworker_services.web.access import read_tokens
from mqworker_services.web.asgi import console
from mqworker_services.web.server import uvicorn_config
from tests.services.web.conftest import TOKENS
from tests.support.deadline import wait_until
from tests.support.real_server import free_port

DEADLINE_S = 30.0


class Served:
    """A console on a port, in a thread."""

    def __init__(self, system: System, tokens: Path) -> None:
        self.port = free_port()
        app = console(system.settings, access=read_tokens(tokens))
        self.server = uvicorn.Server(uvicorn_config(app, port=self.port))
        self.thread = threading.Thread(target=self.server.run)

    def connect(self) -> socket.socket:
        """A stranger that says nothing."""
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)

    def client(self) -> httpx2.Client:
        """Somebody with a token."""
        return httpx2.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"authorization": f"Bearer {TOKENS['view']}"},
            timeout=DEADLINE_S,
        )


@pytest.fixture
def served(system: System, tmp_path: Path) -> Iterator[Served]:
    file = tmp_path / "tokens"
    file.write_text(f"view wall {TOKENS['view']}\n")
    made = Served(system, file)
    made.thread.start()
    wait_until(lambda: made.server.started, "the console listens", DEADLINE_S)
    yield made
    made.server.should_exit = True
    made.thread.join()


def test_hundreds_of_silent_connections_keep_out_nobody_who_has_a_token(served: Served) -> None:
    with served.client() as before, ExitStack() as closing:
        assert before.get("/api/v1/system").status_code == 200
        strangers = [closing.enter_context(served.connect()) for _ in range(600)]
        with served.client() as after:
            assert after.get("/api/v1/system").status_code == 200
        assert before.get("/api/v1/system").status_code == 200

        # Of one address, the oldest made room.
        assert _is_cut_off(strangers[0])
        assert len(served.server.server_state.connections) <= connections.MOST_STRANGERS + 2


def test_a_stranger_is_cut_off_however_it_dawdles(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STRANGER_S", 0.3)
    with served.connect() as silent, served.connect() as slow, served.client() as known:
        assert known.get("/api/v1/system").status_code == 200
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n")
        slow.sendall(b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntok")

        assert _is_cut_off(silent)
        assert _is_cut_off(slow)
        assert len(served.server.server_state.connections) == 1
        assert known.get("/api/v1/system").status_code == 200


def _is_cut_off(link: socket.socket) -> bool:
    try:
        return link.recv(1_000) == b""
    except ConnectionError:
        return True
