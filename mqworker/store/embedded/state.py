"""What the embedded server keeps in the data directory, and the two locks that decide who may do what.

```
.mqworker/                 the data directory; may be any directory of the user's, its mode is left alone
  server/                  mode 0700: whoever may enter it may use the server
    server.lock            held by the server process itself, from before it runs until it is gone
    users.lock             held shared by each `mqworker run` and `mqworker redis`, exclusively to stop
    sock                   the unix socket
    socket-path            only if the path of `sock` is too long for a socket: where it is instead
    server.log             the server's own log; `server.log.1` is the one before
    appendonlydir/         the data
```

Both locks are `flock`s: the kernel drops them with the process, so a file left by a kill blocks nothing.
"""

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from urllib.parse import quote

from mqworker.errors import ConfigurationError, StoreUnavailable

# sun_path holds 108 bytes on Linux and 104 on macOS, including the closing zero.
LONGEST_SOCKET_PATH_BYTES = 103
_LOG_BYTES_KEPT = 1024 * 1024
_PRIVATE = 0o700


class LockKind(IntEnum):
    """How a lock is wanted."""

    SHARED = fcntl.LOCK_SH
    EXCLUSIVE = fcntl.LOCK_EX


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """The server's files below one data directory."""

    data_dir: Path

    @property
    def directory(self) -> Path:
        """Where everything of the server lives."""
        return self.data_dir / "server"

    @property
    def server_lock(self) -> Path:
        """Held by the server process as long as it lives."""
        return self.directory / "server.lock"

    @property
    def users_lock(self) -> Path:
        """Held by those who keep the server up."""
        return self.directory / "users.lock"

    @property
    def log_path(self) -> Path:
        """The server's own log."""
        return self.directory / "server.log"

    @property
    def socket_path(self) -> Path:
        """Where a running server listens."""
        try:
            moved = Path(os.fsdecode(self._moved_socket.read_bytes()))
        except OSError:
            return self._usual_socket
        # Temporary directories get cleaned, and then anybody could take the name.
        return moved if _is_private(moved.parent) else self._usual_socket

    @property
    def url(self) -> str:
        """The URL of the socket, as redis-py reads it."""
        return "unix://" + quote(os.fsencode(self.socket_path))

    def prepare(self) -> None:
        """Create the directory, private to this user.

        Raises ConfigurationError when that is impossible, StoreUnavailable when the disk is full.
        """
        with _clear_errors(self.data_dir):
            _make_data_dir(self.data_dir)
            _refuse_if_others_can_write(self.data_dir)
            self._make_private_directory()

    def _make_private_directory(self) -> None:
        with suppress(FileExistsError):
            self.directory.mkdir(mode=_PRIVATE)
        if self.directory.is_symlink():
            raise ConfigurationError(
                f"data_dir: {self.directory} is a symbolic link, whoever made it chose where the data would "
                "go; accepted is a directory: remove the link, or choose another data_dir"
            )
        # One open directory from here on: what stands under its name may be changed meanwhile.
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            owner = os.fstat(descriptor)
            if owner.st_uid != os.geteuid():
                raise ConfigurationError(
                    f"data_dir: {self.directory} belongs to user {owner.st_uid}, this process runs as "
                    f"user {os.geteuid()}; start the embedded server as its owner, or choose another data_dir"
                )
            if stat.S_IMODE(owner.st_mode) != _PRIVATE:
                os.fchmod(descriptor, _PRIVATE)
        finally:
            os.close(descriptor)

    def choose_socket(self) -> Path:
        """Decide where the next server listens. Only for who holds the server lock."""
        with _clear_errors(self.data_dir):
            if _fits(self._usual_socket):
                self._moved_socket.unlink(missing_ok=True)
                return self._usual_socket
            if self.socket_path == self._usual_socket:
                self._record_socket(_short_socket())
            return self.socket_path

    def rotate_log(self) -> None:
        """Begin a new log once the old one is large; one predecessor is kept. Only under the server lock."""
        with _clear_errors(self.data_dir):
            if self.log_path.exists() and self.log_path.stat().st_size > _LOG_BYTES_KEPT:
                self.log_path.replace(self.log_path.with_name("server.log.1"))

    def try_lock(self, path: Path, kind: LockKind) -> int | None:
        """An open descriptor that holds the lock, or None when somebody else's hold forbids it."""
        with _clear_errors(self.data_dir):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if try_convert(descriptor, kind):
            return descriptor
        os.close(descriptor)
        return None

    @property
    def _usual_socket(self) -> Path:
        return self.directory / "sock"

    @property
    def _moved_socket(self) -> Path:
        return self.directory / "socket-path"

    def _record_socket(self, path: Path) -> None:
        # Written aside and renamed: a reader sees the old place or the new one, never half of one.
        draft = self._moved_socket.with_name("socket-path.new")
        draft.write_bytes(os.fsencode(path))
        draft.replace(self._moved_socket)


def try_convert(descriptor: int, kind: LockKind) -> bool:
    """Take or change the lock of an open lock file without waiting; after False it holds none."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def release(descriptor: int) -> None:
    """Drop a lock for good, also for copies of the descriptor that forked children still have open."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _make_data_dir(data_dir: Path) -> None:
    if data_dir.is_dir():
        return
    data_dir.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    # Made by us, inside a project as a rule: keep it out of the project's history.
    (data_dir / ".gitignore").write_text("*\n", encoding="utf-8")


def _refuse_if_others_can_write(data_dir: Path) -> None:
    """Who can write there can put another directory in the place of ours; not where it is sticky, as /tmp."""
    found = data_dir.stat()
    by_group = found.st_mode & stat.S_IWGRP and found.st_gid != os.getegid()
    if (found.st_mode & stat.S_IWOTH or by_group) and not found.st_mode & stat.S_ISVTX:
        raise ConfigurationError(
            f"data_dir: other users can write to {data_dir} (mode {stat.S_IMODE(found.st_mode):o}); accepted "
            f"is a directory that only this user can write to: chmod go-w {data_dir}"
        )


def _fits(socket_path: Path) -> bool:
    return len(os.fsencode(socket_path)) <= LONGEST_SOCKET_PATH_BYTES


def _is_private(directory: Path) -> bool:
    """A directory that only this user can enter: nobody else can have put a socket there."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _short_socket() -> Path:
    socket_path = Path(tempfile.mkdtemp(prefix="mqworker-")) / "sock"
    if not _fits(socket_path):
        socket_path.parent.rmdir()
        raise ConfigurationError(
            f"data_dir: a unix socket path has at most {LONGEST_SOCKET_PATH_BYTES} bytes, and both the data "
            f"directory and {socket_path.parent.parent} are longer; choose a shorter data_dir or TMPDIR"
        )
    return socket_path


@contextmanager
def _clear_errors(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StoreUnavailable(f"the disk with data_dir {data_dir} is full: {error}") from error
        raise ConfigurationError(
            f"data_dir: {data_dir} cannot hold the embedded server's data ({error}); "
            "it must be a directory that this user may write to"
        ) from error
