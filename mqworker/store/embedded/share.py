"""The embedded server: a real valkey-server per data directory, started on demand, shared by all who come.

Who stops it:
- `EmbeddedServer` (`mqworker run`, `mqworker redis`) keeps it up while it is in use: the last of them to stop
  ends it, whichever of them started it. So a server outlives the drain of all who still settle deliveries.
- `ensure_server` (a producer without a supervisor) starts it detached: it stays until `stop_server`.
- A killed starter stops nothing: the server runs on, and the next start shares it.

Who may start it: whoever gets `server.lock` (see `embedded_launch`); the others wait for the winner's server.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import sleep  # waiting only: the time itself is read from the clock

from mqworker.errors import ConfigurationError, StoreUnavailable
from mqworker.model.clock import Clock, SystemClock
from mqworker.store.embedded.launch import Attachment, explain_failure, launch, log_since, log_size
from mqworker.store.embedded.probe import Mood, is_detached, ping, shut_down, wait_until_gone
from mqworker.store.embedded.state import LockKind, ServerPlace, release, try_convert

# Silence, not start-up time: a server that says it is loading may take as long as its data needs.
SILENCE_DEADLINE_MS = 20_000
# Below the 5 s after which Honcho kills; the server ends by itself even if nobody waits for it any more.
STOP_DEADLINE_S = 4.0
_POLL_S = 0.004

Launch = Callable[[int], subprocess.Popen[bytes]]
"""Starts a server process that takes over the lock with this descriptor."""


def find_server(data_dir: Path) -> str | None:
    """The URL of the server that runs for this directory, or None. Takes well below a millisecond.

    A server that still loads its data, or does not answer at the moment, is running too.
    """
    place = _place(data_dir)
    is_running = ping(place.socket_path).mood not in {Mood.ABSENT, Mood.FOREIGN}
    return place.url if is_running else None


def ensure_server(data_dir: Path) -> str:
    """The URL of a server that is ready, for producers: one that is started here stays in the background.

    Raises ConfigurationError or StoreUnavailable.
    """
    place = _place(data_dir)
    if ping(place.socket_path).mood is Mood.READY:
        return place.url
    place.prepare()
    _bring_up(place, lambda lock: _launch_detached(place, lock), SystemClock())
    return place.url


def stop_server(data_dir: Path) -> bool:
    """End the server of this directory, whoever uses it. False when none was running.

    Raises StoreUnavailable when it does not end, for instance because it cannot write its data.
    """
    place = _place(data_dir)
    if ping(place.socket_path).mood in {Mood.ABSENT, Mood.FOREIGN}:
        return False
    _shut_down(place, SystemClock())
    return True


class EmbeddedServer:
    """One user of the directory's server: `start` brings it up or shares it, the last `stop` ends it."""

    def __init__(self, data_dir: Path, clock: Clock | None = None) -> None:
        """`data_dir` is created when missing, private to this user."""
        self._place = _place(data_dir)
        self._clock = clock or SystemClock()
        self._child: subprocess.Popen[bytes] | None = None
        self._users_lock: int | None = None

    @property
    def is_starter(self) -> bool:
        """Whether the server is a child of this process; otherwise it was running already."""
        return self._child is not None

    @property
    def pid(self) -> int | None:
        """The server's process id when it is a child of this process."""
        return self._child.pid if self._child is not None else None

    @property
    def log_path(self) -> Path:
        """The server's own log."""
        return self._place.log_path

    @property
    def socket_path(self) -> Path:
        """The unix socket the server listens on."""
        return self._place.socket_path

    def start(self) -> str:
        """Start the server, or share the one that runs; returns its URL once it is ready.

        Raises ConfigurationError or StoreUnavailable; the data is left as it is in any case.
        """
        self._place.prepare()
        if self._users_lock is None:
            self._users_lock = self._become_user()
        if self._child is not None and self._child.poll() is not None:
            self._child = None  # it died; whoever starts the next one, this was not it
        try:
            _bring_up(self._place, self._launch_child, self._clock)
        except (ConfigurationError, StoreUnavailable):
            self._leave()
            raise
        return self._place.url

    def wait(self) -> int | None:
        """Block until the server has ended; its exit status, or None when it was not started here."""
        if self._child is not None:
            return self._child.wait()
        wait_until_gone(self._place.socket_path)
        return None

    def stop(self) -> bool:
        """End the server gracefully; False when it runs on, because others use it or it is detached.

        Raises StoreUnavailable when the server does not end, for instance because it cannot write its data.
        """
        lock = self._users_lock
        if lock is None:
            return False
        try:
            is_last = try_convert(lock, LockKind.EXCLUSIVE) and not is_detached(self._place.socket_path)
            if is_last:
                # Under the exclusive lock: who starts now waits, and does not share a server that is going.
                self._end_server()
            return is_last
        finally:
            self._leave()

    def _become_user(self) -> int:
        deadline_ms = self._clock.monotonic_ms() + SILENCE_DEADLINE_MS
        while self._clock.monotonic_ms() < deadline_ms:
            lock = self._place.try_lock(self._place.users_lock, LockKind.SHARED)
            if lock is not None:
                return lock
            sleep(_POLL_S)  # somebody is stopping the server
        raise StoreUnavailable(
            f"another process has been stopping the server of {self._place.data_dir} for too long"
        )

    def _launch_child(self, lock: int) -> subprocess.Popen[bytes]:
        # Remembered at once: a signal handler that raises during the start still finds whom to stop.
        self._child = launch(self._place, Attachment.CHILD, lock)
        return self._child

    def _end_server(self) -> None:
        if self._child is None:
            _shut_down(self._place, self._clock)
            return
        self._child.terminate()
        try:
            self._child.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            raise _will_not_end(self._place, f"no end within {STOP_DEADLINE_S:g} s") from error

    def _leave(self) -> None:
        if self._users_lock is not None:
            release(self._users_lock)
            self._users_lock = None


def _place(data_dir: Path) -> ServerPlace:
    # Resolved: two names of one directory find the same server, and a later chdir changes nothing.
    return ServerPlace(data_dir.resolve())


def _launch_detached(place: ServerPlace, lock: int) -> subprocess.Popen[bytes]:
    parent = launch(place, Attachment.DETACHED, lock)
    parent.wait()  # it ends as soon as the server proper is its own session leader
    return parent


def _bring_up(place: ServerPlace, launch_with: Launch, clock: Clock) -> None:
    """Return once a server is ready, ours or another's; launch one when the lock says that none lives."""
    launched: subprocess.Popen[bytes] | None = None
    logged_before = log_size(place)
    deadline_ms = clock.monotonic_ms() + SILENCE_DEADLINE_MS
    while clock.monotonic_ms() < deadline_ms:
        match _mood(place):
            case Mood.READY:
                return
            case Mood.LOADING:
                deadline_ms = clock.monotonic_ms() + SILENCE_DEADLINE_MS
            case Mood.ABSENT:
                lock = place.try_lock(place.server_lock, LockKind.EXCLUSIVE)
                if lock is not None:
                    launched = _launch_once(place, launch_with, lock, launched, logged_before)
            case _:
                pass
        sleep(_POLL_S)
    raise StoreUnavailable(
        f"the embedded server of {place.data_dir} runs but has not answered for "
        f"{SILENCE_DEADLINE_MS // 1000} s; see {place.log_path}"
    )


def _mood(place: ServerPlace) -> Mood:
    answer = ping(place.socket_path)
    if answer.mood is Mood.FOREIGN:
        raise ConfigurationError(
            f"data_dir: the socket {place.socket_path} is in use by something that is not a Redis server"
        )
    if answer.mood is Mood.REFUSING:
        raise StoreUnavailable(
            f"the embedded server of {place.data_dir} refuses work: {answer.reply.lstrip('-')}"
        )
    return answer.mood


def _launch_once(
    place: ServerPlace,
    launch_with: Launch,
    lock: int,
    launched: subprocess.Popen[bytes] | None,
    logged_before: int,
) -> subprocess.Popen[bytes]:
    """Launch with the lock; but if we launched before, that server is gone: its lock was free."""
    try:
        if launched is None:
            return launch_with(lock)
        launched.wait()
        raise explain_failure(place, log_since(place.log_path, logged_before))
    finally:
        os.close(lock)  # closed, not unlocked: the server's copy keeps the lock


def _shut_down(place: ServerPlace, clock: Clock) -> None:
    deadline_ms = clock.monotonic_ms() + int(STOP_DEADLINE_S * 1000)
    while _is_coming_up(place) and clock.monotonic_ms() < deadline_ms:
        sleep(_POLL_S)  # it cannot be asked yet
    refusal = shut_down(place.socket_path, STOP_DEADLINE_S)
    if refusal:
        raise _will_not_end(place, refusal)


def _is_coming_up(place: ServerPlace) -> bool:
    """A server process lives, and does not listen yet."""
    if ping(place.socket_path).mood is not Mood.ABSENT:
        return False
    lock = place.try_lock(place.server_lock, LockKind.EXCLUSIVE)
    if lock is not None:
        os.close(lock)
    return lock is None


def _will_not_end(place: ServerPlace, reason: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the embedded server of {place.data_dir} does not end: {reason}; it runs on, see {place.log_path}"
    )
