"""What topics accept, checked before anything is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from mqworker.errors import InvalidArgument
from mqworker.model.message import LARGEST_BODY_BYTES
from mqworker.model.names import LONGEST_HORIZON_MS, shown, whole_number

Orphans = Literal["drop", "requeue"]

LONGEST_NAME_BYTES = 512
LARGEST_BATCH = 1_000
"""Records in one call: they must fit Lua's stack, and nobody else should wait long for it."""

_MOST_OBSERVED_BYTES = 4 * 1024 * 1024
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{0,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """How topics behave. All programs that share them must say the same."""

    prefix: str = ""
    """What all documented keys begin with; '' for exactly the documented names."""
    silent_ms: int = 30_000
    """A peer that neither subscribed nor observed for so long is dropped."""
    grace_ms: int = 1_000
    """How long a backlog waits for more subscribers after its first; 0 for not at all."""
    orphans: Orphans = "drop"
    """What to do with records that a dropped peer had not observed. `requeue` puts them back in front of the
    main queue where it was the last peer that listened; elsewhere others have copies of their own."""
    observed_at_once: int = 50
    """How many records of each topic one `observe` takes."""
    observed_bytes: int = 1_048_576
    """After so many bytes, as stored, one `observe` takes no further record: most clients of gRPC refuse an
    answer of more than 4 MiB, and what was in it would be lost."""
    dispatched_at_once: int = LARGEST_BATCH
    """How many records of each topic one `dispatch` moves."""
    queue_ttl_ms: int | None = None
    """After so long without a publish, a main queue that nobody read is dropped; None for never."""

    def __post_init__(self) -> None:
        _check_prefix(self.prefix)
        if self.orphans not in get_args(Orphans):
            raise InvalidArgument(f'orphans is {shown(self.orphans)}; accepted are "drop" and "requeue"')
        whole_number("silent_ms", self.silent_ms, least=1, most=LONGEST_HORIZON_MS)
        whole_number("grace_ms", self.grace_ms, least=0, most=LONGEST_HORIZON_MS)
        whole_number("observed_at_once", self.observed_at_once, least=1, most=LARGEST_BATCH)
        whole_number("observed_bytes", self.observed_bytes, least=1, most=_MOST_OBSERVED_BYTES)
        whole_number("dispatched_at_once", self.dispatched_at_once, least=1, most=LARGEST_BATCH)
        if self.queue_ttl_ms is not None:
            whole_number("queue_ttl_ms", self.queue_ttl_ms, least=1, most=LONGEST_HORIZON_MS)


def _check_prefix(value: object) -> None:
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise InvalidArgument(
            f"prefix is {shown(value)}; accepted are up to 64 characters of A-Z a-z 0-9 _ . : -"
        )


def topic_key(value: object) -> str:
    """The key of a topic."""
    return _name("key", value)


def consumer_id(value: object) -> str:
    """The id that peers of one consumer share."""
    return _name("consumer", value)


def peer_name(value: object) -> str:
    """A peer, `address:port` as a rule. Without '_': that would make the names of its keys ambiguous."""
    peer = _name("peer", value)
    if "_" in peer:
        raise InvalidArgument(f"peer is {shown(value)}; accepted is a name without _, like 127.0.0.1:5467")
    return peer


def payload_bytes(value: object) -> bytes:
    """A payload; text becomes UTF-8, bytes stay as they are."""
    payload = value.encode() if isinstance(value, str) and _is_encodable(value) else value
    if not isinstance(payload, bytes):
        raise InvalidArgument(f"payload is {shown(value)}; accepted are bytes, or text that UTF-8 can hold")
    if len(payload) > LARGEST_BODY_BYTES:
        raise InvalidArgument(f"payload is {len(payload):,} bytes; accepted are up to {LARGEST_BODY_BYTES:,}")
    return payload


def _name(argument: str, value: object) -> str:
    if isinstance(value, str) and _is_encodable(value) and 0 < len(value.encode()) <= LONGEST_NAME_BYTES:
        return value
    raise InvalidArgument(
        f"{argument} is {shown(value)}; accepted is a text of 1 to {LONGEST_NAME_BYTES} bytes of UTF-8"
    )


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
