"""HTTP/2 on a plain socket: one call with headers as the test wrote them, which no gRPC client would send."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS = 1, 4
_END_OF_HEADERS_AND_STREAM = 5
_POST, _HTTP = b"\x83", b"\x86"


def call_with_path(place: tuple[str, int], path: bytes, deadline_s: float = 2.0) -> None:
    """Make one call of a method of this name, and wait until something is said or the line is cut."""
    fields = [(b":path", path), (b":authority", b"a"), (b"content-type", b"application/grpc")]
    fields.append((b"te", b"trailers"))
    headers = _POST + _HTTP + b"".join(_literal(name, value) for name, value in fields)
    with socket.create_connection(place, deadline_s) as line, suppress(OSError):
        line.sendall(
            PREFACE + frame(_SETTINGS, 0, 0, b"") + frame(_HEADERS, _END_OF_HEADERS_AND_STREAM, 1, headers)
        )
        for _ in range(2):
            line.recv(65_536)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
