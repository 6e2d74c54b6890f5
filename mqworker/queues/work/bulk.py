"""Bulk enqueueing: the rows of one part of a run, each stored once however often the part is tried.

Spark runs a part anew when it failed, and a second time beside the first when that seems slow. So the server
notes for each part how many rows it stored and a digest over them (enqueue_bulk.lua). An attempt passes over
what is stored already and compares: a part that came out with other rows than before is refused, for what was
stored of it could be neither taken back nor told apart. Decision 10 has the reasons and the measurements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mqworker.errors import InvalidArgument, MqworkerError, StoreRefused
from mqworker.model.envelope import encode_call, encode_plain_calls, explain
from mqworker.model.event import IDS
from mqworker.model.guard import chosen_id_guard
from mqworker.model.message import LARGEST_BODY_BYTES, USUAL_MAX_CRASHES, Message
from mqworker.model.names import DEFAULT_NAMESPACE, MessageId, shown, task_name, whole_number
from mqworker.model.record import crash_digit
from mqworker.model.value_codec import NotAccepted, Value
from mqworker.queues.work.keys import WorkQueueKeys, queues_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import LARGEST_BATCH, LARGEST_BATCH_BYTES
from mqworker.store.procedure import Commands, Procedure
from mqworker.store.script import Call, scripts_of

script = scripts_of(__package__)

PROGRESS_KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""How long a run that did not end may be taken up again."""
_ENDED_KEPT_MS: Final = 600_000
"""How long leftover attempts may go on after a run has ended."""
_LONGEST_RUN: Final = 64
_MOST_PARTS: Final = 10_000_000
_DIGEST_BYTES: Final = 16


class RowsChanged(MqworkerError):
    """Give each row an id, or write the rows to a file first: they came out otherwise when tried again."""


@dataclass(frozen=True, slots=True)
class BulkRun:
    """What the parts of one run have in common."""

    keys: WorkQueueKeys
    name: str
    task: str
    namespace: str = DEFAULT_NAMESPACE
    events_kept: int = 10_000
    max_crashes: int | None = USUAL_MAX_CRASHES
    max_body_bytes: int = LARGEST_BODY_BYTES

    def __post_init__(self) -> None:
        task_name(self.task)
        if not (self.name.isascii() and self.name.isalnum() and len(self.name) <= _LONGEST_RUN):
            raise InvalidArgument(
                f"run is {shown(self.name)}; accepted are 1 to {_LONGEST_RUN} letters and digits"
            )


class BulkPart:
    """One attempt at one part of a run; its rows come in order, from the first."""

    def __init__(self, run: BulkRun, number: int) -> None:
        whole_number("part", number, least=0, most=_MOST_PARTS)
        self._run = run
        self._number = number
        self._ids = f"{run.name}p{number}r"  # letters and digits alone: the quickest to read for a dispatcher
        self._head = f"0--{crash_digit(run.max_crashes)}00000000{self._ids}".encode()
        self._middle = f" {run.task} ".encode()
        self._rows = 0
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._noted_rows, self._noted = 0, ""
        self._is_registered = False

    @property
    def rows(self) -> int:
        """How many rows this attempt has behind it, stored by it or before."""
        return self._rows

    def add(self, bodies: Sequence[bytes]) -> Procedure[None]:
        """The next rows, each the body of a call."""
        if not self._is_registered:
            registry = queues_key(self._run.namespace)
            yield Commands((("SADD", registry, self._run.keys.queue),), registry)
            self._is_registered = True
        for batch in _batches(bodies):
            self._check_sizes(batch)
            yield from self._add_batch(self._records(batch))

    def end(self) -> None:
        """There are no more rows; raises when an earlier attempt had some."""
        if self._rows < self._noted_rows:
            raise self._changed(f"it ends after {self._rows:,} rows, and {self._noted_rows:,} are stored")

    def _add_batch(self, records: list[bytes]) -> Procedure[None]:
        while records:
            known = min(len(records), self._noted_rows - self._rows)
            if known > 0:
                self._pass(records[:known], self._after(records[:known]))
                records = records[known:]
                continue
            after = self._after(records)
            self._note((yield self._call(records, after)))
            if self._noted == self._text(self._rows + len(records), after):
                self._pass(records, after)
                return

    def _check_sizes(self, bodies: Sequence[bytes]) -> None:
        most = self._run.max_body_bytes
        if max(map(len, bodies)) > most:
            row = next(row for row, body in enumerate(bodies, self._rows) if len(body) > most)
            raise InvalidArgument(
                f"the arguments of {self._run.task} in row {row:,} of part {self._number} are "
                f"{len(bodies[row - self._rows]):,} bytes; accepted are up to {most:,} (the setting "
                "max_message_bytes)"
            )

    def _note(self, noted: str) -> None:
        """Note what the server knows of this part; raises if our rows cannot begin like that."""
        self._noted = noted
        self._noted_rows = int(noted.partition(" ")[0] or 0)
        if self._noted_rows < self._rows:
            raise StoreRefused(
                f"part {self._number} of run {self._run.name}: {self._rows:,} rows were stored, and the "
                f"server knows of {self._noted_rows:,}: it lost its newest writes; try the part again"
            )
        self._compare()

    def _pass(self, records: Sequence[bytes], after: hashlib.blake2b) -> None:
        self._rows += len(records)
        self._digest = after
        self._compare()

    def _compare(self) -> None:
        if self._rows == self._noted_rows and self._noted != self._text(self._rows, self._digest):
            raise self._changed(f"among the first {self._rows:,} rows, which are stored, some are others now")

    def _changed(self, what: str) -> RowsChanged:
        return RowsChanged(
            f"part {self._number} of run {self._run.name} came out otherwise when tried again: {what}. "
            "Name a column that tells rows apart (option id), or write the rows to a file and enqueue that"
        )

    def _records(self, bodies: Sequence[bytes]) -> list[bytes]:
        head, middle = self._head, self._middle
        return [b"%b%d%b%b" % (head, row, middle, body) for row, body in enumerate(bodies, self._rows)]

    def _after(self, records: Sequence[bytes]) -> hashlib.blake2b:
        after = self._digest.copy()
        after.update(b"".join(records))
        return after

    @staticmethod
    def _text(rows: int, digest: hashlib.blake2b) -> str:
        return f"{rows} {digest.hexdigest()}" if rows else ""

    def _call(self, records: Sequence[bytes], after: hashlib.blake2b) -> Call[str]:
        run, ids = self._run, self._ids
        last = self._rows + len(records)
        block = " ".join([run.task, *[f"{ids}{row}" for row in range(self._rows, last)]])
        return Call(
            script("enqueue_bulk"),
            (*run.keys.plain, run.keys.bulk(run.name)),
            (
                str(self._number),
                self._text(self._rows, self._digest),
                self._text(last, after),
                PROGRESS_KEPT_MS,
                run.events_kept,
                IDS,
                block.encode(),
                *records,
            ),
            bytes.decode,
        )


def rows_stored(work: WorkQueue, run: str) -> int:
    """How many rows of a run are stored, in all parts; 0 also when it is long forgotten."""
    key = work.calls.keys.bulk(run)
    (noted,) = work.store.send([("HVALS", key)], key)
    texts = noted if isinstance(noted, list) else []
    return sum(int(text.partition(b" ")[0]) for text in texts if isinstance(text, bytes))


def end_run(work: WorkQueue, run: str, window_ms: int) -> None:
    """All parts are stored: from now on the run is remembered no longer than an id is."""
    key = work.calls.keys.bulk(run)
    work.store.send([("PEXPIRE", key, max(window_ms, _ENDED_KEPT_MS))], key)


def _batches(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """As many bodies as one call may carry."""
    first = batch_bytes = 0
    for at, body in enumerate(bodies):
        batch_bytes += len(body)
        if at - first == LARGEST_BATCH or (at > first and batch_bytes > LARGEST_BATCH_BYTES):
            yield bodies[first:at]
            first, batch_bytes = at, len(body)
    if first < len(bodies):
        yield bodies[first:]


BATCH: Final = 1_000


class NamedCalls:
    """The way into one queue for calls of one task."""

    def __init__(
        self,
        work: WorkQueue,
        task: str,
        *,
        max_crashes: int | None = USUAL_MAX_CRASHES,
        max_message_bytes: int = LARGEST_BODY_BYTES,
    ) -> None:
        self._work = work
        self._task = task_name(task)
        self._max_crashes = max_crashes
        self._max_message_bytes = max_message_bytes

    def enqueue(self, calls: Iterable[tuple[str, Mapping[str, Value]]]) -> int:
        """Store calls, each an id and arguments by name; how many were new.

        An id that is in the queue, or was settled within the setting dedup_window_s, is not stored again. All
        arguments are checked before any is stored.
        """
        outcome = self._work.enqueue(*[self._message(call_id, arguments) for call_id, arguments in calls])
        return sum(each.is_new for each in outcome)

    def _message(self, call_id: str, arguments: Mapping[str, Value]) -> Message:
        if not isinstance(call_id, str):
            raise InvalidArgument(f"id is {shown(call_id)}; accepted is a text, for each call its own")
        body = named_call_body(self._task, arguments)
        if len(body) > self._max_message_bytes:
            raise InvalidArgument(
                f"the arguments of {self._task} {call_id} are {len(body):,} bytes; accepted are up to "
                f"{self._max_message_bytes:,} (the setting max_message_bytes)"
            )
        wanted = MessageId(call_id)
        return Message(wanted, body, self._task, guard=chosen_id_guard(wanted), max_crashes=self._max_crashes)


def named_call_body(task: str, arguments: Mapping[str, Value]) -> bytes:
    """The body of a call with its arguments by name; raises InvalidArgument for what cannot be sent."""
    try:
        return encode_call((), arguments)
    except NotAccepted as refused:
        raise explain(refused, task, arguments) from refused


def plain_call_bodies(names: Sequence[str], columns: Sequence[Iterable[Value]]) -> list[bytes]:
    """The same for many calls, column by column, of plain values that the caller has checked."""
    return encode_plain_calls(names, columns)
