"""Accidents: workers that died over what they ran. Written by dispatchers, read by people.

<namespace>:accidents   stream   mark, told (JSON); about KEPT entries
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mqworker.errors import InvalidMessage
from mqworker.model.strict_json import JsonLimits, read_json
from mqworker.queues.work.keys import accidents_key
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.store.store import Store

script = scripts_of(__package__)

KEPT = 1_000
MOST_RUNS = 20
"""How many of a worker's deliveries are kept in full; the rest only as a number."""
_LONGEST_CAUSE = 2_000
_LIMITS = JsonLimits(most_bytes=262_144, deepest=6, most_nodes=2_000)


@dataclass(frozen=True, slots=True)
class LostRun:
    """One delivery that a worker had when it died, and what became of it."""

    queue: str
    id: str
    task: str
    attempt: int
    fate: str
    """crashed, suspected, timed out, buried or released."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Accident:
    """A worker that died."""

    node: str
    worker: str
    cause: str
    """The signal or the exit code, why it was killed, and its last words, as far as there were any."""
    rss_bytes: int
    """Its largest memory; 0 where nobody knows."""
    runs: tuple[LostRun, ...]
    left_out: int = 0
    at_ms: int = 0
    """By the server's clock, once it is written down."""


def note_call(namespace: str, mark: str, accident: Accident) -> Call[int]:
    """The script that writes it down, once."""
    fields = asdict(accident)
    del fields["at_ms"]
    fields["cause"] = accident.cause[:_LONGEST_CAUSE]
    return Call(script("note_accident"), (accidents_key(namespace),), (KEPT, mark, json.dumps(fields)), int)


def read_accidents(store: Store, namespace: str, count: int = 100) -> list[Accident]:
    """The newest accidents, newest first; entries of other programs are skipped."""
    key = accidents_key(namespace)
    entries: RawReply = store.send([("XREVRANGE", key, "+", "-", "COUNT", count)], key)[0]
    found = (_accident(entry_id, fields) for entry_id, fields in entries or [])
    return [each for each in found if each is not None]


def _accident(entry_id: bytes, fields: list[bytes]) -> Accident | None:
    told = dict(zip(fields[::2], fields[1::2], strict=False)).get(b"told", b"")
    try:
        document = read_json(told, _LIMITS)
        runs = tuple(_run(each) for each in document["runs"][:MOST_RUNS])
        return Accident(
            node=str(document["node"]),
            worker=str(document["worker"]),
            cause=str(document["cause"]),
            rss_bytes=int(document["rss_bytes"]),
            runs=runs,
            left_out=int(document["left_out"]),
            at_ms=int(entry_id.split(b"-")[0]),
        )
    except (InvalidMessage, ValueError, TypeError, LookupError, AttributeError):
        return None


# Any: JSON; each value is made what it has to be.
def _run(fields: Mapping[str, Any]) -> LostRun:
    return LostRun(
        str(fields["queue"]),
        str(fields["id"]),
        str(fields["task"]),
        int(fields["attempt"]),
        str(fields["fate"]),
        str(fields.get("reason", "")),
    )
