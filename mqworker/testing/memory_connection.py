"""A server in memory, behind the interface of a connection: raw commands in, raw replies and our errors out.

It is fakeredis, with the real Lua scripts. Three things are bridged here and not in the scripts: the first
line `#!lua flags=…`, which fakeredis takes for Lua; the clock, which a test may move; and channels, which it
does not offer: whoever listens is told so, and asks instead, as it must for lost wake-ups anyway.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, cast

from mqworker.errors import ConfigurationError, MqworkerError, StoreRefused
from mqworker.model.clock import Clock, SystemClock
from mqworker.store.command import Command, Reply
from mqworker.store.link.pool import LinkPool
from mqworker.store.link.server_errors import REPLY_ERRORS, ServerName, each_settled, settled
from mqworker.store.link.subscription import Subscription

try:
    import fakeredis
except ImportError as error:
    raise ConfigurationError(
        "mqworker.testing needs fakeredis with Lua; install it with pip install 'mqworker[testing]'"
    ) from error

NAME = ServerName("memory")
_SHEBANG = "#!"


class _Link(Protocol):
    """What is used of a connection of redis-py, which types it only in part."""

    def send_command(self, *words: str | bytes | float) -> None: ...
    def read_response(self, *, disable_decoding: bool) -> object: ...


class MemoryConnection:
    """A `Connection` to a server of its own, which ends with it. Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        take_over()
        self._clock = clock
        self._lock = threading.Lock()
        self._known_shas: dict[str, str] = {}
        self._client = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7, 2)), protocol=2)
        # Below the client, which would turn replies into friendlier values than a server sends.
        self._link = cast("_Link", self._client.connection_pool.get_connection())
        self._refuse_foreign_clock()

    def execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Run all commands, one after the other; see `Connection.execute`."""
        del key  # one server owns them all
        with self._lock, told_by(self._clock):
            return settled([self._answer(self._bridged(command)) for command in commands], NAME)

    def execute_each(
        self, commands: Sequence[Command], keys: Sequence[str | None]
    ) -> list[Reply | MqworkerError]:
        """Run all commands; see `Connection.execute_each`."""
        del keys
        with self._lock, told_by(self._clock):
            return each_settled([self._answer(self._bridged(command)) for command in commands], NAME)

    def each_primary(self, commands: Sequence[Command]) -> Mapping[str, list[Reply]]:
        """The one server there is."""
        return {NAME.text: self.execute(commands, None)}

    def subscribe(self, channels: Sequence[str]) -> Subscription:
        """Not offered: there is no other process that could publish while a caller waits."""
        raise StoreRefused(
            f"a server in memory has no channels; {', '.join(channels)} cannot be subscribed to"
        )

    def pools_of(self, keys: Sequence[str]) -> list[tuple[LinkPool, list[str]]]:
        """Not offered, as `subscribe`: there is no link."""
        raise StoreRefused(f"a server in memory has no links; {', '.join(keys)} cannot be reached by one")

    def close(self) -> None:
        """Nothing to close: the data is freed with the connection."""

    def _answer(self, command: Command) -> object:
        self._link.send_command(*command)
        try:
            return self._link.read_response(disable_decoding=True)
        except REPLY_ERRORS as error:
            return error

    def _bridged(self, command: Command) -> Command:
        """Scripts without their first line, known by the hash of the whole all the same."""
        match command:
            case ("EVAL", str(source), *rest) if source.startswith(_SHEBANG):
                lua = "--" + source  # a comment, so that the lines keep their numbers
                self._known_shas[_sha(source)] = _sha(lua)
                return ("EVAL", lua, *rest)
            case ("EVALSHA", str(sha), *rest):
                return ("EVALSHA", self._known_shas.get(sha, sha), *rest)
            case _:
                return command

    def _refuse_foreign_clock(self) -> None:
        now_ms = self._clock.now_ms()
        match self.execute([("TIME",)], None)[0]:
            case [bytes(seconds), _] if abs(int(seconds) - now_ms // 1000) <= 1:
                return
            case told:
                raise ConfigurationError(
                    f"fakeredis {fakeredis.__version__} does not follow the clock of the bench: it tells "
                    f"{told!r} instead of {now_ms} ms; see the versions that mqworker[testing] accepts"
                )


class AsyncMemoryConnection:
    """The same for asyncio: nothing is waited for, so nothing is awaited."""

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection

    async def execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Run all commands, one after the other."""
        return self._connection.execute(commands, key)

    async def close(self) -> None:
        """Nothing to close."""


def _sha(source: str) -> str:
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


_clock: ContextVar[Clock] = ContextVar("mqworker_memory_time", default=SystemClock())  # noqa: B039 - no state

_HALF_A_MS = 0.5
"""fakeredis cuts fractions off a product of doubles: in the middle of a millisecond that does no harm."""


class _TimeModule:
    """What fakeredis takes for the module `time`."""

    def time(self) -> float:
        """Seconds since 1970, by the clock in force."""
        return (_clock.get().now_ms() + _HALF_A_MS) / 1000

    # Any: whatever else is in the module.
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - same
        return getattr(time, name)


_stand_in = _TimeModule()


def take_over() -> None:
    """Give the stand-in to all modules of fakeredis; again and again is harmless."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fakeredis" and vars(module).get("time") is time:
            vars(module)["time"] = _stand_in


@contextmanager
def told_by(clock: Clock) -> Iterator[None]:
    """Let fakeredis go by this clock, in this thread, while the block runs."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)
