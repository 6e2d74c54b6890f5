"""Storage: where a lake is kept, a folder or a bucket, and the small notes beside its table.

A value that can be sent to executors. Files are written and read through pyarrow's filesystems; the table
itself is the business of delta-rs, which gets its options from here.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from mqworker.errors import InvalidArgument, MqworkerError

OPTIONS: Final = ("endpoint", "region")
"""What `--storage` accepts; credentials come from where AWS's own programs take them."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_CONNECT_S: Final = 5.0
_REQUEST_S: Final = 30.0
_RETRY_S: Final = 15
"""A lake that does not answer for so long is told, rather than waited for."""
_URL_AND_OPTIONS: Final = "accepted is a folder, as a path or as file:///…, or a bucket as s3://bucket/path"


class LakeInUse(MqworkerError):
    """Wait, or stop the other one: only one process may write there."""


class StorageUnavailable(MqworkerError):
    """Look at the storage of the lake: it does not answer, or refuses. Nothing was committed."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A place for files."""

    root: str
    """An absolute path, or `s3://bucket/path`."""
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def at(cls, place: str, options: Mapping[str, str] | None = None) -> Storage:
        """The storage that `--lake` names; what is not supported is refused by its name."""
        found = _SCHEME.match(place)
        scheme = found.group(1).lower() if found is not None else ""
        given = tuple(sorted((options or {}).items()))
        for name, _ in given:
            if name not in OPTIONS:
                raise InvalidArgument(f"--storage is {name!r}; accepted are {', '.join(OPTIONS)}")
        match scheme:
            case "":
                return cls(str(Path(place).absolute()), given)
            case "file":
                return cls(_path_of(place), given)
            case "s3" | "s3a":
                return cls(_bucket_of(place), given)
            case _:
                raise InvalidArgument(
                    f"--lake is {place!r}, and {scheme} is not supported; {_URL_AND_OPTIONS}"
                )

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine, or one that it mounts."""
        return not self.root.startswith("s3://")

    @property
    def table_options(self) -> dict[str, str]:
        """The options in the words of delta-rs."""
        if self.is_local:
            return {}
        named = {"endpoint": "endpoint_url", "region": "region"}
        return {named[name]: value for name, value in self.options} | {
            "allow_http": "true",  # only for an endpoint that is http://
            "connect_timeout": f"{_CONNECT_S:.0f}s",
            "timeout": f"{_REQUEST_S:.0f}s",
            "retry_timeout": f"{_RETRY_S}s",
        }

    # Any: pyarrow ships no types.
    @property
    def files(self) -> Any:  # noqa: ANN401
        """The filesystem of pyarrow; paths in it come from `path`."""
        return fs.LocalFileSystem() if self.is_local else _bucket_files(self.options)

    def path(self, relative: str) -> str:
        """A path below the root, as `files` takes it."""
        return f"{self.root.removeprefix('s3://')}/{relative}"

    def url(self, relative: str) -> str:
        """The same for delta-rs, Spark and people."""
        return f"{self.root}/{relative}"

    def write_note(self, relative: str, content: Mapping[str, object]) -> None:
        """Write a small document, whole or not at all."""
        text = json.dumps(content, sort_keys=True)
        if self.is_local:
            _write_durably(Path(self.path(relative)), text)
            return
        with self.told(), self.files.open_output_stream(self.path(relative)) as note:
            note.write(text.encode())

    # Any: what JSON holds.
    def read_note(self, relative: str) -> Any:  # noqa: ANN401
        """A document; raises FileNotFoundError when there is none, ValueError when it is none."""
        with self.told(), self.files.open_input_stream(self.path(relative)) as note:
            return json.loads(note.read())

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder; none when there is no such folder."""
        with self.told():
            found = self.files.get_file_info(fs.FileSelector(self.path(folder), allow_not_found=True))
        return sorted(each.base_name for each in found if each.type == fs.FileType.File)

    def size(self, relative: str) -> int | None:
        """The size of a file in bytes; None when it is not there."""
        with self.told():
            found = self.files.get_file_info(self.path(relative))
        return found.size if found.type == fs.FileType.File else None

    def remove(self, relative: str) -> None:
        """Remove a file, if it is there."""
        with self.told():
            try:
                self.files.delete_file(self.path(relative))
            except FileNotFoundError:
                return

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors of a bucket become a sentence; those of a disk name their file already."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            if self.is_local:
                raise
            raise StorageUnavailable(
                f"the storage {self.root} does not do as asked: {_short(error)}"
            ) from error

    @contextmanager
    def exclusive(self, lock: str) -> Iterator[None]:
        """Hold a lock that ends with the process. A bucket has none: there the table's commit decides."""
        if not self.is_local:
            yield
            return
        path = Path(self.path(lock))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LakeInUse(f"another process writes to this lake and holds {path}") from error
            yield


def make_durable(*paths: Path) -> None:
    """Ask the disk to keep files and folders: what was archived is dropped from Redis right after."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def parse_storage(pairs: tuple[str, ...]) -> dict[str, str]:
    """`--storage NAME=VALUE`, as often as it was given."""
    options = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not is_pair or name not in OPTIONS:
            raise InvalidArgument(
                f"--storage is {pair!r}; accepted is NAME=VALUE with a name of {', '.join(OPTIONS)}"
            )
        options[name] = value
    return options


def _path_of(place: str) -> str:
    url = urlsplit(place)
    if url.netloc not in {"", "localhost"} or url.query or url.fragment or not url.path:
        raise InvalidArgument(f"--lake is {place!r}; accepted is file:/// and an absolute path")
    return str(Path(unquote(url.path)).absolute())


def _bucket_of(place: str) -> str:
    url = urlsplit(place)
    path = url.path.strip("/")
    if not url.netloc or not path or "@" in url.netloc or url.query or url.fragment:
        raise InvalidArgument(f"--lake is {place!r}; accepted is s3://bucket/path")
    return f"s3://{url.netloc}/{path}"


@lru_cache(maxsize=8)
def _bucket_files(options: tuple[tuple[str, str], ...]) -> Any:  # noqa: ANN401 - as above
    given = dict(options)
    named = {"endpoint_override": given.get("endpoint"), "region": given.get("region")}
    return fs.S3FileSystem(
        **{name: value for name, value in named.items() if value},
        connect_timeout=_CONNECT_S,
        request_timeout=_REQUEST_S,
    )


def _write_durably(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    make_durable(draft)
    draft.replace(file)
    make_durable(file.parent)


def _short(error: Exception) -> str:
    """The first line, without colours: those of the libraries fill a screen."""
    plain = re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error))
    return " ".join(plain.split())[:300] or type(error).__name__
