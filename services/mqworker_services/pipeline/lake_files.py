"""Changing the lake's files so that a kill at any moment leaves either the old or the new, never a half."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mqworker.errors import MqworkerError


class LakeInUse(MqworkerError):
    """Wait, or stop the other one: only one process may write there."""


class BrokenFile(MqworkerError):
    """Restore or remove the file: it is not Parquet, or not all of it."""


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however that ends."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LakeInUse(f"another process writes to this lake and holds {lock}") from error
        yield


def install(staged: Path, target: Path) -> None:
    """Put a folder that is complete in the place of what an earlier attempt may have left there."""
    make_durable(staged)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    staged.rename(target)
    _sync(target.parent)


def write_note(file: Path, content: Mapping[Any, object]) -> None:
    """Write a small document, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
    _sync(draft)
    draft.replace(file)
    _sync(file.parent)


def make_durable(folder: Path) -> None:
    """Ask the disk to keep a folder: what was archived is dropped from Redis right after."""
    for file in folder.rglob("*"):
        _sync(file)
    _sync(folder)


def count_rows(folder: Path) -> int:
    """The rows of all Parquet files of a folder, as their footers tell; names the first that is broken."""
    rows = 0
    for file in sorted(folder.rglob("*.parquet")):
        try:
            rows += pq.read_metadata(file).num_rows
        except (OSError, pa.ArrowException) as error:
            raise BrokenFile(f"{file} is not a readable Parquet file: {error}") from error
    return rows


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
