"""Whether a server that does not shake hands by TLS answers as a plain Redis: then the URL is wrong.

A plain server waits for the end of a line in what a client of TLS sends, and that client for an answer: both
until the time-out. So after one the same port is asked once, without TLS and without any secret.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from mqworker.store.link.address import HostPort
from mqworker.store.link.options import Place

_PING = b"PING\r\n"
_PROBE_S = 0.5
_READ_BYTES = 64


def speaks_plainly(place: Place) -> bool:
    """Whether a Redis answers there without TLS."""
    if not isinstance(place, HostPort):
        return False
    with suppress(OSError), socket.create_connection((place.host, place.port), _PROBE_S) as probe:
        probe.sendall(_PING)
        return _is_redis(probe.recv(_READ_BYTES))
    return False


async def speaks_plainly_async(place: Place) -> bool:
    """The same in an event loop."""
    if not isinstance(place, HostPort):
        return False
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_PROBE_S):
            reader, writer = await asyncio.open_connection(place.host, place.port)
            writer.write(_PING)
            return _is_redis(await reader.read(_READ_BYTES))
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.close()


def _is_redis(answer: bytes) -> bool:
    """Replies of the protocol begin so: +PONG, -NOAUTH, -ERR."""
    return answer[:1] in {b"+", b"-"} and answer.isascii()
