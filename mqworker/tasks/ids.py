"""Ids for this process: a source per thread, for two must not count at once; a new one after a fork."""

from __future__ import annotations

import os
import threading

from mqworker.model.clock import SystemClock
from mqworker.model.message_id import MessageIdSource
from mqworker.model.names import MessageId


class IdSource(threading.local):
    """The id source of the calling thread."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Draw a new random part: the child of a fork would repeat its parent's ids."""
        source = MessageIdSource(SystemClock().now_ms)
        self.next, self.take = source.next, source.take


_sources = IdSource()
os.register_at_fork(after_in_child=_sources.renew)


def next_id() -> MessageId:
    """An id that nobody else has."""
    return _sources.next()


def next_ids(count: int) -> list[MessageId]:
    """`count` ids that nobody else has."""
    return _sources.take(count)
