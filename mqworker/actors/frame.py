"""Frames: how mail is cut out of a stream of bytes. Pure; knows no sockets.

A frame is two magic bytes, the length as four, and that many bytes. The magic is there for the day when
something else writes into the descriptor: a peer that sends garbage is ended and started anew, never
resynchronised.
"""

from __future__ import annotations

import struct

from mqworker.errors import MqworkerError

MAGIC = b"\xa9Q"
LARGEST_FRAME_BYTES = 32 * 1024 * 1024

_HEADER = struct.Struct(">2sI")


NO_MAIL = "sent something that is not mail"
"""The reason given for killing a peer that sent such bytes."""


class BrokenFrame(MqworkerError):
    """End the peer: what it sent is not a frame."""


def encode_frame(payload: bytes) -> bytes:
    """A payload with its header."""
    if len(payload) > LARGEST_FRAME_BYTES:
        raise BrokenFrame(f"a frame of {len(payload):,} bytes; accepted are up to {LARGEST_FRAME_BYTES:,}")
    return _HEADER.pack(MAGIC, len(payload)) + payload


class FrameDecoder:
    """Gives the same payloads however the bytes were cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes; the payloads that are complete now."""
        self._buffer += data
        payloads: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            magic, length = _HEADER.unpack_from(self._buffer, start)
            if magic != MAGIC or length > LARGEST_FRAME_BYTES:
                raise BrokenFrame(f"bytes that are not a frame: {bytes(self._buffer[start : start + 16])!r}")
            end = start + _HEADER.size + length
            if end > len(self._buffer):
                break
            with memoryview(self._buffer) as view:  # a slice of the buffer itself would be one more copy
                payloads.append(bytes(view[start + _HEADER.size : end]))
            start = end
        del self._buffer[:start]
        return payloads

    @property
    def has_remainder(self) -> bool:
        """Whether a frame was begun and not finished: at end of file, the writer died in the middle."""
        return bool(self._buffer)
