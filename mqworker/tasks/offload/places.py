"""Places for large payloads: a directory that all producers and workers share, or an S3 bucket."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mqworker.errors import ConfigurationError, PayloadMissing, PayloadUnavailable
from mqworker.model.names import shown, whole_number

USUAL_ABOVE = 65_536
USUAL_MOST = 1024**3
USUAL_GRACE_S = 86_400.0
_PRIVATE = 0o700
TEMPORARY = ".writing-"
_CONNECT_S, _READ_S, _TRIES = 5, 60, 3

T = TypeVar("T")


class Place(Protocol):
    """Keeps blobs by name."""

    above: int
    """Payloads of more bytes go there."""
    most: int
    """More bytes than this are refused."""
    grace_s: float
    """How long a blob that nothing refers to is kept: its message may still be on its way."""

    def write(self, name: str, blob: bytes) -> None:
        """Keep a blob, whole or not at all; raises `PayloadUnavailable`."""

    def read(self, name: str) -> bytes:
        """The blob; raises `PayloadMissing`, `PayloadUnavailable`."""

    def remove(self, name: str) -> None:
        """Forget a blob; one that is not there is forgotten already."""

    def names(self, namespace: str) -> Iterator[tuple[str, int]]:
        """All blobs of a namespace: name, and when it was written in ms since 1970."""


class Files:
    """A directory, which all producers and workers must see: `Files("/srv/payloads")`."""

    def __init__(
        self,
        directory: str | Path,
        *,
        above: int = USUAL_ABOVE,
        most: int = USUAL_MOST,
        grace: float = USUAL_GRACE_S,
    ) -> None:
        """Payloads of more than `above` bytes go there; what nobody needs is kept for `grace` seconds."""
        self.above, self.most, self.grace_s = _checked(above, most, grace)
        self.directory = Path(directory)

    def write(self, name: str, blob: bytes) -> None:
        """Keep a blob, whole or not at all; raises `PayloadUnavailable`."""
        path = self.directory / name
        try:
            for folder in (self.directory, path.parent.parent, path.parent):
                folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            number, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(blob)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise PayloadUnavailable(f"a payload cannot be written to {self.directory}: {error}") from error

    def read(self, name: str) -> bytes:
        """The blob; raises `PayloadMissing`, `PayloadUnavailable`."""
        try:
            return (self.directory / name).read_bytes()
        except FileNotFoundError as error:
            if not self.directory.is_dir():
                raise PayloadUnavailable(f"{self.directory}, where payloads are, is not there") from error
            raise PayloadMissing(f"the payload {name} is not in {self.directory}") from error
        except OSError as error:
            raise PayloadUnavailable(f"the payload {name} cannot be read: {error}") from error

    def remove(self, name: str) -> None:
        """Forget a blob; one that is not there is forgotten already."""
        try:
            (self.directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise PayloadUnavailable(f"the payload {name} cannot be removed: {error}") from error

    def names(self, namespace: str) -> Iterator[tuple[str, int]]:
        """All blobs of a namespace: name, and when it was written in ms since 1970."""
        for path in sorted((self.directory / namespace).glob("*/*")):
            with suppress(OSError):  # removed meanwhile
                yield path.relative_to(self.directory).as_posix(), path.stat().st_mtime_ns // 1_000_000

    def __repr__(self) -> str:
        """Where it is."""
        return f"Files({str(self.directory)!r}, above={self.above})"


class S3:
    """A bucket, by fsspec and s3fs: `S3("bucket/prefix")`. Who may come in is said as boto3 has it."""

    def __init__(
        self,
        place: str,
        *,
        above: int = USUAL_ABOVE,
        most: int = USUAL_MOST,
        grace: float = USUAL_GRACE_S,
        endpoint_url: str | None = None,
        **options: Any,  # noqa: ANN401 - whatever s3fs.S3FileSystem takes
    ) -> None:
        """Payloads of more than `above` bytes go there; what nobody needs is kept for `grace` seconds."""
        self.above, self.most, self.grace_s = _checked(above, most, grace)
        self.place = place.removeprefix("s3://").strip("/")
        if not self.place:
            raise ConfigurationError(f"S3: got {shown(place)}; accepted is bucket or bucket/prefix")
        self._options = {"endpoint_url": endpoint_url, **options}
        self._opened: tuple[int, Any] | None = None

    def write(self, name: str, blob: bytes) -> None:
        """Keep a blob, whole or not at all; raises `PayloadUnavailable`."""
        self._ask("written", name, lambda files: files.pipe_file(f"{self.place}/{name}", blob))

    def read(self, name: str) -> bytes:
        """The blob; raises `PayloadMissing`, `PayloadUnavailable`."""
        blob: bytes = self._ask("read", name, lambda files: files.cat_file(f"{self.place}/{name}"))
        return blob

    def remove(self, name: str) -> None:
        """Forget a blob; one that is not there is forgotten already."""
        with suppress(PayloadMissing):
            self._ask("removed", name, lambda files: files.rm_file(f"{self.place}/{name}"))

    def names(self, namespace: str) -> Iterator[tuple[str, int]]:
        """All blobs of a namespace: name, and when it was written in ms since 1970."""
        try:
            found = self._ask(
                "listed",
                namespace,
                lambda files: files.find(f"{self.place}/{namespace}", detail=True, refresh=True),
            )
        except PayloadMissing:
            return
        for path, facts in sorted(found.items()):
            written: datetime = facts["LastModified"]
            yield path.removeprefix(f"{self.place}/"), int(written.timestamp() * 1000)

    def __repr__(self) -> str:
        """Where it is."""
        return f"S3({self.place!r}, above={self.above})"

    # Any: an object of a library that need not be there.
    def _ask(self, verb: str, name: str, ask: Callable[[Any], T]) -> T:
        try:
            return ask(self._files())
        except FileNotFoundError as error:
            raise PayloadMissing(f"the payload {name} is not in {self.place}") from error
        except ConfigurationError:
            raise
        except Exception as error:
            raise PayloadUnavailable(
                f"the payload {name} cannot be {verb} in {self.place}: {type(error).__name__}: {error}"
            ) from error

    def _files(self) -> Any:  # noqa: ANN401 - see above
        if self._opened is None or self._opened[0] != os.getpid():  # its thread does not survive a fork
            try:
                import s3fs  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise ConfigurationError("S3 needs a library: pip install 'mqworker[s3]'") from error
            limits = {
                "connect_timeout": _CONNECT_S,
                "read_timeout": _READ_S,
                "retries": {"max_attempts": _TRIES},
            }
            files = s3fs.S3FileSystem(
                **{"config_kwargs": limits, **self._options},
                use_listings_cache=False,
                skip_instance_cache=True,
            )
            self._opened = (os.getpid(), files)
        return self._opened[1]


def place_at(url: str, *, above: int, grace_s: float) -> Place:
    """The place that a URL of the setting `offload` names."""
    if url.startswith("s3://"):
        return S3(url, above=above, grace=grace_s)
    return Files(url.removeprefix("file://"), above=above, grace=grace_s)


def _checked(above: int, most: int, grace: float) -> tuple[int, int, float]:
    whole_number("above", above, least=1, most=USUAL_MOST)
    whole_number("most", most, least=above, most=2**40)
    if isinstance(grace, bool) or grace < 0:
        raise ConfigurationError(f"grace is {shown(grace)}; accepted are seconds, from 0")
    return above, most, float(grace)
