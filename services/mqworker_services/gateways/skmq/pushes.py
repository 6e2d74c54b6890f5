"""Pushes that are not acknowledged yet, and which of them a consumer's reply is about. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqworker.gateway import Delivery
from mqworker.queues.skmq.names import COPY, copy_field, msgid_of, recipient_key_in

if TYPE_CHECKING:
    from mqworker_services.gateways.skmq.connection import Answering, Connection


@dataclass(slots=True, eq=False)
class Push:
    """One delivery on its way to a recipient, from the assignment to the settlement."""

    queue: str
    delivery: Delivery
    msgid: str
    key: str = ""
    """The recipient: chosen for a copy from the beginning, for others when they are assigned."""
    host: str = ""
    port: int = 0
    connection: Connection | None = None
    timer: asyncio.TimerHandle | None = None
    is_settling: bool = False
    waiting: list[Answering] = field(default_factory=list)
    """Called once the settlement is stored."""

    @property
    def is_copy(self) -> bool:
        """Whether it is a copy of a topic's message."""
        return self.delivery.task == COPY

    @property
    def field(self) -> str:
        """Its field in the index."""
        return copy_field(self.msgid, recipient_key_in(self.delivery.id)) if self.is_copy else self.msgid

    @property
    def address(self) -> str:
        """Where it is pushed to, as the list of recipients has it."""
        return f"{self.host} {self.port}"

    def stop_timer(self) -> None:
        """Cancel the timer, if one runs."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def push_of(queue: str, delivery: Delivery) -> Push:
    """A delivery that was just taken."""
    key = recipient_key_in(delivery.id) if delivery.task == COPY else ""
    return Push(queue, delivery, msgid_of(delivery.id, delivery.task), key)


class Pushes:
    """All pushes of this gateway, oldest first."""

    def __init__(self) -> None:
        self._by_msgid: dict[str, list[Push]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Push]:
        return (push for pushes in list(self._by_msgid.values()) for push in list(pushes))

    def add(self, push: Push) -> None:
        """Add a push that begins."""
        self._by_msgid.setdefault(push.msgid, []).append(push)
        self.count += 1

    def remove(self, push: Push) -> None:
        """Remove a push that is settled."""
        pushes = self._by_msgid.get(push.msgid, [])
        if push in pushes:
            pushes.remove(push)
            self.count -= 1
        if not pushes:
            self._by_msgid.pop(push.msgid, None)

    def meant(self, msgid: str, key: str, connection: Connection) -> Push | None:
        """The push that a reply is about: the connection's own, else the one attributed to it."""
        own = connection.push
        if own is not None and msgid in {"", own.msgid} and not key:
            return own
        return self.attributed(msgid, key, connection.host)

    def attributed(self, msgid: str, key: str, host: str) -> Push | None:
        """The push that a reply from that host is about, whichever connection it came on."""
        return attributed(self._by_msgid.get(msgid, ()), key, host)


def attributed(pushes: Sequence[Push], key: str, host: str) -> Push | None:
    """Of a topic's copies the one of that recipient, else the oldest of one at that host; else the only one.

    The protocol names the message alone, so several recipients at one host cannot be told apart.
    """
    copies = [push for push in pushes if push.is_copy]
    if len(copies) < len(pushes):
        return next(push for push in pushes if not push.is_copy)
    meant = [push for push in copies if (push.key == key if key else push.host == host)]
    return next(iter(sorted(meant, key=lambda push: push.is_settling)), None)
