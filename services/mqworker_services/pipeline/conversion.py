"""Conversion: the files of a lake from before there were tables become a table, where they are.

One commit adds all of them and says where the archive stands. Until then the lake is as it was, and the
command may be repeated. Only what had been committed is taken; the archiver writes the rest again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.checkpoint import Checkpoint, UnreadableCheckpoint, write_checkpoint
from mqworker_services.pipeline.engine import LocalEngine
from mqworker_services.pipeline.lake import NOTES, TABLE, EmptyLake, Lake
from mqworker_services.pipeline.lake_reading import BrokenFile
from mqworker_services.pipeline.offsets import from_document
from mqworker_services.pipeline.parquet_files import stats_of
from mqworker_services.pipeline.table import NONE_YET, LakeTable, WrittenFile, is_plain

_COMPACTED: Final = "c"


class CheckpointTooOld(MqworkerError):
    """Restore the newest checkpoint: going on from an old one would archive events a second time."""


class AlreadyConverted(MqworkerError):
    """Nothing to do: the lake has a table."""


def convert(lake: Lake) -> list[WrittenFile]:
    """Make a table of the files of a plain lake; which they are."""
    with lake.storage.exclusive(lake.lock):
        if not is_plain(lake):
            _refuse(lake)
        root = Path(lake.root)
        checkpoint = _old_checkpoint(root)
        paths = [*_committed_files(root, checkpoint.batch)]
        said = LocalEngine().each(partial(_adopted, root=str(root / TABLE)), paths)
        files = [WrittenFile(**json.loads(text)) for text in said]
        # The table is made with the first commit: a lake with an empty one would look converted.
        schema = pa.unify_schemas([pq.read_schema(root / TABLE / path) for path in paths])
        note = write_checkpoint(lake, checkpoint)
        LakeTable.create_with(lake, schema, files, checkpoint.batch, note)
        return files


def _refuse(lake: Lake) -> None:
    try:
        LakeTable.open(lake)
    except EmptyLake as error:
        raise EmptyLake(f"there is nothing to convert in {lake.root}") from error
    raise AlreadyConverted(f"the lake {lake.root} has a table already")


def _old_checkpoint(root: Path) -> Checkpoint:
    """Where the archive stood: files `offsets/N.json` and `commits/N.json`, and where the streams began."""
    folder = root / NOTES / "checkpoint"
    batch, planned = (_newest(folder / kind) for kind in ("commits", "offsets"))
    _refuse_old(root, planned)
    if batch == NONE_YET:
        return Checkpoint()
    try:
        start, end = (
            from_document(json.loads((folder / "offsets" / f"{name}.json").read_text(encoding="utf-8")))
            for name in ("start", batch)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableCheckpoint(f"the checkpoint {folder} cannot be read: {error}") from error
    return Checkpoint(batch, start, end)


def _newest(folder: Path) -> int:
    names = (file.stem for file in folder.glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=NONE_YET)


def _refuse_old(root: Path, planned: int) -> None:
    """A lake that is ahead of its checkpoint would get the events in between a second time."""
    names = (folder.name.removeprefix("batch=") for folder in (root / TABLE).glob("date=*/batch=*"))
    numbers = (name.removeprefix(_COMPACTED) for name in names)
    newest = max((int(number) for number in numbers if number.isdigit()), default=NONE_YET)
    if newest > planned:
        raise CheckpointTooOld(
            f"the lake {root} holds batch {newest}, but its checkpoint knows only up to {planned}: it is an "
            "older copy or was removed; restore the newest"
        )


def _committed_files(root: Path, committed: int) -> Iterator[str]:
    """Of the batches that were committed, without those whose rows stand in a compacted one already."""
    events, replaced = root / TABLE, _replaced(root)
    for file in sorted(events.glob("date=*/batch=*/[!._]*.parquet")):
        date, batch = (part.partition("=")[2] for part in file.parent.parts[-2:])
        number = batch.removeprefix(_COMPACTED)
        is_committed = not number.isdigit() or int(number) <= committed
        if is_committed and (date, batch) not in replaced:
            yield str(file.relative_to(events))


def _replaced(root: Path) -> set[tuple[str, str]]:
    """What the notes of a compaction say that was killed half way."""
    replaced: set[tuple[str, str]] = set()
    for note in (root / NOTES / "compaction").glob("*.json"):
        swap = json.loads(note.read_text(encoding="utf-8"))
        if (root / TABLE / f"date={swap['date']}" / f"batch={swap['batch']}").exists():
            replaced |= {(swap["date"], batch) for batch in swap["replaces"]}
    return replaced


# Any: pyarrow ships no types.
def _adopted(path: str, *, root: str) -> Iterator[bytes]:
    file = Path(root) / path
    try:
        metadata: Any = pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise BrokenFile(f"{file} is not a readable Parquet file: {error}; nothing was converted") from error
    day = path.partition("/")[0].removeprefix("date=")
    stats = json.dumps(stats_of(metadata))
    written = {
        "path": path,
        "date": day,
        "rows": metadata.num_rows,
        "bytes": file.stat().st_size,
        "stats": stats,
    }
    yield json.dumps(written).encode()
