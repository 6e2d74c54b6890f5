"""Monitor: tells outsiders over HTTP how the node is; see docs/operate/monitoring.md.

Owns:     the port of the setting `http`, and a connection to Redis of its own.
Receives: NodeSnapshot, Ping, Drain (supervisor).
Sends:    SnapshotWanted, Hello, Pong, Drained (supervisor).
Never:    changes anything, or ends the node, which is complete without it; a port that is taken it waits for.

Bytes of clients and mail of the supervisor are handled by one asyncio loop; Redis is asked in one thread
beside it, so that /livez and /readyz answer while Redis hangs.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from mqworker.actors.child_start import ChildStart
from mqworker.actors.frame import BrokenFrame
from mqworker.actors.mail import Drain, Drained, Hello, Mail, NodeSnapshot, Ping, Pong, SnapshotWanted
from mqworker.actors.mailbox import Mailbox, MailboxClosed, MailboxFull
from mqworker.actors.monitor.listener import Listener
from mqworker.actors.monitor.pages import Pages
from mqworker.actors.wiring import logger_of, open_store
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.gateway_options import parse_place

Snapshot = dict[str, Any]
"""Any: plain values, as the supervisor sends them."""

ANSWER_S = 2.0
"""How long the supervisor may take to answer; after that its loop counts as stuck."""
FRESH_MS = 50
"""How old a snapshot may be: a thousand probes at once ask the supervisor once."""
LISTEN_AGAIN_S = 1.0


def main(control: Mailbox, start: ChildStart) -> int:
    """The monitor's process."""
    asyncio.run(Monitor(control, start, SystemClock()).run())
    return 0


class Monitor:
    """The actor; see the module's first lines."""

    def __init__(self, control: Mailbox, start: ChildStart, clock: Clock) -> None:
        self._control = control
        self._start = start
        self._clock = clock
        self._log = logger_of(start)
        self._thread = ThreadPoolExecutor(1, "redis")
        self._pages = Pages(start.settings, open_store(start), self.snapshot, self._thread, clock)
        self._listener = Listener(self._pages.answer)
        self._listens: str | None = None
        self._ending = asyncio.Event()
        self._turns = self._asked = 0
        self._answer: asyncio.Future[Snapshot] | None = None
        self._latest: Snapshot | None = None
        self._latest_at_ms = 0

    async def run(self) -> None:
        """From the first pipe to the end of the drain."""
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._read)
        self._send(Hello(self._start.name, os.getpid()))
        listening = asyncio.ensure_future(self._listen())
        await self._ending.wait()
        listening.cancel()
        self._listener.close()
        self._send(Drained())

    async def snapshot(self) -> Snapshot | None:
        """How the node is, from the supervisor's own loop; None when that does not answer."""
        if self._latest is not None and self._clock.monotonic_ms() - self._latest_at_ms <= FRESH_MS:
            return self._latest
        if self._answer is None or self._answer.done():
            self._answer = asyncio.get_running_loop().create_future()
            self._asked += 1
            self._send(SnapshotWanted(self._asked))
        answer = self._answer
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(answer)
        except TimeoutError:
            answer.cancel()  # whoever comes next asks again
            return None

    async def _listen(self) -> None:
        """A port that somebody else has is waited for: the work of the node does not depend on it."""
        place, problem = parse_place(self._start.settings.http or ""), ""
        while self._listens is None:
            try:
                self._listens = await self._listener.open(place)
                self._log.info("monitor_listening", place=self._listens)
            except OSError as error:
                if str(error) != problem:
                    problem = str(error)
                    self._log.error("monitor_not_listening", place=str(place), reason=problem)
                await asyncio.sleep(LISTEN_AGAIN_S)

    # Mail

    def _read(self) -> None:
        self._turns += 1
        try:
            mails = self._control.receive()
        except (MailboxClosed, BrokenFrame):
            self._end()  # its pipe is the leash
            return
        for mail in mails:
            self._take(mail)

    def _take(self, mail: Mail) -> None:
        match mail:
            case Ping(number):
                self._send(Pong(number, self._turns, self._facts()))
            case NodeSnapshot(_, number, facts):
                self._note(number, facts)
            case Drain():
                self._end()
            case _:
                pass

    def _note(self, number: int, snapshot: Snapshot) -> None:
        # An answer to an older question may have lain in the pipe while this process was stopped.
        if number != self._asked:
            return
        self._latest, self._latest_at_ms = snapshot, self._clock.monotonic_ms()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(snapshot)

    def _facts(self) -> dict[str, Any]:
        return {
            "listens": self._listens,
            "requests": self._listener.requests,
            "refused": self._listener.refused,
        }

    def _send(self, mail: Mail) -> None:
        try:
            self._control.send(mail)
        except (MailboxClosed, MailboxFull):
            self._end()
            return
        if self._control.has_unsent:
            loop, descriptor = asyncio.get_running_loop(), self._control.fileno()
            loop.add_writer(descriptor, partial(self._send_rest, loop, descriptor))

    def _send_rest(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        try:
            self._control.flush()
        except MailboxClosed:
            self._end()
        if not self._control.has_unsent:
            loop.remove_writer(descriptor)

    def _end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._control.fileno())
        loop.remove_writer(self._control.fileno())
        self._ending.set()
