"""Tells systemd that the node is ready, alive or stopping, where systemd started it and asked for that."""

from __future__ import annotations

import socket
from contextlib import suppress


class SystemdNotifier:
    """Sends states to the socket that systemd named; without one it does nothing."""

    def __init__(self, address: str | None) -> None:
        # An @ stands for the zero byte with which names outside the file system begin.
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._is_ready = False

    def note(self, *, is_complete: bool) -> None:
        """Once a second: ready when everybody is for the first time; alive only while everybody is."""
        if not is_complete:
            return
        if not self._is_ready:
            self._is_ready = True
            self._send("READY=1")
        self._send("WATCHDOG=1")

    def note_stopping(self) -> None:
        """The drain begins."""
        self._send("STOPPING=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A service manager that does not listen is no reason to stop working.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outlet:
            outlet.settimeout(0)
            outlet.sendto(state.encode(), self._address)
