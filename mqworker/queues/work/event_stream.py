"""Streams of events, one for each queue: how far they reach, what is in them, and dropping what was archived.

A block is named by its id, which only grows, and by its number: how many were appended before it and with it.
The number shows what an id cannot: whether blocks were dropped between two looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mqworker.errors import StoreRefused
from mqworker.model.names import QueueName, queue_name, whole_number
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.queues.work.snapshots import read_queue_names
from mqworker.store.command import ReplyError
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.store.store import Store

script = scripts_of(__package__)

BEGINNING = "0-0"
MOST_BLOCKS_HELD = 100_000_000

_PAGE_BLOCKS = 2_000
"""Listed in one call: a few milliseconds in which the server does nothing else."""
_PAGE_BYTES = 4_000_000
_FIRST_PAGE_BLOCKS = 50
_LARGEST_PAGE_BLOCKS = 5_000


@dataclass(frozen=True, slots=True)
class StreamTail:
    """How far a stream reaches at one instant."""

    newest: str
    """The id of the newest block ever appended."""
    appended: int
    """How many blocks were ever appended."""
    kept: int
    """How many of them are there."""

    @property
    def dropped(self) -> int:
        """How many blocks are there no longer: the oldest ones."""
        return self.appended - self.kept


@dataclass(slots=True)  # not frozen: one is made for each block of millions of events
class StoredBlock:
    """One entry of a stream as it is stored. Treat it as read-only."""

    id: str
    codec: str
    data: bytes
    count: int
    void: frozenset[int] = frozenset()


class EventStreams:
    """The streams of all queues of one namespace."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def queues(self) -> list[QueueName]:
        """All queues that were ever used, in order."""
        return sorted(queue_name(name) for name in read_queue_names(self._store, self._namespace))

    def tail(self, queue: str) -> StreamTail:
        """How far the stream of a queue reaches."""
        return self._store.run(
            Call(script("tail_events"), (self._key(queue),), (), lambda reply: StreamTail(*_tail(reply)))
        )

    def listed(self, queue: str, after: str, until: str) -> Iterator[tuple[str, int]]:
        """Id and number of events of every block after one and up to another, without their contents."""
        while True:
            arguments = (f"({after}", until, _PAGE_BLOCKS)
            page = self._store.run(Call(script("list_events"), (self._key(queue),), arguments, list))
            ids = [each.decode() for each in page[::2]]
            yield from zip(ids, page[1::2], strict=True)
            if len(ids) < _PAGE_BLOCKS:
                return
            after = ids[-1]

    def blocks(self, queue: str, after: str, until: str) -> Iterator[list[StoredBlock]]:
        """The blocks after one and up to another, in pages of a few megabytes."""
        key, count = self._key(queue), _FIRST_PAGE_BLOCKS
        while True:
            command = ("XRANGE", key, f"({after}", until, "COUNT", count)
            entries: RawReply = self._store.send([command], key)[0]
            if isinstance(entries, ReplyError):
                raise StoreRefused(f"the events of queue {queue!r}: {entries.code} {entries.text}")
            page = [_stored_block(entry_id, fields) for entry_id, fields in entries]
            if page:
                yield page
            if len(page) < count:
                return
            after, count = page[-1].id, _next_page(page)

    def trim(self, queue: str, until: str) -> int:
        """Drop the blocks of a queue up to and with that one; how many."""
        call = Call(script("trim_events"), (self._key(queue),), (_id_after(until),), int)
        return self._store.run(call)

    def hold(self, queue: str, blocks: int | None) -> None:
        """Keep so many blocks of a queue, whatever its producers say; None: as they say again.

        While somebody archives, the usual cap would drop what was not archived yet.
        """
        if blocks is not None:
            whole_number("blocks", blocks, least=1, most=MOST_BLOCKS_HELD)
        keys = WorkQueueKeys.of(self._namespace, queue_name(queue))
        switch = ("events_kept", "" if blocks is None else str(blocks))
        self._store.run(Call(script("configure"), keys.shared, switch, lambda _: None, is_numbered=True))

    def _key(self, queue: str) -> str:
        return WorkQueueKeys.of(self._namespace, queue_name(queue)).events


def id_order(block_id: str) -> tuple[int, int]:
    """What ids are sorted by: they are numbers, and as texts of any length they would not sort."""
    at_ms, _, number = block_id.partition("-")
    return int(at_ms), int(number)


def _id_after(block_id: str) -> str:
    at_ms, number = id_order(block_id)
    return f"{at_ms}-{number + 1}"


def _tail(reply: RawReply) -> tuple[str, int, int]:
    newest, appended, kept = reply
    return newest.decode(), appended, kept


def _stored_block(entry_id: bytes, fields: Sequence[bytes]) -> StoredBlock:
    """An entry as a block; one that another program wrote gets a codec that nobody can read."""
    try:
        count, codec, data = int(fields[1]), fields[2].decode(), fields[3]
        void = frozenset(map(int, fields[5].split(b","))) if len(fields) > _PLAIN_FIELDS else frozenset()
    except (IndexError, ValueError):
        return StoredBlock(entry_id.decode(), "?", b" ".join(fields), 1)
    return StoredBlock(entry_id.decode(), codec, data, count, void)


_PLAIN_FIELDS = 4


def _next_page(page: Sequence[StoredBlock]) -> int:
    """As many blocks as make a page of the right size, judging by the last one."""
    bytes_per_block = max(1, sum(len(block.data) + 50 for block in page) // len(page))
    return max(1, min(_LARGEST_PAGE_BLOCKS, _PAGE_BYTES // bytes_per_block))
