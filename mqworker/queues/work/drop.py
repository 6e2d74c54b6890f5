"""Throwing away single dead letters; `purge` throws away all of them."""

from __future__ import annotations

from collections.abc import Sequence

from mqworker.model.names import MessageId
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)

_BATCH = 500


def drop(queue: WorkQueue, ids: Sequence[MessageId], *, events_kept: int) -> list[MessageId]:
    """Throw these dead letters away, a batch at a time; those that were dead."""
    dropped: list[MessageId] = []
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        call = Call(script("drop"), queue.calls.keys.shared, (events_kept, *batch), _ids)
        some: list[MessageId] = queue.store.run(call)
        dropped += some
    return dropped


def _ids(reply: RawReply) -> list[MessageId]:
    return [MessageId(each.decode(errors="replace")) for each in reply]
