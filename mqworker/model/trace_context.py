"""Trace contexts: what a message carries so that its run is found from whoever sent it. W3C Trace Context.

The ids of the span of a run are made of the delivery itself. So whoever writes that span, the worker or, if
it was killed, somebody else from what it left behind, writes the same one; writing it twice is writing it
once, for a backend goes by the ids.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping
from typing import Literal, NamedTuple

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
LONGEST_STATE = 512
"""Characters; what is longer is left out, as the standard allows."""

Relation = Literal["link", "parent"]
"""How the span of a run refers to the context of its message."""

# Later versions may be longer, and are read like this one.
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_FIRST_VERSION, _NO_VERSION = "00", "ff"
_SAMPLED = 1
_ALL = 2**32


class TraceContext(NamedTuple):
    """A span somewhere, as others refer to it."""

    trace_id: int
    span_id: int
    is_sampled: bool = True
    state: str = ""
    """The tracestate as it came."""

    @property
    def traceparent(self) -> str:
        """As it stands in a header."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.is_sampled:02x}"

    def headers(self) -> dict[str, str]:
        """What a message or a request carries."""
        state = {TRACESTATE: self.state} if self.state and len(self.state) <= LONGEST_STATE else {}
        return {TRACEPARENT: self.traceparent, **state}


def context_in(headers: Mapping[str, str]) -> TraceContext | None:
    """The context in headers, None when there is none, or one that cannot be read: then nobody fails."""
    text = headers.get(TRACEPARENT)
    found = None if text is None else _PARENT.fullmatch(text)
    if found is None:
        return None
    version, trace, span, flags, rest = found.groups()
    if version == _NO_VERSION or (version == _FIRST_VERSION and rest is not None):
        return None
    if not int(trace, 16) or not int(span, 16):
        return None
    state = headers.get(TRACESTATE, "")
    is_sampled = bool(int(flags, 16) & _SAMPLED)
    return TraceContext(
        int(trace, 16), int(span, 16), is_sampled, state if len(state) <= LONGEST_STATE else ""
    )


def context_of_run(
    queue: str, message: str, fence: int, sender: TraceContext | None, relation: Relation
) -> TraceContext:
    """The context of the span of a delivery's run: in a trace of its own, or in that of its sender."""
    digest = hashlib.blake2b(f"{queue} {message} {fence}".encode(), digest_size=24).digest()
    span_id = int.from_bytes(digest[16:]) or 1
    if sender is not None and relation == "parent":
        return TraceContext(sender.trace_id, span_id, state=sender.state)
    return TraceContext(int.from_bytes(digest[:16]) or 1, span_id)


class Sampling:
    """Which runs are recorded: as the sender decided, and a share of those of which nobody said anything.

    That share goes by the message's id: all attempts at it are recorded, or none, on whichever node.
    """

    def __init__(self, share: float) -> None:
        self.below = round(share * _ALL)
        """Of the ids' CRC-32; the runner of a worker compares by itself, for that is done for every run."""

    def takes(self, message: str, sender: TraceContext | None = None) -> bool:
        """Whether the runs of this message are recorded."""
        if sender is not None:
            return sender.is_sampled
        return zlib.crc32(message.encode()) < self.below
