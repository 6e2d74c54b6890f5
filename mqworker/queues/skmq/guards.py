"""The guards of SKMQ messages: who holds one lives, and nothing else is proof of that."""

from __future__ import annotations

from mqworker.model.guard import Guard, GuardMode, chosen_id_guard, unique_guard
from mqworker.model.names import MessageId


def guard_of_message(msgid: str) -> Guard:
    """Of a message: its msgid is taken until it is settled."""
    return unique_guard(msgid, GuardMode.UNTIL_SETTLED)


def guard_of_copy(copy: MessageId) -> Guard:
    """Of a topic's copy, which is stored once, however often its message is split."""
    return chosen_id_guard(copy)
