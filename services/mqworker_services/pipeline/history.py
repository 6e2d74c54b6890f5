"""History: what the lake knows of jobs that Redis has forgotten. A program: a question in, an answer out.

It runs as a process of its own (mqworker/operate/lake.py starts it) for the time of one question: what reads
Parquet takes more memory than a whole console, and what a broken file may do to it ends with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.lake_reading import opened
from mqworker_services.pipeline.table import LakeFile, lake_files

COLUMNS = (
    "event",
    "ts",
    "seq",
    "task_id",
    "task",
    "queue",
    "worker",
    "node",
    "attempt",
    "enqueued_at",
    "started_at",
    "run_ms",
    "error",
    "error_msg",
)
MOST_EVENTS = 500
"""Of one job."""
_INSTANTS = frozenset({"ts", "enqueued_at", "started_at"})
_US_PER_MS = 1_000

# Any: JSON, and pyarrow ships no types.
Answer = dict[str, Any]


def answer(question: Mapping[str, Any]) -> Answer:
    """What is known of a job, or a slice of those that fit."""
    lake = Lake.at(question["place"])
    return _job(lake, question) if "id" in question else _search(lake, question)


def _job(lake: Lake, question: Mapping[str, Any]) -> Answer:
    wanted, queues = question["id"], [question["queue"]] if question.get("queue") else []
    files = [
        file for file in lake_files(lake, question.get("since_ms"), None, queues) if _may_hold(file, wanted)
    ]
    rows = [
        row
        for file in files
        for row in _rows(lake, file, lambda batch: pc.equal(batch.column("task_id"), wanted))
    ]
    if queues:
        rows = [row for row in rows if row["queue"] in queues]
    rows.sort(key=lambda row: (row["ts"], row["seq"]))
    return {"events": rows[-MOST_EVENTS:]}


def _may_hold(file: LakeFile, wanted: str) -> bool:
    return file.first_id is None or file.last_id is None or file.first_id <= wanted <= file.last_id


def _search(lake: Lake, question: Mapping[str, Any]) -> Answer:
    """The newest files first; `file` and `offset` say where the slice before ended."""
    since_ms, until_ms = question.get("since_ms"), question.get("until_ms")
    queues = [question["queue"]] if question.get("queue") else []
    files = sorted(lake_files(lake, since_ms, None, queues), key=_age, reverse=True)
    most, budget, at, offset = (question[name] for name in ("most", "budget", "file", "offset"))
    found: list[Answer] = []
    looked_at = 0
    for position in range(at, len(files)):
        rows = [
            row for row in _rows(lake, files[position], _filter_of(question)) if _is_within(row, until_ms)
        ]
        rows.sort(key=lambda row: (row["ts"], row["seq"]), reverse=True)
        looked_at += files[position].rows
        room = most - len(found)
        found += rows[offset : offset + room]
        if len(rows) > offset + room:
            return {"jobs": found, "looked_at": looked_at, "next": [position, offset + room]}
        offset = 0
        if len(found) >= most or looked_at >= budget:
            is_more = position + 1 < len(files)
            return {"jobs": found, "looked_at": looked_at, "next": [position + 1, 0] if is_more else None}
    return {"jobs": found, "looked_at": looked_at, "next": None}


def _age(file: LakeFile) -> tuple[str, int]:
    return file.date, file.last_ms or 0


def _is_within(row: Answer, until_ms: int | None) -> bool:
    return until_ms is None or (row["enqueued_at"] or row["ts"]) <= until_ms


def _filter_of(question: Mapping[str, Any]) -> Callable[[Any], Any]:
    def fitting(batch: Any) -> Any:  # noqa: ANN401 - as above
        mask = pc.is_in(batch.column("event"), value_set=pa.array(question["states"]))
        for name, text in (("queue", question.get("queue")), ("task", question.get("task"))):
            if text:
                mask = pc.and_kleene(mask, pc.match_substring(batch.column(name), text, ignore_case=True))
        if question.get("id_prefix"):
            mask = pc.and_kleene(mask, pc.starts_with(batch.column("task_id"), question["id_prefix"]))
        for word in question.get("words", ()):
            mask = pc.and_kleene(mask, _any_has(batch, word))
        return mask

    return fitting


def _any_has(batch: Any, word: str) -> Any:  # noqa: ANN401 - as above
    columns = [batch.column(name) for name in ("task_id", "task")]
    first, second = (pc.match_substring(column, word, ignore_case=True) for column in columns)
    return pc.or_kleene(first, second)


def _rows(lake: Lake, file: LakeFile, mask: Callable[[Any], Any]) -> Iterator[Answer]:
    with opened(lake, file) as parquet:
        present = set(parquet.schema_arrow.names)
        for batch in parquet.iter_batches(columns=[name for name in COLUMNS if name in present]):
            kept = batch.filter(pc.fill_null(mask(batch), False))  # noqa: FBT003 - pyarrow's own argument
            yield from (_plain(row) for row in kept.to_pylist())


def _plain(row: Mapping[str, Any]) -> Answer:
    return {name: _ms(value) if name in _INSTANTS else value for name, value in row.items()}


def _ms(instant: Any) -> int | None:  # noqa: ANN401 - a datetime, or nothing
    return None if instant is None else round(instant.timestamp() * 1000)


def main(arguments: Sequence[str] = ()) -> int:
    """Read a question, write the answer."""
    del arguments
    try:
        told = answer(json.load(sys.stdin))
    except MqworkerError as error:
        told = {"problem": str(error)}
    json.dump(told, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
