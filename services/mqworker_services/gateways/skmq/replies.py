"""What the gateway answers, to the letter. Pure."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from mqworker.queues.skmq.frame import Word, encode_frame, encode_word

_LONGEST_QUOTE = 1_000
_LONGEST_NAME = 120


class Answer(NamedTuple):
    """The content of a `resp` frame: a status, and a text that people may read."""

    status: str
    content: str = ""


ACK = Answer("ack")
ERROR = Answer("error")
STORED = Answer("ack", "Message enqueue successful")
NOT_STORED = Answer("reject", "Message enqueue failed")
REGISTERED = Answer("ack", "Recipient register successful.")
NOT_REGISTERED = Answer("reject", "Recipient register failed.")
LOGIN_NEEDED = Answer("error", "token required")
PONG = encode_word(Word.PONG)


def already_exists(msgid: str) -> Answer:
    """To a message whose id is taken by one that is not settled yet."""
    return Answer("ack", f"message already exists, ID: {msgid}, Status ")


def not_permitted(user: str, verb: str, app: str) -> Answer:
    """To a user who may not do that."""
    return Answer("reject", f"user {user} may not {verb} on app {app[:_LONGEST_NAME]}")


def invalid_parameters(content: bytes) -> Answer:
    """To a registration that cannot be read."""
    quote = content[:_LONGEST_QUOTE].decode(errors="replace")
    return Answer("reject", f"Invalid parameters: {quote}")


@lru_cache(maxsize=64)
def encoded(answer: Answer, msgid: str = "") -> bytes:
    """The answer as it is sent. The document has no msgid in it: replies come in the order of requests."""
    text = json.dumps(answer._asdict(), separators=(",", ":"), ensure_ascii=False)
    return encode_frame("resp", msgid=msgid, content=text.encode(errors="replace"))
