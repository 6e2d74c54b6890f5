"""Mailboxes: one end of a pipe between two processes. Frames in, frames out, never blocking.

The one place that knows multiprocessing. Its queues and locks are not used: a process killed while it holds
one would stop everybody. Each pipe has one writer per direction and lives as long as both its processes.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice
from multiprocessing import Pipe

from mqworker.actors.frame import FrameDecoder, encode_frame
from mqworker.actors.mail import Mail, decode_mail, encode_mail
from mqworker.errors import MqworkerError

_READ_BYTES = 262_144
_MOST_DESCRIPTORS = 16
_MOST_AT_ONCE = 64
_MOST_UNSENT_BYTES = 64 * 1024 * 1024


class MailboxClosed(MqworkerError):
    """The peer is gone: its end was closed, by itself or by the kernel."""


class MailboxFull(MqworkerError):
    """The peer does not read, although credit limits what we send: kill it."""


def open_pipe() -> tuple[int, int]:
    """A new pipe for both directions: two descriptors, one for each peer."""
    left, right = Pipe(duplex=True)
    with left, right:
        first = os.dup(left.fileno())
        try:
            return first, os.dup(right.fileno())
        except OSError:
            os.close(first)
            raise


class Mailbox:
    """Sends and receives mail over one descriptor, which it owns."""

    def __init__(self, descriptor: int, *, brings_descriptors: bool = False) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.settimeout(0)
        self._decoder = FrameDecoder()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._descriptors: deque[int] = deque()
        self._read = self._read_with_descriptors if brings_descriptors else self._read_bytes

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, mail: Mail, descriptors: Sequence[int] = ()) -> None:
        """Send now what the pipe takes, keep the rest for `flush`. Descriptors travel with the first byte."""
        frame = encode_frame(encode_mail(mail))
        if descriptors:
            self._send_with_descriptors(frame, descriptors)
            return
        # Kept as views: what is large is never copied, however little of it the pipe takes at a time.
        self._unsent.append(memoryview(frame))
        self._unsent_bytes += len(frame)
        self.flush()
        if self._unsent_bytes > _MOST_UNSENT_BYTES:
            raise MailboxFull(f"{self._unsent_bytes:,} bytes unread by the peer")

    def flush(self) -> None:
        """Send what is left over, as much as the pipe takes."""
        while self._unsent:
            try:
                sent = self._socket.sendmsg(islice(self._unsent, _MOST_AT_ONCE))
            except BlockingIOError:
                return
            except OSError as error:
                self._forget_unsent()  # nobody will read it
                raise MailboxClosed(str(error)) from error
            self._drop(sent)

    def _drop(self, sent: int) -> None:
        self._unsent_bytes -= sent
        while sent:
            frame = self._unsent[0]
            if sent < len(frame):
                self._unsent[0] = frame[sent:]
                return
            sent -= len(frame)
            self._unsent.popleft()

    def _forget_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0

    @property
    def has_unsent(self) -> bool:
        """Whether to wait until the pipe takes more."""
        return bool(self._unsent)

    def receive(self) -> list[Mail]:
        """All mail that is there. Raises `MailboxClosed` at the end of file, when nothing is left to read."""
        mails: list[Mail] = []
        while True:
            try:
                data = self._read()
            except BlockingIOError:
                return mails
            except OSError as error:
                if mails:
                    return mails
                raise MailboxClosed(str(error)) from error
            if not data:
                if mails:
                    return mails
                raise MailboxClosed(
                    "end of file in the middle of a frame" if self._decoder.has_remainder else ""
                )
            mails += [decode_mail(payload) for payload in self._decoder.feed(data)]
            if len(data) < _READ_BYTES:
                return mails

    def take_descriptor(self) -> int:
        """The descriptor that came with an `Attach`, in the order of arrival."""
        return self._descriptors.popleft()

    def close(self) -> None:
        """Close this end; the peer sees an end of file."""
        self._socket.close()

    def _read_bytes(self) -> bytes:
        return self._socket.recv(_READ_BYTES)

    def _read_with_descriptors(self) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(self._socket, _READ_BYTES, _MOST_DESCRIPTORS)
        self._descriptors.extend(descriptors)
        return data

    def _send_with_descriptors(self, frame: bytes, descriptors: Sequence[int]) -> None:
        # Rare (a peer was started) and small, so it may wait for the mail before it to go out.
        self._socket.settimeout(1.0)
        try:
            for unsent in self._unsent:
                self._socket.sendall(unsent)
            self._forget_unsent()
            sent = socket.send_fds(self._socket, [frame], list(descriptors))
            self._socket.sendall(frame[sent:])
        except OSError as error:
            raise MailboxClosed(str(error)) from error
        finally:
            self._socket.settimeout(0)
