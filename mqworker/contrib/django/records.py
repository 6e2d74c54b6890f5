"""Records: what Django tells of a call and a queue does not keep, one string in Redis for each result.

Which task it was, with which arguments, who tried it when, and what it raised. The state and the result are
the queue's own: a record that is a little old, or was written by a run that lost its lease, never decides
whether a task has run. A record ends by its time to live.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from mqworker.contrib.django.keys import record_key
from mqworker.model.names import MessageId, parse_message_id
from mqworker.tasks.app import App

MONTH_MS = 30 * 24 * 3_600_000
MOST_ERRORS = 10
"""The latest ones: a record is read whole, by every `refresh`."""
MOST_WORKERS = 1_000
_PURPOSE = "django"


@dataclass(frozen=True, slots=True)
class Record:
    """One call."""

    task: str
    backend: str
    queue: str
    priority: int
    run_after_ms: int | None
    # Any: the user's values, as JSON has them.
    args: list[Any]
    kwargs: dict[str, Any]
    enqueued_at_ms: int
    started_at_ms: int | None = None
    attempted_at_ms: int | None = None
    finished_at_ms: int | None = None
    worker_ids: tuple[str, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    """Path of the class, and traceback, of each failed attempt."""
    failed_attempt: int | None = None
    """The delivery of the latest failure that was noted."""

    def begun(self, worker: str, now_ms: int) -> Record:
        """Another attempt has begun."""
        return replace(
            self,
            started_at_ms=self.started_at_ms or now_ms,
            attempted_at_ms=now_ms,
            finished_at_ms=None,
            worker_ids=(*self.worker_ids, worker)[-MOST_WORKERS:],
        )

    def failed(self, attempt: int, error: tuple[str, str], finished_at_ms: int | None) -> Record:
        """It raised; without an instant of its end it is tried again."""
        return replace(
            self,
            errors=(*self.errors, error)[-MOST_ERRORS:],
            failed_attempt=attempt,
            finished_at_ms=finished_at_ms,
        )

    def succeeded(self, now_ms: int) -> Record:
        """It is done."""
        return replace(self, finished_at_ms=now_ms)


class Records:
    """The records of an app, in Redis; sealed where the payloads of the app are."""

    def __init__(self, app: App) -> None:
        self._connections = app.connections

    def save(self, result: MessageId, record: Record, *, ttl_ms: int) -> None:
        """Store it over the one before."""
        text = json.dumps(asdict(record), separators=(",", ":")).encode()
        payloads = self._connections.payloads
        if payloads is not None:
            text = payloads.close_note(_PURPOSE, result, text)
        key = record_key(self._connections.namespace, result)
        self._connections.store.send([("SET", key, text, "PX", ttl_ms)], key)

    def load(self, result: str) -> tuple[MessageId, Record] | None:
        """The record of a result; None where there is none, or none that can be read."""
        message = parse_message_id(result.encode(errors="replace"))
        if message is None:
            return None
        key = record_key(self._connections.namespace, message)
        text = self._connections.store.send([("GET", key)], key)[0]
        if not isinstance(text, bytes):
            return None
        payloads = self._connections.payloads
        if payloads is not None:
            text = payloads.open_note(_PURPOSE, message, text)
        record = _decoded(text)
        return None if record is None else (message, record)


def _decoded(text: bytes) -> Record | None:
    try:
        fields = json.loads(text)
        record = Record(**fields)
        return replace(
            record,
            worker_ids=tuple(record.worker_ids),
            errors=tuple((str(path), str(trace)) for path, trace in record.errors),
        )
    except (TypeError, ValueError, RecursionError):
        return None  # of another version, or of somebody else
