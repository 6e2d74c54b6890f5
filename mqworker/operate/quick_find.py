"""Finding one message in a long line: ids tell when they were made, and a line is nearly sorted by time.

So the place is guessed by bisection and looked at. Where that fails, for an id that a caller chose or one
that was put back in line, the whole line is searched as before.
"""

from __future__ import annotations

from mqworker.model.message_id import made_at_ms
from mqworker.model.names import MessageId
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import Whereabouts
from mqworker.store.script import RawReply

SHORT_LINE = 4_000
"""Searched as a whole, in a window or two."""
_WINDOW = 500
_WINDOWS = 8
_MOST_HOLES = 20
_HEADER = 25


def find_in_long_line(queue: WorkQueue, message: MessageId) -> Whereabouts | None:
    """Where it is, if it lies in the ready line where its id makes one expect it; None: not known yet."""
    made_ms = made_at_ms(message)
    ready, meta = queue.calls.keys.named("ready"), queue.calls.keys.meta
    length: RawReply = queue.store.send([("LLEN", ready)], meta)[0]
    if made_ms is None or length <= SHORT_LINE:
        return None
    # A window earlier: producers beside one another do not send in the order of their ids.
    first = max(0, _bisect(queue, length, made_ms) - _WINDOW)
    for window in range(_WINDOWS):
        # find.lua counts windows from the back of the line.
        offset = max(0, length - first - (window + 1) * _WINDOW)
        state, detail = queue.store.run(queue.calls.find(message, offset, _WINDOW))
        if state == "ready":
            return Whereabouts("ready", position=int(detail))
        if offset == 0:
            break
    return None


def _bisect(queue: WorkQueue, length: int, made_ms: int) -> int:
    """The first place whose message was made at this instant or later."""
    low, high = 0, length
    while low < high:
        middle = (low + high) // 2
        there_ms = _made_at(queue, middle)
        if there_ms is not None and there_ms < made_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _made_at(queue: WorkQueue, place: int) -> int | None:
    """When the message there was made; holes, and ids that tell nothing, are looked past."""
    keys = queue.calls.keys
    for step in range(_MOST_HOLES):
        record: RawReply = queue.store.send([("LINDEX", keys.named("ready"), place + step)], keys.meta)[0]
        if record is None:
            return None
        made_ms = made_at_ms(record[_HEADER:].split(b" ", 1)[0].decode(errors="replace"))
        if made_ms is not None:
            return made_ms
    return None
