"""Names and numbers as they may come from outside, checked once at the edge.

Every check returns the value it was given, or raises `InvalidArgument` with the argument's name, the value
and what is accepted. Full ASCII matches only: a dollar sign at the end of a pattern would accept a newline,
and the class of word characters a Cyrillic letter.
"""

import re
from collections.abc import Iterable
from typing import NewType
from urllib.parse import quote

from mqworker.errors import InvalidArgument

DEFAULT_NAMESPACE = "mqw"
"""What every key begins with, unless settings say otherwise."""

QueueName = NewType("QueueName", str)
TaskName = NewType("TaskName", str)
MessageId = NewType("MessageId", str)
ConsumerName = NewType("ConsumerName", str)

LONGEST_HORIZON_MS = 366 * 24 * 3600 * 1000
"""A delay, deadline or lease reaches at most a year ahead; anything longer is a unit mixed up."""

LARGEST_WHOLE = 2**63 - 1
"""As fences and tickets are kept in memory; no number that we write is larger."""

HIGHEST_PRIORITY = 9
MOST_CRASHES = 35
MOST_LOSSES = 25
MOST_TAGS = 16

_SHOWN_CHARACTERS = 60
_LONGEST_NAME = 128
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+=~-]{0,127}", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+=~-]{0,63}", re.ASCII)
_DIGITS = re.compile(rb"[0-9]{1,19}")
# Colons as Redis users write them; percent signs are escapes. A dot or a dash in front is a path or a flag.
_QUEUE = re.compile(r"(?:[A-Za-z0-9_]|%[0-9A-F]{2})(?:[A-Za-z0-9_.:-]|%[0-9A-F]{2})*", re.ASCII)
_ESCAPE = re.compile(r"(%[0-9A-Fa-f]{2})", re.ASCII)
_NOT_FIRST = ".:-"
_UNDECODED = "\ufffd"
_QUEUE_RULE = (
    "1 to 128 printable characters, where each but A-Z a-z 0-9 _ . : - counts as three for each of its bytes"
)
_NAME_RULE = "1 to 128 characters of A-Z a-z 0-9 _ . -, beginning with a letter, digit or _"
_ID_RULE = "1 to 128 characters of A-Z a-z 0-9 _ . : @ / + = ~ -, beginning with a letter, digit or _"
_TAG_RULE = "1 to 64 characters of A-Z a-z 0-9 _ . : @ / + = ~ -, beginning with a letter, digit or _"


def queue_name(value: object) -> QueueName:
    """A queue's name as it stands in keys, paths and tables; what was escaped already stays as it is.

    It becomes the hash tag of its keys, a word in records, a folder of an archive and a part of URLs. So of
    all that people write in names, only letters, digits and _ . : - stand there as they are; every other
    character becomes a percent sign and two hexadecimal digits for each of its bytes.
    """
    if isinstance(value, str):
        escaped = value if _QUEUE.fullmatch(value) else _escaped(value)
        if escaped is not None and len(escaped) <= _LONGEST_NAME:
            return QueueName(escaped)
    raise InvalidArgument(f"queue is {shown(value)}; accepted are {_QUEUE_RULE}")


def task_name(value: object) -> TaskName:
    """A task's name, as it is registered and stored with each message."""
    return TaskName(_matching("task", value, _NAME, _NAME_RULE))


def message_id(value: object) -> MessageId:
    """A message id chosen by a caller."""
    return MessageId(_matching("id", value, _ID, _ID_RULE))


def tag_names(value: object) -> tuple[str, ...]:
    """The tags of a call: a few short words, each once, in the order given."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgument(
            f"tags is {shown(value)}; accepted is a list of texts, such as ['acme', 'import']"
        )
    tags = tuple(dict.fromkeys(_matching("a tag", each, _TAG, _TAG_RULE) for each in value))
    if len(tags) > MOST_TAGS:
        raise InvalidArgument(f"tags: got {len(tags)}; accepted are up to {MOST_TAGS}")
    return tags


def consumer_name(value: object) -> ConsumerName:
    """A consumer's name: a node, or an outside client."""
    return ConsumerName(_matching("consumer", value, _NAME, _NAME_RULE))


# What comes back from the server was written by anybody: these answer with a value, or with None.


def parse_queue_name(raw: object) -> QueueName | None:
    """A queue's name as it was read."""
    text = _matched(raw, _QUEUE)
    return None if text is None else QueueName(text)


def parse_consumer_name(raw: object) -> ConsumerName | None:
    """A consumer's name as it was read."""
    text = _matched(raw, _NAME)
    return None if text is None else ConsumerName(text)


def parse_message_id(raw: object) -> MessageId | None:
    """A message's id as it was read."""
    text = _matched(raw, _ID)
    return None if text is None else MessageId(text)


def parse_whole(raw: object, *, most: int = LARGEST_WHOLE) -> int | None:
    """A whole number from 0 to `most`, in digits alone: int() would also take ' 7', '+7' and '1_000'."""
    if not isinstance(raw, bytes) or not _DIGITS.fullmatch(raw):
        return None
    number = int(raw)
    return number if number <= most else None


def whole_number(argument: str, value: object, *, least: int, most: int) -> int:
    """An integer within bounds; `True` is not a number here, and neither is 1.0."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise InvalidArgument(
        f"{argument} is {shown(value)}; accepted is a whole number from {least:,} to {most:,}"
    )


def shown(value: object) -> str:
    """A value as it may stand in an error text: quoted, escaped and cut short."""
    text = ascii(value)
    return (
        text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"
    )


def _matched(raw: object, pattern: re.Pattern[str]) -> str | None:
    if not isinstance(raw, bytes) or len(raw) > _LONGEST_NAME or not raw.isascii():
        return None
    text = raw.decode()
    return text if pattern.fullmatch(text) else None


def _matching(argument: str, value: object, pattern: re.Pattern[str], rule: str) -> str:
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    raise InvalidArgument(f"{argument} is {shown(value)}; accepted are {rule}")


def _escaped(name: str) -> str | None:
    """None for what is no text: control characters, and what could not be decoded."""
    if not name or not name.isprintable() or _UNDECODED in name:
        return None
    return _quoted(name)


def _quoted(name: str) -> str:
    parts = _ESCAPE.split(name)  # every second one is an escape, which stays
    quoted = (part.upper() if place % 2 else quote(part, safe=":") for place, part in enumerate(parts))
    text = "".join(quoted).replace("~", "%7E")
    return f"%{ord(text[0]):02X}{text[1:]}" if text[0] in _NOT_FIRST else text
