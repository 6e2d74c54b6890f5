"""Flights: messages that were pushed and not acknowledged, and whom a consumer's word is about. Pure."""

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
class Flight:
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
    """Who is to be told once the settlement is stored."""

    @property
    def is_copy(self) -> bool:
        """Whether it is one of a topic's."""
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
        """Nothing more is due."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def flight_of(queue: str, delivery: Delivery) -> Flight:
    """A delivery that was just taken."""
    key = recipient_key_in(delivery.id) if delivery.task == COPY else ""
    return Flight(queue, delivery, msgid_of(delivery.id, delivery.task), key)


class Flights:
    """All flights of this gateway, in the order in which they began."""

    def __init__(self) -> None:
        self._by_msgid: dict[str, list[Flight]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Flight]:
        return (flight for flights in list(self._by_msgid.values()) for flight in list(flights))

    def add(self, flight: Flight) -> None:
        """A flight begins."""
        self._by_msgid.setdefault(flight.msgid, []).append(flight)
        self.count += 1

    def remove(self, flight: Flight) -> None:
        """It is settled."""
        flights = self._by_msgid.get(flight.msgid, [])
        if flight in flights:
            flights.remove(flight)
            self.count -= 1
        if not flights:
            self._by_msgid.pop(flight.msgid, None)

    def meant(self, msgid: str, key: str, connection: Connection) -> Flight | None:
        """The flight that a word is about: that of the connection itself, else the one attributed to it."""
        own = connection.flight
        if own is not None and msgid in {"", own.msgid} and not key:
            return own
        return self.attributed(msgid, key, connection.host)

    def attributed(self, msgid: str, key: str, host: str) -> Flight | None:
        """The flight that a word from that host is about, by which connection it may come."""
        return attributed(self._by_msgid.get(msgid, ()), key, host)


def attributed(flights: Sequence[Flight], key: str, host: str) -> Flight | None:
    """Of a topic's copies the one of that recipient, else the oldest of one at that host; else the only one.

    The protocol names the message alone, so of several recipients at one host nobody can tell who speaks.
    """
    copies = [flight for flight in flights if flight.is_copy]
    if len(copies) < len(flights):
        return next(flight for flight in flights if not flight.is_copy)
    meant = [flight for flight in copies if (flight.key == key if key else flight.host == host)]
    return next(iter(sorted(meant, key=lambda flight: flight.is_settling)), None)
