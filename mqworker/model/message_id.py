"""Message ids made by the producer: known before the first byte is sent, unique, and sorted by time.

Seventeen characters: eight for the millisecond, five drawn at random once per source, four that count.
Short, because an id is stored and sent with every message; letters and digits only, so that a double click
selects it.
"""

import random
import string
from collections.abc import Callable
from typing import cast

from mqworker.model.names import MessageId

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_PAIR_COUNT = len(_PAIRS)
_COUNTS = _PAIR_COUNT * _PAIR_COUNT
_LENGTH, _TIME_DIGITS = 17, 8
_EARLIEST_MS, _LATEST_MS = 1_000_000_000_000, 9_999_999_999_999


class MessageIdSource:
    """Makes ids for one process; a forked child needs one of its own."""

    def __init__(self, now_ms: Callable[[], int], randomness: random.Random | None = None) -> None:
        chance = randomness or random.SystemRandom()
        self._now_ms = now_ms
        self._source = "".join(chance.choices(_ALPHABET, k=5))
        self._count = chance.randrange(_PAIR_COUNT)
        self._head_ms = -1
        self._head = ""

    def next(self) -> MessageId:
        """The next id; four digits count fourteen million before they repeat: another millisecond by then."""
        now_ms = self._now_ms()
        if now_ms != self._head_ms:
            self._begin(now_ms)
        self._count = number = (self._count + 1) % _COUNTS
        return cast("MessageId", self._head + _PAIRS[number // _PAIR_COUNT] + _PAIRS[number % _PAIR_COUNT])

    def take(self, count: int) -> list[MessageId]:
        """The next so many, up to a thousand at a time; the clock is read once for all of them."""
        now_ms = self._now_ms()
        if now_ms != self._head_ms:
            self._begin(now_ms)
        head, first = self._head, self._count + 1
        self._count = (self._count + count) % _COUNTS
        return [
            cast(
                "MessageId", head + _PAIRS[number // _PAIR_COUNT % _PAIR_COUNT] + _PAIRS[number % _PAIR_COUNT]
            )
            for number in range(first, first + count)
        ]

    def _begin(self, now_ms: int) -> None:
        self._head = _base62(now_ms, pairs=4) + self._source
        self._head_ms = now_ms


def made_at_ms(message: str) -> int | None:
    """When an id was made, by the clock of its producer; None for an id that was chosen by a caller."""
    if len(message) != _LENGTH or not message.isascii() or not message.isalnum():
        return None
    at_ms = 0
    for digit in message[:_TIME_DIGITS]:
        at_ms = at_ms * len(_ALPHABET) + _ALPHABET.index(digit)
    return at_ms if _EARLIEST_MS <= at_ms <= _LATEST_MS else None


def _base62(number: int, *, pairs: int) -> str:
    """A number with so many pairs of digits; two at a time, for this runs once in a millisecond."""
    digits = []
    for _ in range(pairs):
        number, pair = divmod(number, _PAIR_COUNT)
        digits.append(_PAIRS[pair])
    return "".join(reversed(digits))
