"""Hung server: a node of a cluster for which nobody waits until it answers a probe.

A server that hangs costs each call its whole time-out. An actor serves all shards in turn, so a hung one
would take nearly all of its time from the others. The first call that waited in vain leaves the server to a
thread, which probes it; until it answers, calls fail at once, and surely were not executed.
A server that refuses at once costs nothing, and is asked again by whoever wants something of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.model.clock import SystemClock
from mqworker.store.command import pack
from mqworker.store.link.pool import LINK_ERRORS, Link
from mqworker.store.link.server_errors import ServerName

SLOW_AFTER_S = 0.2
"""Trouble that took longer is a server that hangs."""
PROBE_EVERY_S = 0.2
_PING = pack([("PING",)])

_monotonic_s = SystemClock().monotonic_s


class HungServer:
    """Guards the links to one server. Threads may share it; a forked child begins anew."""

    def __init__(self, name: ServerName, connect: Callable[[], Link]) -> None:
        self._name = name
        self._connect = connect
        self._prober: int | None = None
        """The process whose thread probes the server; None while it does not hang."""
        self._is_closed = False

    @property
    def is_hung(self) -> bool:
        """Whether it let somebody wait in vain, and has not answered since."""
        return self._prober == os.getpid()

    def instead(self, connect: Callable[[], Link]) -> Link:
        """A link made in another way; StoreUnavailable at once while the server hangs."""
        if self.is_hung:
            raise StoreUnavailable(f"{self._name.text} hangs; it is probed.", maybe_executed=False)
        return connect()

    def connect(self) -> Link:
        """A link; StoreUnavailable at once while the server hangs."""
        began_s = _monotonic_s()
        try:
            return self.instead(self._connect)
        except StoreUnavailable:
            self.note_trouble(began_s)
            raise

    def note_trouble(self, began_s: float) -> None:
        """A call that began then met trouble: if that took long, nobody else is to wait for this server."""
        if _monotonic_s() - began_s >= SLOW_AFTER_S and not self.is_hung and not self._is_closed:
            self._prober = os.getpid()
            threading.Thread(target=self._probe, name=f"probe {self._name.text}", daemon=True).start()

    def close(self) -> None:
        """Probe no more."""
        self._is_closed = True

    def _probe(self) -> None:
        while not self._is_closed and not self._answers():
            time.sleep(PROBE_EVERY_S)
        self._prober = None

    def _answers(self) -> bool:
        with suppress(MqworkerError, *LINK_ERRORS):
            link = self._connect()  # it introduces itself, so a server that hangs is found out here already
            try:
                link.send_packed_command((_PING,), check_health=False)
                link.read_response(disconnect_on_error=False)
            finally:
                link.disconnect()
            return True
        return False
