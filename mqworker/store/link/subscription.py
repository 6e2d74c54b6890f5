"""Listening to sharded channels: wake-ups, which may be lost and only hasten what a poll would find.

SSUBSCRIBE works alike on a single server (7.0 and later) and in a cluster, where a channel belongs to the
node of its slot. One descriptor stands for all links, the same before and after a reconnect.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

import hiredis
from redis import exceptions

from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable
from mqworker.store.command import pack
from mqworker.store.link.pool import LINK_ERRORS, Link, LinkPool, reader_of, socket_of
from mqworker.store.link.server_errors import REPLY_ERRORS, link_trouble, settled

RESUBSCRIBED: Final = ("", b"")
"""Instead of a wake-up: the links were lost and are there again, so look at every channel's queue."""

ADDED: Final = b""
"""The body of a channel that was added: it is listened to from now on; look at its queue once more."""

MAX_ROUNDS = 4
MOST_WAITED_FOR = 200

_READ_BYTES = 65_536
_WRITE_TIMEOUT_S = 2.0


class Subscription:
    """Wake-ups from channels. One thread uses it; a forked child gets links of its own at its first `get`."""

    def __init__(
        self,
        channels: Sequence[str],
        pools_of: Callable[[Sequence[str]], list[tuple[LinkPool, list[str]]]],
    ) -> None:
        if not channels:
            raise InvalidArgument("channels: at least one is needed.")
        self._channels = tuple(channels)
        self._pools_of = pools_of
        self._pool_by_link: dict[Link, LinkPool] = {}
        self._arrived: deque[tuple[str, bytes]] = deque()
        self._nothing: object = False
        self._selector = selectors.DefaultSelector()
        self._pid = os.getpid()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def get(self, timeout_s: float) -> tuple[str, bytes] | None:
        """The next (channel, body); None when none came in time (or a little earlier).

        When a link broke, it is opened and subscribed again at once, and RESUBSCRIBED is returned: wake-ups
        may have been lost. When that fails, StoreUnavailable is raised, and the next `get` tries again.
        """
        if self._arrived:
            return self._arrived.popleft()
        if self._pid != os.getpid() or not self._pool_by_link:
            return self._reopen()
        try:
            return self.take(timeout_s)
        except StoreUnavailable:
            return self._reopen()

    def take(self, timeout_s: float) -> tuple[str, bytes] | None:
        """The same for one who cannot wait for a server: what broke is not opened again.

        StoreUnavailable is raised then, and the subscription is of no more use.
        """
        if not self._arrived:
            try:
                for key, _ in self._selector.select(timeout_s):
                    self._receive(cast("Link", key.data))
            except LINK_ERRORS as error:
                raise StoreUnavailable(f"a subscription broke: {error}", maybe_executed=False) from error
        return self._arrived.popleft() if self._arrived else None

    def add(self, channels: Sequence[str]) -> None:
        """Listen to more channels, on the links there are: nothing of the others is missed.

        Each is confirmed by a wake-up with the body ADDED.
        """
        self._channels += tuple(channels)
        if not self._pool_by_link:
            return  # the next `get` opens all of them
        try:
            for pool, wanted in self._pools_of(channels):
                link = next((link for link, owner in self._pool_by_link.items() if owner is pool), None)
                if link is None:
                    self._open_link(pool, wanted)
                else:
                    self._subscribe_more(link, pool, wanted)
        except (exceptions.AskError, MqworkerError):
            self._drop_links()

    def fileno(self) -> int:
        """Readable when `get(0)` has something to do: call it until it returns None."""
        return self._selector.fileno()

    def close(self) -> None:
        """Close the links and the descriptor."""
        self._drop_links()
        self._selector.close()

    def _reopen(self) -> tuple[str, bytes]:
        self._drop_links()
        if self._pid != os.getpid():
            # The descriptor is shared with the parent, and so would be every change to it: take a new one.
            self._selector.close()
            self._selector = selectors.DefaultSelector()
            self._pid = os.getpid()
        self._open()
        return RESUBSCRIBED

    def _open(self) -> None:
        for _ in range(MAX_ROUNDS):
            try:
                for pool, channels in self._pools_of(self._channels):
                    self._open_link(pool, channels)
            except exceptions.AskError:
                # The slot moved on; whoever asks for the nodes now gets a fresh slot table.
                self._drop_links()
            except BaseException:
                self._drop_links()
                raise
            else:
                return
        raise StoreUnavailable(
            "The slots of the subscribed channels do not come to rest.", maybe_executed=False
        )

    def _open_link(self, pool: LinkPool, channels: Sequence[str]) -> None:
        """The first channels are waited for, the others confirmed later: thousands would take long."""
        link = pool.connect()
        self._pool_by_link[link] = pool
        channels, others = channels[:MOST_WAITED_FOR], channels[MOST_WAITED_FOR:]
        self._nothing = reader_of(link).gets()  # what it answers while nothing is complete
        raw: list[object] = []
        try:
            link.send_packed_command((_subscribing(channels),), check_health=False)
            while len(raw) < len(channels):
                message = _read(link)
                if not self._keep_wake_up(message):
                    raw.append(message)
        except LINK_ERRORS as error:
            raise link_trouble(error, pool.name) from error
        for reply in raw:
            if isinstance(reply, exceptions.AskError):
                raise reply
        settled(raw, pool.name)
        self._keep_complete(reader_of(link))  # what came right behind the answer makes nothing readable
        socket_of(link).settimeout(0)
        self._selector.register(socket_of(link), selectors.EVENT_READ, link)
        if others:
            self._subscribe_more(link, pool, others)

    def _subscribe_more(self, link: Link, pool: LinkPool, channels: Sequence[str]) -> None:
        """What is answered is read with the wake-ups."""
        try:
            socket_of(link).settimeout(_WRITE_TIMEOUT_S)
            socket_of(link).sendall(_subscribing(channels))
            socket_of(link).settimeout(0)
        except LINK_ERRORS as error:
            raise link_trouble(error, pool.name) from error

    def _receive(self, link: Link) -> None:
        """Take in all that the link holds: what stays in its buffer does not make the descriptor readable."""
        descriptor, reader = socket_of(link), reader_of(link)
        while True:
            try:
                data = descriptor.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not data:
                raise StoreUnavailable("the server closed the subscription", maybe_executed=False)
            reader.feed(data)
            self._keep_complete(reader)
            if not (isinstance(descriptor, ssl.SSLSocket) and descriptor.pending()):
                return

    def _keep_complete(self, reader: hiredis.Reader) -> None:
        while (message := reader.gets()) is not self._nothing:
            if not self._keep_wake_up(message) and not self._keep_confirmation(message):
                # Anything else ends the subscription: the slot moved away (sunsubscribe), or an error.
                raise StoreUnavailable("the subscription ended", maybe_executed=False)

    def _keep_wake_up(self, message: object) -> bool:
        match message:
            case [b"smessage", bytes(channel), bytes(body)]:
                self._arrived.append((channel.decode(), body))
                return True
            case _:
                return False

    def _keep_confirmation(self, message: object) -> bool:
        match message:
            case [b"ssubscribe", bytes(channel), _]:
                self._arrived.append((channel.decode(), ADDED))
                return True
            case _:
                return False

    def _drop_links(self) -> None:
        for link in self._pool_by_link:
            if self._pid == os.getpid():
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(socket_of(link))
            link.disconnect()
        self._pool_by_link = {}


def _subscribing(channels: Sequence[str]) -> bytes:
    """One command per channel: in a cluster, one command must not name two slots."""
    return pack([("SSUBSCRIBE", channel) for channel in channels])


def _read(link: Link) -> object:
    try:
        return link.read_response(disconnect_on_error=False)
    except REPLY_ERRORS as error:
        return error
