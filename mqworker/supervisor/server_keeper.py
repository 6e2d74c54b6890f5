"""Server keeper: keeps the embedded server up while the node runs.

Owns:     the server's process, if it started it; another node of the directory may have.
Receives: Drain (supervisor).
Sends:    nothing.
Never:    speaks to the server beyond PING and SHUTDOWN.

A process of its own because starting a server waits until its data is loaded, and the supervisor never waits.
When the keeper is killed the server runs on, and the next keeper shares it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mqworker.actors.actor import ActorLoop, Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import Drain, Mail
from mqworker.actors.mailbox import Mailbox
from mqworker.errors import ConfigurationError, StoreUnavailable
from mqworker.log import Logger, get_logger
from mqworker.model.clock import SystemClock
from mqworker.store.embedded.share import EmbeddedServer, find_server

_LOOK_EVERY_MS = 250
_AFTER_FAILURE_MS = 1_000


def main(control: Mailbox, start: ChildStart) -> int:
    """Run as a child of the supervisor. Hello means that the server is ready."""
    log = get_logger(actor=start.name, pid=os.getpid())
    server = EmbeddedServer(start.settings.data_dir)
    server.start()
    keeper = ServerKeeper(start.name, start.settings.data_dir, server, log)
    ActorLoop(keeper, control, SystemClock(), log).run()
    server.stop()
    return 0


class ServerKeeper:
    """The actor; see the module's first lines."""

    def __init__(self, name: str, data_dir: Path, server: EmbeddedServer, log: Logger) -> None:
        self.name = name
        self.is_done = False
        self._data_dir = data_dir
        self._server = server
        self._log = log
        self._starts = 1
        self._next_look_ms = 0
        self._handle: _ProcessHandle | None = _handle_of(server)

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002 - as all actors
        """The only mail it acts on is Drain."""
        if isinstance(mail, Drain):
            self.is_done = True
        return ()

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Start the server again if it is gone."""
        if self._handle is None and now_ms < self._next_look_ms:
            return ()
        self._next_look_ms = now_ms + _LOOK_EVERY_MS
        if not self.is_done and find_server(self._data_dir) is None:
            self._start_again(now_ms)
        return ()

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Long when the kernel tells of the server's end."""
        return 1_000 if self._handle is not None else max(0, self._next_look_ms - now_ms)

    def watched(self) -> Iterable[Watched]:
        """The server's process, if it is ours."""
        return () if self._handle is None else (self._handle,)

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {"server_pid": self._server.pid, "starts": self._starts}

    def _start_again(self, now_ms: int) -> None:
        self._log.warning("server_ended", log=str(self._server.log_path))
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        # A full disk or a damaged file needs the operator, but may well be mended while we wait.
        try:
            self._server.start()
        except (StoreUnavailable, ConfigurationError) as error:
            self._log.error("server_not_started", reason=str(error))
            self._next_look_ms = now_ms + _AFTER_FAILURE_MS
            return
        self._starts += 1
        self._handle = _handle_of(self._server)
        self._log.info("server_started", server_pid=self._server.pid)


class _ProcessHandle:
    """Becomes readable when the process ends."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


def _handle_of(server: EmbeddedServer) -> _ProcessHandle | None:
    if server.pid is None or sys.platform != "linux":
        return None
    with suppress(ProcessLookupError):
        return _ProcessHandle(server.pid)
    return None
