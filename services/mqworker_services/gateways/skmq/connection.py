"""One connection, whoever opened it: bytes in, requests out; answers back in the order of the requests.

It serves producers and consumers that come to us, and the connections on which we push: there, too, the other
side may say anything the protocol knows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from mqworker.gateway import STRANGER_BYTES, GatewayUser, Stranger, common_names, peer_host
from mqworker.queues.skmq.frame import BrokenStream, Frame, FrameDecoder, Item, Word
from mqworker_services.gateways.skmq.replies import LOGIN_NEEDED, PONG, Answer, encoded
from mqworker_services.gateways.skmq.requests import Login, Request, request_of

if TYPE_CHECKING:
    from mqworker_services.gateways.skmq.pushes import Push

MOST_UNANSWERED = 2_000
"""Requests of one connection that wait for Redis; then we read no further until half of them are answered."""

Answering = Callable[[Answer | None], None]
"""Is given the answer, or None when none can be given: the connection is closed then."""


class Handler(Protocol):
    """Carries out what connections ask for."""

    def serve(self, request: Request, connection: Connection, answering: Answering) -> None:
        """Carry out one request, now or later."""

    def newcomer(self, common_names: Sequence[str]) -> GatewayUser | None:
        """Who it is that has said nothing yet, by its certificate; None: it has to log in."""

    def user_of(self, token: bytes) -> GatewayUser | None:
        """Whose token this is."""

    def joined(self, connection: Connection) -> float | None:
        """A connection was opened; the seconds it has to wait, None when there are too many."""

    def left(self, connection: Connection) -> None:
        """A connection was closed."""

    def throttle(self, frames: int) -> float:
        """Count frames; the seconds to wait before more are read."""


class _Slot:
    """The place of one answer in the order of answers."""

    __slots__ = ("data", "is_last")

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.is_last = False


class Connection(asyncio.Protocol):
    """The protocol of asyncio; knows nothing of queues."""

    def __init__(
        self,
        handler: Handler,
        *,
        most_bytes: int,
        names_msgid: bool,
        stranger: Stranger | None = None,
        push: Push | None = None,
    ) -> None:
        """`stranger` is who connected to us; `push` is what we connected for."""
        self.push = push
        """The delivery that we came to push, where we opened the connection."""
        self.host = ""
        self.joined_at_s = self.heard_at_s = 0.0
        self.begun_at_s: float | None = None
        """When the frame began that is not complete yet."""
        self._handler = handler
        self._decoder = FrameDecoder(most_bytes=STRANGER_BYTES)
        self._most_bytes = most_bytes
        self._stranger = stranger
        self._stranger_bytes = 0
        self.user: GatewayUser | None = None
        """Who it is; None while it has to log in, and where we opened the connection ourselves."""
        self._names_msgid = names_msgid
        self._slots: deque[_Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._frames = 0
        self._is_flush_due = False
        self._is_ending = False
        self._is_clogged = False
        self._paused_until_s = 0.0

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the handler, which may make it wait."""
        self._transport = cast("asyncio.Transport", transport)  # a stream's transport can be read and written
        self.host = peer_host(transport)
        self.joined_at_s = self.heard_at_s = self._loop.time()
        if self.push is None:
            self._trust(self._handler.newcomer(common_names(transport.get_extra_info("peercert"))))
        else:
            self._decoder.most_bytes = self._most_bytes
        wait_s = self._handler.joined(self)
        if wait_s is None:
            self.abort()
        elif wait_s > 0:
            self._hold_back(wait_s)

    def data_received(self, data: bytes) -> None:
        """Take what is complete now."""
        if self._is_ending:
            return
        self.heard_at_s = self._loop.time()
        self._frames = 0
        try:
            self._decoder.feed(data, self._take)
            self._bound_stranger(len(data))
        except BrokenStream as broken:
            self._say(self._slot(), Answer("error", str(broken)), is_last=True)
        if not self._decoder.has_remainder:
            self.begun_at_s = None
        elif self._frames or self.begun_at_s is None:
            self.begun_at_s = self.heard_at_s
        wait_s = self._handler.throttle(self._frames) if self._frames else 0.0
        if wait_s > 0:
            self._hold_back(wait_s)
        elif len(self._slots) >= MOST_UNANSWERED:
            self._pause_or_resume()

    def eof_received(self) -> bool:
        """Half a frame is dropped; what was asked is still answered."""
        self._is_ending = True
        self._flush_soon()
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it ended
        """The other side is gone; what it asked for is done all the same."""
        self._transport = None
        if self._stranger is not None:
            self._stranger.leave()
        self._handler.left(self)

    def pause_writing(self) -> None:
        """It does not read what we write: we read nothing either."""
        self._is_clogged = True
        self._pause_or_resume()

    def resume_writing(self) -> None:
        """It reads again."""
        self._is_clogged = False
        self._pause_or_resume()

    # What others call

    @property
    def is_waiting_for_us(self) -> bool:
        """Whether some answer is still due."""
        return bool(self._slots) and not self._is_clogged

    @property
    def is_stranger(self) -> bool:
        """Whether it has yet to show who it is."""
        return self.user is None and self.push is None

    def send(self, frame: bytes) -> None:
        """Send something unasked."""
        if self._transport is not None:
            self._transport.write(frame)

    def end(self) -> None:
        """Close once everything that was asked is answered."""
        self._is_ending = True
        self._flush_soon()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    # Requests in, answers out

    def _take(self, item: Item) -> None:
        if isinstance(item, Frame):
            self._frames += 1
            self._request(item)
        elif item is Word.PING:
            slot = self._slot()
            slot.data = PONG
            self._flush_soon()
        else:
            raise BrokenStream("malformed frame")

    def _request(self, frame: Frame) -> None:
        request = request_of(frame)
        slot = self._slot()
        if self.is_stranger or (isinstance(request, Login) and self.push is None):
            self._login(request, slot)
            return
        answering = partial(self._say, slot, msgid=frame.msgid if self._names_msgid else "")
        self._handler.serve(request, self, answering)

    def _login(self, request: Request, slot: _Slot) -> None:
        user = self._handler.user_of(request.token) if isinstance(request, Login) else None
        if user is None:
            self._say(slot, LOGIN_NEEDED, is_last=True)
        else:
            self._trust(user)
            self._say(slot, Answer("ack"))

    def _trust(self, user: GatewayUser | None) -> None:
        self.user = user
        if user is not None:
            self._decoder.most_bytes = self._most_bytes
            if self._stranger is not None:
                self._stranger.leave()

    def _bound_stranger(self, more_bytes: int) -> None:
        """Even pings are not for nothing."""
        if self.is_stranger:
            self._stranger_bytes += more_bytes
            if self._stranger_bytes > STRANGER_BYTES:
                raise BrokenStream("too much before the token")

    def _slot(self) -> _Slot:
        slot = _Slot()
        self._slots.append(slot)
        return slot

    def _say(self, slot: _Slot, answer: Answer | None, *, msgid: str = "", is_last: bool = False) -> None:
        slot.data = b"" if answer is None else encoded(answer, msgid)
        slot.is_last = is_last or answer is None
        self._is_ending = self._is_ending or slot.is_last
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """One write for all answers whose turn it is."""
        self._is_flush_due = False
        if self._transport is None or self._transport.is_closing():
            return
        ready: list[bytes] = []
        is_last = False
        while self._slots and self._slots[0].data is not None and not is_last:
            slot = self._slots.popleft()
            ready.append(slot.data or b"")
            is_last = slot.is_last
        if ready:
            self._transport.write(b"".join(ready))
            self._pause_or_resume()
        if is_last or (self._is_ending and not self._slots):
            self._transport.close()

    # How fast we read

    def _hold_back(self, wait_s: float) -> None:
        self._paused_until_s = self._loop.time() + wait_s
        self._pause_or_resume()
        self._loop.call_later(wait_s, self._pause_or_resume)

    def _pause_or_resume(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        too_many = len(self._slots) >= (
            MOST_UNANSWERED if self._transport.is_reading() else MOST_UNANSWERED // 2
        )
        if too_many or self._is_clogged or self._loop.time() < self._paused_until_s:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


LONGEST_FRAME_S = 60.0
"""A frame that was begun must be complete by then, however slowly it comes."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a client may take; a slower one is disconnected. The times are given."""

    handshake_s: float
    """To show the token, where one is asked for."""
    idle_s: float
    """To send the next request; 0: no limit."""

    def have_passed(
        self,
        now_s: float,
        *,
        joined_at_s: float,
        heard_at_s: float,
        begun_at_s: float | None,
        is_stranger: bool,
        is_waiting_for_us: bool,
    ) -> bool:
        """Whether to close it now. A frame has to end in time, even if its bytes keep arriving."""
        is_slow = begun_at_s is not None and now_s - begun_at_s > LONGEST_FRAME_S
        is_late = is_stranger and now_s - joined_at_s > self.handshake_s
        is_idle = 0 < self.idle_s < now_s - heard_at_s and not is_waiting_for_us
        return is_slow or is_late or is_idle
