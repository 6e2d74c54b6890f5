"""The lake, for people: jobs that ended long ago, when Redis has forgotten them. Only where `lake` is set.

The setting names the place to which `mqworker pipeline archive` writes. A process that is started for each
question reads it (services/mqworker_services/pipeline/history.py), because the libraries that read Parquet
are large. It has events, and no arguments.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.message_id import made_at_ms
from mqworker.model.names import MessageId, message_id, shown
from mqworker.operate.job_filter import ENDED, JobFilter
from mqworker.operate.search import MOST_FOUND, FoundJob, SearchSlice, search
from mqworker.operate.system import System
from mqworker.queues.work.steps import Whereabouts
from mqworker.queues.work.trace import PastEvent, Trace

MOST_LOOKED_AT = 5_000_000
"""Events in one slice; they lie in columns, so that a million takes a fraction of a second."""
LONGEST_S = 30.0
CURSOR = "lake:"
_DAY_MS = 24 * 3_600_000
_READER = "mqworker_services.pipeline.history"


class LakeUnavailable(MqworkerError):
    """Look at the setting `lake`: what it names cannot be read."""


def search_with_lake(
    system: System, wanted: JobFilter, cursor: str | None = None, *, most: int = MOST_FOUND, budget: int
) -> SearchSlice:
    """As `search`; what ended is sought in the events that Redis keeps, and then in the lake."""
    if cursor is not None and cursor.startswith(CURSOR):
        return _search_lake(system, wanted, cursor, most)
    found = search(system, wanted, cursor, most=most, budget=budget)
    if found.cursor is None and system.settings.lake is not None and _ended_states(wanted):
        return SearchSlice(found.jobs, found.looked_at, f"{CURSOR}0:0")
    return found


def find_in_lake(system: System, message: str, queue: str | None) -> Trace | None:
    """What the lake tells of one job, None where there is none or it knows nothing."""
    place, wanted = system.settings.lake, message_id(message)
    if place is None:
        return None
    made_ms = made_at_ms(wanted)
    # A day of patience: the id is made by the clock of whoever sent it.
    since_ms = None if made_ms is None else made_ms - _DAY_MS
    told = _ask({"place": place, "id": wanted, "queue": queue, "since_ms": since_ms})
    events = [_past(each) for each in reversed(told["events"])]
    if not events:
        return None
    return Trace(str(told["events"][-1]["queue"]), MessageId(wanted), Whereabouts("absent"), past=events)


def _ended_states(wanted: JobFilter) -> list[str]:
    """What the lake can be asked for; it has neither arguments nor tags nor errors of what succeeded."""
    if wanted.arguments or wanted.tags or wanted.error:
        return []
    return [state for state in wanted.states if state in ENDED]


def _search_lake(system: System, wanted: JobFilter, cursor: str, most: int) -> SearchSlice:
    file, _, offset = cursor.removeprefix(CURSOR).partition(":")
    if system.settings.lake is None or not (file.isdecimal() and offset.isdecimal()):
        raise InvalidArgument(f"cursor is {shown(cursor)}; accepted is what the slice before gave")
    now_ms = system.now_ms()
    since_ms = None if wanted.younger_than_ms is None else now_ms - wanted.younger_than_ms
    until_ms = None if wanted.older_than_ms is None else now_ms - wanted.older_than_ms
    told = _ask(
        {
            "place": system.settings.lake,
            "states": _ended_states(wanted),
            "queue": wanted.queue,
            "task": wanted.task,
            "id_prefix": wanted.id_prefix,
            "words": list(wanted.words),
            "since_ms": since_ms,
            "until_ms": until_ms,
            "most": most,
            "budget": MOST_LOOKED_AT,
            "file": int(file),
            "offset": int(offset),
        }
    )
    following = told["next"]
    onward = None if following is None else f"{CURSOR}{following[0]}:{following[1]}"
    return SearchSlice(tuple(map(_found, told["jobs"])), told["looked_at"], onward, "lake")


# Any: JSON, here and below.
def _found(row: dict[str, Any]) -> FoundJob:
    return FoundJob(
        row["task_id"] or "?",
        row["queue"] or "?",
        row["event"],
        row["task"] or "?",
        row["enqueued_at"],
        row["attempt"] or 1,
        at_ms=row["ts"],
    )


def _past(row: dict[str, Any]) -> PastEvent:
    facts = {name: value for name, value in row.items() if value is not None}
    return PastEvent(row["ts"], row["event"], facts)


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    asked: subprocess.CompletedProcess[bytes] | None = None
    try:
        asked = subprocess.run(  # noqa: S603 - a module of ours, and the question is no argument
            [sys.executable, "-m", _READER],
            input=json.dumps(question).encode(),
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )
        told: dict[str, Any] = json.loads(asked.stdout)
    except subprocess.TimeoutExpired as error:
        raise LakeUnavailable(f"the lake did not answer within {LONGEST_S:g} s") from error
    except ValueError as error:
        errors = b"" if asked is None else asked.stderr
        said = (errors.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        hint = "; pip install 'mqworker[lake]'" if "ModuleNotFoundError" in said else ""
        raise LakeUnavailable(f"the lake cannot be read: {said}{hint}") from error
    if "problem" in told:
        raise LakeUnavailable(f"the lake cannot be read: {told['problem']}")
    return told
