"""SKMQ frames: how messages are cut out of a stream of bytes, and written into one. Pure; knows no sockets.

A frame is lines `name=value`, each ended by CRLF, and an empty line. The document has no way to carry a
CRLF in the content, so there is an addition that older peers ignore: with `length=<n>` before `content=` the
content is exactly the n bytes behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.names import shown

DEFAULT_PORT = 1734
LARGEST_FRAME_BYTES = 16 * 1024 * 1024
LONGEST_LINE_BYTES = 64 * 1024
"""Of every line but the content: nobody may fill the memory with a name."""

_END_OF_LINE = b"\r\n"
_END_OF_FRAME = b"\r\n\r\n"
_SMALL_BYTES = 16 * 1024
_CONTENT = b"content="
_TEXTS = {b"type", b"appid", b"msgid", b"rid"}
_MOST_LENGTH_DIGITS = 10


@dataclass(slots=True)  # not frozen: twenty thousand are made each second
class Frame:
    """One message of the protocol. Treat it as read-only; a text that was not UTF-8 holds surrogates."""

    type: str
    appid: str = ""
    msgid: str = ""
    content: bytes = b""
    rid: str = ""
    """An addition to the document: which recipient speaks, where a topic has several."""


class Word(Enum):
    """The two lines that are whole messages by themselves."""

    PING = b"ping"
    PONG = b"pong"


Item = Frame | Word


class BrokenStream(MqworkerError):
    """Answer with this text and close the connection: where the next frame begins, nobody can know."""


class FrameDecoder:
    """Gives the same items however the bytes were cut."""

    def __init__(self, *, most_bytes: int = LARGEST_FRAME_BYTES) -> None:
        self.most_bytes = most_bytes
        """Of one frame; may be changed at any time."""
        self._buffer = bytearray()
        self._fields: dict[bytes, bytes] = {}
        self._length: int | None = None
        self._consumed = 0  # bytes of the frame under way that are no longer in the buffer
        self._searched = 0  # of the buffer, without an end of line in it

    def feed(self, data: bytes, take: Callable[[Item], object]) -> None:
        """Take in bytes and hand on what is complete now. Raises `BrokenStream`, after what came before."""
        self._buffer += data
        start = 0
        try:
            while (end := self._whole(start, take) or self._next(start, take)) is not None:
                start = end
        finally:
            del self._buffer[:start]
        self._refuse_excess()

    @property
    def has_remainder(self) -> bool:
        """Whether a frame was begun and not finished."""
        return bool(self._buffer or self._consumed)

    def _whole(self, start: int, take: Callable[[Item], object]) -> int | None:
        """The short way for nearly all frames: small, complete, and made of fields only.

        None where there is anything else: line by line it is read then, with the same result.
        """
        if self._consumed:  # inside of a frame already
            return None
        end = self._buffer.find(_END_OF_FRAME, start, start + _SMALL_BYTES)
        if end < 0 or end - start > self.most_bytes:
            return None
        lines = bytes(self._buffer[start:end]).split(_END_OF_LINE)
        try:
            fields = dict([line.split(b"=", 1) for line in lines])
        except ValueError:  # a line without a sign
            return None
        if b"length" in fields:
            return None
        self._searched = 0
        if fields.get(b"type"):
            take(_frame(fields))
        return end + 4

    def _next(self, start: int, take: Callable[[Item], object]) -> int | None:
        """Read one line, or a content of known length, from there on; where it ends, None without an end."""
        if self._length is not None and self._buffer.startswith(_CONTENT, start):
            return self._content_by_length(start, take)
        end = self._buffer.find(_END_OF_LINE, max(start, self._searched))
        if end < 0:
            self._searched = max(0, len(self._buffer) - 1 - start)
            return None
        self._searched = 0
        self._line(bytes(self._buffer[start:end]), take)
        return end + 2

    def _line(self, line: bytes, take: Callable[[Item], object]) -> None:
        if not line:
            self._finish(take)
            return
        self._refuse_long(len(line), is_content=line.startswith(_CONTENT))
        self._consumed += len(line) + 2
        name, equals, value = line.partition(b"=")
        if equals:
            self._field(name, value)
        elif line in _WORDS:
            take(_WORDS[line])
            self._consumed -= len(line) + 2  # it is not part of the frame around it
        else:
            raise BrokenStream("malformed frame")

    def _field(self, name: bytes, value: bytes) -> None:
        if name in _TEXTS or name == b"content":
            self._fields[name] = value
        elif name == b"length":
            if not value.isdigit() or len(value) > _MOST_LENGTH_DIGITS:
                raise BrokenStream("malformed frame")
            self._length = int(value)

    def _content_by_length(self, start: int, take: Callable[[Item], object]) -> int | None:
        length = self._length or 0
        if self._consumed + len(_CONTENT) + length > self.most_bytes:
            raise BrokenStream("frame too large")
        first = start + len(_CONTENT)
        end = first + length
        if len(self._buffer) < end + 4:
            return None
        if self._buffer[end : end + 4] != b"\r\n\r\n":
            raise BrokenStream("malformed frame")
        self._fields[b"content"] = bytes(self._buffer[first:end])
        self._finish(take)
        return end + 4

    def _finish(self, take: Callable[[Item], object]) -> None:
        fields, self._fields = self._fields, {}
        self._length, self._consumed = None, 0
        if fields.get(b"type"):  # without it a frame is thrown away whole, unanswered
            take(_frame(fields))

    def _refuse_excess(self) -> None:
        if self._length is not None and self._buffer.startswith(_CONTENT):
            return
        # One less than is there: the last byte may be the first half of an end of line.
        if len(self._buffer) > 1:
            self._refuse_long(len(self._buffer) - 1, is_content=self._buffer.startswith(_CONTENT))

    def _refuse_long(self, line_bytes: int, *, is_content: bool) -> None:
        if self._consumed + line_bytes > self.most_bytes or (
            line_bytes > LONGEST_LINE_BYTES and not is_content
        ):
            raise BrokenStream("frame too large")


def encode_frame(
    type: str,  # noqa: A002 - the name of the parameter on the wire
    *,
    appid: str = "",
    msgid: str = "",
    rid: str = "",
    content: bytes | None = None,
) -> bytes:
    """A frame as it is sent: content last, with its length only where an end of line would cut it short."""
    texts = (("type", type), ("appid", appid), ("msgid", msgid), ("rid", rid))
    lines = [f"{name}={_one_line(name, value)}".encode() for name, value in texts if value]
    if content is not None:
        if _END_OF_LINE in content:
            lines.append(b"length=%d" % len(content))
        lines.append(_CONTENT + content)
    return _END_OF_LINE.join([*lines, b"", b""])


def encode_word(word: Word) -> bytes:
    """`ping` or `pong` as it is sent."""
    return word.value + b"\r\n\r\n"


def _frame(fields: dict[bytes, bytes]) -> Frame:
    get = fields.get
    return Frame(
        get(b"type", b"").decode(errors="surrogateescape"),
        get(b"appid", b"").decode(errors="surrogateescape"),
        get(b"msgid", b"").decode(errors="surrogateescape"),
        get(b"content", b""),
        get(b"rid", b"").decode(errors="surrogateescape"),
    )


def _one_line(name: str, value: str) -> str:
    if "\r\n" in value:
        raise InvalidArgument(f"{name} is {shown(value)}; accepted is a text without an end of line")
    return value


_WORDS = {word.value: word for word in Word}
