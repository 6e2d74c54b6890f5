"""Guards: what keeps a second message with the same meaning out, and for how long."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

from mqworker.errors import InvalidArgument
from mqworker.model.names import LONGEST_HORIZON_MS, MessageId, shown, whole_number

_LONGEST_KEY = 4096
_IN_A_HEADER = re.compile(r"[!-~]{1,300}", re.ASCII)
_STORABLE = re.compile(r"[!-~]{1,200}", re.ASCII)


class GuardMode(StrEnum):
    """How long a guard holds; the value is the letter that stands in the record."""

    CHOSEN_ID = "i"
    UNTIL_SETTLED = "r"
    UNTIL_CLAIMED = "w"
    FOR_A_TIME = "t"
    KEEP_LAST = "l"
    """Until claimed; a second message replaces the first as long as that is delayed."""
    NEWEST = "n"
    """Until settled; a second message takes the key over, and the first is cancelled, also while it runs."""
    MEMBER = "m"
    """Of a workflow: until whatever follows from its end was done."""


@dataclass(slots=True)  # not frozen: see Delivery
class Guard:
    """A key that only one message may hold at a time. Treat it as read-only."""

    mode: GuardMode
    key: str
    ttl_ms: int = 0
    """For a time: how long it holds. Keep last: how long its message may be put off in all, 0 for ever."""
    tick_until_ms: int = 0
    """Of a tick of a schedule, `schedule@tick`, stored once for all time: until when it may be. Else 0."""

    def __post_init__(self) -> None:
        if not _IN_A_HEADER.fullmatch(self.key):
            raise InvalidArgument(
                f"guard key is {shown(self.key)}; accepted are 1 to 300 printable ASCII characters"
            )


def chosen_id_guard(message: MessageId) -> Guard:
    """The guard of an id chosen by the caller: a repeated enqueue is recognised even after the ack."""
    return Guard(GuardMode.CHOSEN_ID, f"id:{message}")


def member_guard(message: MessageId) -> Guard:
    """The guard of a workflow's member: its id says which workflow and which call of it."""
    return Guard(GuardMode.MEMBER, f"flow:{message}")


def unique_guard(key: object, mode: GuardMode, *, ttl_ms: int = 0) -> Guard:
    """The guard of a uniqueness key. Any text is accepted: what Redis cannot hold in a header is hashed."""
    if not isinstance(key, str) or not 1 <= len(key) <= _LONGEST_KEY:
        raise InvalidArgument(
            f"unique key is {shown(key)}; accepted is a text of 1 to {_LONGEST_KEY:,} characters"
        )
    if mode is GuardMode.FOR_A_TIME or ttl_ms:
        whole_number("unique ttl_ms", ttl_ms, least=1, most=LONGEST_HORIZON_MS)
    stored = key if _STORABLE.fullmatch(key) else "#" + hashlib.sha256(key.encode()).hexdigest()
    return Guard(mode, f"key:{stored}", ttl_ms)
