"""Finding one message in a long line: ids tell when they were made, and a line is nearly sorted by time.

So the place is found by cutting the line into parts, again and again, and looked at. Where that fails, for an
id that a caller chose or one that was put back in line, the whole line is searched as before.
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
_PARTS = 8
"""Into which a line is cut by one look: seven places in one trip, instead of three trips."""
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
    """The first place whose message was made at this instant or later; several are looked at in one trip."""
    low, high = 0, length
    while low < high:
        places = sorted({low + (high - low) * part // _PARTS for part in range(1, _PARTS)})
        for place, there_ms in zip(places, _made_at(queue, places), strict=True):
            if there_ms is None or there_ms >= made_ms:
                high = min(high, place)
                break
            low = place + 1
    return low


def _made_at(queue: WorkQueue, places: list[int]) -> list[int | None]:
    """When the messages there were made; of a hole, or an id that tells nothing, the next one that does."""
    keys = queue.calls.keys
    records: RawReply = queue.store.send(
        [("LINDEX", keys.named("ready"), place) for place in places], keys.meta
    )
    return [_made(record) or _next_made(queue, place) for place, record in zip(places, records, strict=True)]


def _next_made(queue: WorkQueue, place: int) -> int | None:
    keys = queue.calls.keys
    records: RawReply = queue.store.send(
        [("LRANGE", keys.named("ready"), place, place + _MOST_HOLES)], keys.meta
    )[0]
    return next((made_ms for record in records if (made_ms := _made(record)) is not None), None)


def _made(record: bytes | None) -> int | None:
    if record is None:
        return None
    return made_at_ms(record[_HEADER:].split(b" ", 1)[0].decode(errors="replace"))
