"""Evidence from outside the ledger: the queue's stream of events, and the log of a node."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mqworker.model.event import decode_block
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.store import Store
from tests.drills.ledger import Ending

ENDINGS = {"succeeded", "retried", "released", "crashed", "reclaimed", "buried"}
_PAGE = 2_000


def read_events(store: Store, keys: WorkQueueKeys) -> list[dict[str, Any]]:
    """Everything that the queue recorded, in order, without what did not happen after all."""
    events: list[dict[str, Any]] = []
    stream, start = keys.named("events"), "-"
    while True:
        page: Any = store.send([("XRANGE", stream, start, "+", "COUNT", _PAGE)], keys.meta)[0]
        for _, entry in page:
            fields = dict(zip(entry[::2], entry[1::2], strict=True))
            events += _events_of(fields)
        if len(page) < _PAGE:
            return events
        start = f"({page[-1][0].decode()}"


def endings_of(events: Iterable[dict[str, Any]]) -> list[Ending]:
    """The events that end a delivery."""
    return [
        Ending(event["task_id"], event.get("attempt", 0), event["event"])
        for event in events
        if event["event"] in ENDINGS
    ]


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a node's log that are JSON; tracebacks and last words are not."""
    return list(_json_lines(path))


def ended_pids(log: Iterable[dict[str, Any]]) -> dict[int, str]:
    """Why each process ended that the supervisor collected, by pid."""
    pid_by_child: dict[tuple[str, int], int] = {}
    causes: dict[int, str] = {}
    for line in log:
        child = (line.get("child", ""), line.get("generation", 0))
        if line.get("event") == "child_ready":
            pid_by_child[child] = line["child_pid"]
        if line.get("event") == "child_ended" and child in pid_by_child:
            causes[pid_by_child[child]] = line["cause"]
    return causes


def _events_of(fields: dict[bytes, bytes]) -> list[dict[str, Any]]:
    (codec,) = fields.keys() - {b"n", b"v"}
    void = frozenset(map(int, fields[b"v"].split(b","))) if b"v" in fields else frozenset()
    return decode_block(codec.decode(), fields[codec], void)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text(errors="replace").splitlines():
        if text.startswith("{"):
            try:
                yield json.loads(text)
            except ValueError:
                continue  # two processes may have written at once
