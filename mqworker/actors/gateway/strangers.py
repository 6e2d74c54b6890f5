"""Strangers: connections of one address that have not shown yet who they are. Few of them, and not for long.

Without that, one machine takes all places of a gateway, or all its memory, and needs no token for it. Where
nobody is asked who it is, nobody is counted. Pure.
"""

from __future__ import annotations

import ipaddress
from collections import Counter

STRANGER_BYTES = 16 * 1024
"""What a stranger may send in all."""
STRANGER_ARGUMENTS = 10
_NETWORK_BITS = 64
"""A machine with IPv6 has as many addresses as it likes, in its own network."""


class Strangers:
    """Counts them by address."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count_by_address: Counter[str] = Counter()

    def admit(self, host: str) -> Stranger | None:
        """One more from there; None when there are enough."""
        address = network_of(host)
        if self._count_by_address[address] >= self._most:
            return None
        self._count_by_address[address] += 1
        return Stranger(self, address)

    def forget(self, address: str) -> None:
        """One less from there."""
        self._count_by_address[address] -= 1
        if self._count_by_address[address] <= 0:
            del self._count_by_address[address]

    def __len__(self) -> int:
        return sum(self._count_by_address.values())


class Stranger:
    """One connection, until it is known or gone."""

    def __init__(self, strangers: Strangers, address: str) -> None:
        self._strangers: Strangers | None = strangers
        self._address = address

    def leave(self) -> None:
        """It is known now, or gone; a second time says nothing new."""
        if self._strangers is not None:
            self._strangers.forget(self._address)
            self._strangers = None


def network_of(host: str) -> str:
    """Whom an address stands for: itself, or its network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
