"""Xids: the ids of topics' records, twenty characters that sort by the second in which they were made.

Twelve bytes in base 32: four for the seconds since 1970, three for the machine, two for the process, three
that count. The server's clock supplies the seconds (parts/xid.lua); a source makes the other eight.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown

TAIL_BYTES = 8

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PADDING_BITS = 4  # 96 bits are nineteen digits of five bits, and one bit more


class XidSource:
    """Makes the ends of ids. Safe between threads; a forked child goes on with its own process number."""

    def __init__(
        self, randomness: random.Random | None = None, process: Callable[[], int] = os.getpid
    ) -> None:
        chance = randomness or random.SystemRandom()
        self._machine = chance.randbytes(3)  # by chance: containers share host names and process numbers
        self._process = process
        self._counter = itertools.count(chance.randrange(2**24))

    def tail(self) -> bytes:
        """The last eight bytes of the next id."""
        process = (self._process() % 2**16).to_bytes(2, "big")
        return self._machine + process + (next(self._counter) % 2**24).to_bytes(3, "big")


def xid_end(tail: bytes) -> str:
    """The last fourteen characters of an id, for the server to put its second before them."""
    return xid(0, tail)[6:]


def xid(seconds: int, tail: bytes) -> str:
    """The id made in that second with that end."""
    if not 0 <= seconds < 2**32 or len(tail) != TAIL_BYTES:
        raise InvalidArgument(f"seconds is {seconds}, tail {shown(tail)}; accepted: 32 bits and 8 bytes")
    number = int.from_bytes(seconds.to_bytes(4, "big") + tail, "big") << _PADDING_BITS
    return "".join(_DIGITS[number >> shift & 31] for shift in range(95, -1, -5))
