"""RESP requests: bytes in, commands out; the same commands however the bytes were cut. Pure.

A command is an array of bulk strings, or a line of words as typed into netcat. Every length is checked before
anything is kept for it. Written by hand: the parser of hiredis takes any value of the protocol for a command,
and allocates what a header promises before it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_HEADER = 16
LONGEST_INLINE = 64 * 1024
_QUOTES = b"\"'"
_ARRAY, _BULK = b"*$"
_NUMBER_BY_DIGITS = {b"%d" % number: number for number in range(1_000)}
"""The lengths that nearly all headers have."""


class ProtocolError(Exception):
    """The bytes are not commands; nothing behind them can be trusted."""


@dataclass(frozen=True, slots=True)
class RespLimits:
    """How much one command may have."""

    bulk_bytes: int = 1_048_576
    command_bytes: int = 8 * 1_048_576
    arguments: int = 10_000
    inline_bytes: int = LONGEST_INLINE
    at_once: int | None = None
    """How many commands come out of one `feed`; the rest waits for the next, which may be of no bytes."""


class RequestParser:
    """Takes in bytes. `problem` is set once they break the protocol, and from then on nothing comes out."""

    def __init__(self, limits: RespLimits) -> None:
        self.limits = limits
        """May be changed between two feeds."""
        self._buffer = b""
        self._chunks: list[bytes] = []
        self._wanted = 0
        """How many bytes the buffer must have before it is worth another look."""
        self._held = 0
        self._arguments: list[bytes] = []
        self._left = 0
        self._bytes = 0
        self.problem: str | None = None

    @property
    def is_in_the_middle(self) -> bool:
        """Whether a command was begun and not finished."""
        return bool(self._held or self._left)

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The commands that are complete now; each has at least one word. Inline ones begin with b'' too."""
        if self.problem is not None:
            return []
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._wanted:
            return []
        self._buffer = b"".join(self._chunks)
        commands: list[list[bytes]] = []
        try:
            end = self._parse(self._buffer, commands)
        except ProtocolError as error:
            self.problem = str(error)
            self._chunks, self._held, self._left, self._arguments = [], 0, 0, []
            return commands
        rest = self._buffer[end:]
        self._chunks, self._held = [rest] if rest else [], len(rest)
        self._buffer = b""
        return commands

    def _parse(self, data: bytes, commands: list[list[bytes]]) -> int:
        """Append what is complete; where the rest begins."""
        start, length = 0, len(data)
        self._wanted = 0
        most = self.limits.at_once
        while start < length and (most is None or len(commands) < most):
            if self._left:
                stop = self._bulks(data, start)
                if self._left:
                    return stop
                commands.append(self._arguments)
                self._arguments = []
                start = stop
                continue
            opened = self._open(data, start) if data[start] == _ARRAY else self._inline(data, start, commands)
            if opened is None:
                return start
            start = opened
        return start

    def _open(self, data: bytes, start: int) -> int | None:
        """Begin a command; the position behind its header, None when that is not all there."""
        line = _header(data, start)
        if line is None:
            return None
        count, end = line
        if count > self.limits.arguments:
            raise ProtocolError(
                f"invalid multibulk length: {count}; accepted are up to {self.limits.arguments}"
            )
        self._left, self._bytes = count, 0
        return end

    def _bulks(self, data: bytes, start: int) -> int:
        """Take in as many arguments as are there; where the rest begins. One loop, for it is all the work."""
        length, longest, arguments = len(data), self.limits.bulk_bytes, self._arguments
        while self._left and start < length:
            if data[start] != _BULK:
                raise ProtocolError(f"expected '$', got {data[start : start + 1]!r}")
            line = _header(data, start)
            if line is None:
                break
            size, begin = line
            self._bytes += size
            if size > longest or self._bytes > self.limits.command_bytes:
                most = self.limits.command_bytes
                raise ProtocolError(
                    f"invalid bulk length: {size}; accepted are up to {longest}, and {most} in one command"
                )
            end = begin + size
            if length < end + 2:
                self._wanted = end + 2 - start
                self._bytes -= size
                break
            if data[end : end + 2] != b"\r\n":
                raise ProtocolError("a bulk string does not end where its length says")
            arguments.append(data[begin:end])
            self._left -= 1
            start = end + 2
        return start

    def _inline(self, data: bytes, start: int, commands: list[list[bytes]]) -> int | None:
        end = data.find(b"\n", start)
        longest = self.limits.inline_bytes
        if (len(data) if end < 0 else end) - start > longest:
            raise ProtocolError(f"too big inline request; accepted are up to {longest} bytes")
        # What is not text is told so at once: a client that speaks something else may never send a newline.
        text = data[start : len(data) if end < 0 else end].removesuffix(b"\r")
        if text and not _is_text(text):
            raise ProtocolError("not a Redis command; does the client speak another protocol?")
        if end < 0:
            return None
        words = split_words(text)
        if words:
            commands.append([b"", *words])
        return end + 1


def split_words(line: bytes) -> list[bytes]:
    """The words of a line; quotes hold spaces together, and in double ones a backslash escapes."""
    words: list[bytes] = []
    place = 0
    while place < len(line):
        if line[place : place + 1].isspace():
            place += 1
            continue
        word, place = _word(line, place)
        words.append(word)
    return words


def _word(line: bytes, place: int) -> tuple[bytes, int]:
    quote = line[place : place + 1]
    if quote not in {b'"', b"'"}:
        end = place
        while end < len(line) and not line[end : end + 1].isspace():
            if line[end] in _QUOTES:
                raise ProtocolError("unbalanced quotes in request")
            end += 1
        return line[place:end], end
    word = bytearray()
    place += 1
    while place < len(line):
        byte = line[place : place + 1]
        if byte == quote:
            if line[place + 1 : place + 2].strip():
                break
            return bytes(word), place + 1
        if byte == b"\\" and quote == b'"' and place + 1 < len(line):
            place += 1
            byte = _ESCAPED.get(line[place : place + 1], line[place : place + 1])
        word += byte
        place += 1
    raise ProtocolError("unbalanced quotes in request")


_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def _header(data: bytes, start: int) -> tuple[int, int] | None:
    """The number of a header and the position behind it; None when it is not all there."""
    end = data.find(b"\r\n", start, start + LONGEST_HEADER)
    known = _NUMBER_BY_DIGITS.get(data[start + 1 : end])
    if known is not None and end > 0:
        return known, end + 2
    if end < 0:
        if len(data) - start >= LONGEST_HEADER:
            raise ProtocolError("invalid length: the line is too long")
        digits = data[start + 1 :].removesuffix(b"\r")
        if digits and not digits.isdigit():
            raise ProtocolError(f"invalid length: {digits!r}; accepted are digits without leading zeros")
        return None
    digits = data[start + 1 : end]
    # Digits alone: int() would also take b" 7", b"+7" and b"1_000"; and no zeros in front.
    if not digits.isdigit() or (digits[:1] == b"0" and len(digits) > 1):
        raise ProtocolError(f"invalid length: {digits!r}; accepted are digits without leading zeros")
    return int(digits), end + 2


def _is_text(line: bytes) -> bool:
    return not line.translate(None, _TEXT)


_TEXT = bytes(range(32, 127)) + b"\t\r" + bytes(range(128, 256))
