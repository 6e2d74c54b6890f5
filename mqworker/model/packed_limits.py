"""Limits of packed values, checked on the bytes before anything is built from them.

Twenty bytes can announce four thousand million items, and two hundred can nest two hundred deep: the check
walks over headers and lengths only, and never into an item that is not there.
"""

from mqworker.errors import InvalidMessage

DEEPEST = 32
MOST_NODES = 50_000
SEALED_EXTENSION = 100
"""A sealed value in the place of one (assembled_call.py)."""
KNOWN_EXTENSIONS = frozenset((*range(1, 8), SEALED_EXTENSION))
"""Types of value_codec.py. Those from 5 on hold a packed list themselves."""

_FIRST_NESTED_EXTENSION = 5
_INSIDE, _SIZED, _ARRAY, _MAP, _EXTENSION = range(5)
_OPENING = frozenset({_ARRAY, _MAP})

# For each first byte: (kind, fixed size or number of length bytes, count or size where the byte tells it).
_Header = tuple[int, int, int]


def check_packed(packed: bytes) -> None:
    """Refuse bytes that nest too deep, hold too much, are cut off, go on after the value or are unknown."""
    # Every container costs a header byte, so what has few such bytes cannot be deep; what has an extension
    # is looked at closely. Most calls end here.
    if len(packed) <= MOST_NODES:
        telling = packed.translate(None, _HARMLESS)
        if len(telling) <= DEEPEST and not telling.translate(None, _CONTAINERS):
            return
    _Walk(packed).check()


class _Walk:
    """One pass over the headers. Open containers stand on a list, so depth costs no recursion."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._nodes = 0

    def check(self) -> None:
        self._check_value(0, len(self._packed), 0)

    def _check_value(self, start: int, end: int, depth: int) -> None:
        """Exactly one value lies between start and end."""
        at, open_counts = start, [1]
        while open_counts:
            if open_counts[-1] == 0:
                open_counts.pop()
                continue
            open_counts[-1] -= 1
            self._nodes += 1
            if self._nodes > MOST_NODES:
                raise InvalidMessage(f"more than {MOST_NODES:,} values in one message")
            kind, at, size = self._header(at, end)
            if kind in _OPENING:
                open_counts.append(size if kind == _ARRAY else 2 * size)
            elif kind == _EXTENSION:
                self._check_extension(at, at + 1 + size, end, depth + len(open_counts) - 1)
                at += 1 + size
            else:
                at += size
            if depth + len(open_counts) - 1 > DEEPEST:
                raise InvalidMessage(f"values are nested more than {DEEPEST} deep")
            if at > end:
                raise InvalidMessage("the message is cut off")
        if at != end:
            raise InvalidMessage(f"{end - at} bytes follow the value")

    def _header(self, at: int, end: int) -> _Header:
        """(kind, where the content begins, its size: items, entries or bytes)."""
        if at >= end:
            raise InvalidMessage("the message is cut off")
        kind, width, size = _HEADERS[self._packed[at]]
        if kind == _INSIDE:
            raise InvalidMessage("a byte that begins no value")
        if width == 0:
            return kind, at + 1, size
        begins = at + 1 + width
        if begins > end:
            raise InvalidMessage("the message is cut off")
        return kind, begins, int.from_bytes(self._packed[at + 1 : begins], "big")

    def _check_extension(self, at: int, content_end: int, end: int, depth: int) -> None:
        if content_end > end:
            raise InvalidMessage("the message is cut off")
        code = self._packed[at]
        if code not in KNOWN_EXTENSIONS:
            raise InvalidMessage(f"an extension of type {code} is unknown")
        if _FIRST_NESTED_EXTENSION <= code < SEALED_EXTENSION:
            # The list inside is the container itself: it counts once.
            self._check_value(at + 1, content_end, depth)


def _headers() -> list[_Header]:
    """The format of msgpack, one entry for each first byte: (kind, length bytes, size without them)."""
    headers: list[_Header] = [(_SIZED, 0, 0)] * 256  # small numbers, nil, booleans
    for count in range(16):
        headers[0x80 + count] = (_MAP, 0, count)
        headers[0x90 + count] = (_ARRAY, 0, count)
    for size in range(32):
        headers[0xA0 + size] = (_SIZED, 0, size)
    headers[0xC1] = (_INSIDE, 0, 0)
    for first, kind in ((0xC4, _SIZED), (0xC7, _EXTENSION)):
        for power in range(3):
            headers[first + power] = (kind, 1 << power, 0)
    for first, sizes in ((0xCA, (4, 8)), (0xCC, (1, 2, 4, 8)), (0xD0, (1, 2, 4, 8))):
        for offset, size in enumerate(sizes):
            headers[first + offset] = (_SIZED, 0, size)
    for power in range(5):
        headers[0xD4 + power] = (_EXTENSION, 0, 1 << power)
    for power in range(3):
        headers[0xD9 + power] = (_SIZED, 1 << power, 0)
    for power in range(2):
        headers[0xDC + power] = (_ARRAY, 2 << power, 0)
        headers[0xDE + power] = (_MAP, 2 << power, 0)
    return headers


_HEADERS = _headers()
_HARMLESS = bytes(byte for byte in range(256) if _HEADERS[byte][0] in {_INSIDE, _SIZED})
_CONTAINERS = bytes(byte for byte in range(256) if _HEADERS[byte][0] in {_ARRAY, _MAP})
