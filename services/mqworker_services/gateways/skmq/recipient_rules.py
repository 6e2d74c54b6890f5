"""Where recipients may be: whoever registers one makes the gateway connect there, and write. Pure.

Without a list only the address that registers is accepted, so that nobody points the gateway at somebody
else. Host names are not looked up, for the answer may be another one tomorrow: they are accepted by the list.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from mqworker.errors import ConfigurationError

ANYWHERE = "*"
LOWEST_PORT = 1_024
"""Below it are the servers of the system: mail, web, name service."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Place = Network | str

_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}", re.ASCII)


def parse_places(text: str) -> tuple[Place, ...]:
    """The networks and host names of a list, separated by spaces; `*` stands for everywhere."""
    return tuple(_place(word) for word in text.split())


def _place(word: str) -> Place:
    try:
        return ipaddress.ip_network(word, strict=False)
    except ValueError:
        if word == ANYWHERE or _HOST_NAME.fullmatch(word):
            return word.lower()
    raise ConfigurationError(
        f"recipients has {word!r}; accepted are addresses, networks such as 10.0.0.0/8, host names, and *, "
        "separated by spaces"
    )


class RecipientRules:
    """Judges the addresses of recipients."""

    def __init__(self, places: str, own_ports: frozenset[int]) -> None:
        self._places = parse_places(places)
        self._own_ports = own_ports

    def refusal(self, host: str, port: int, registered_from: str) -> str | None:
        """Why a recipient is refused to who registers it from that address; None when it is not."""
        if port < LOWEST_PORT:
            return f"port is {port}; accepted are {LOWEST_PORT} to 65535"
        if port in self._own_ports:
            return f"port is {port}, where a server of this node listens; accepted is another"
        address = _address(host)
        if address is not None and (address.is_multicast or address.is_unspecified):
            return f"host is {host}; accepted is the address of one machine"
        if _is_same(host, address, registered_from) or _is_among(host, address, self._places):
            return None
        return (
            f"host is {host}; accepted is {registered_from}, the address that registers, and what the option "
            "recipients of the gateway names"
        )


def _is_same(host: str, address: Address | None, registered_from: str) -> bool:
    origin = _address(registered_from)
    if address is None or origin is None:
        return host == "localhost" and origin is not None and origin.is_loopback
    return address == origin or (address.is_loopback and origin.is_loopback)


def _is_among(host: str, address: Address | None, places: Sequence[Place]) -> bool:
    if ANYWHERE in places:
        return True
    if address is None:
        return host.lower() in places
    return any(address in place for place in places if not isinstance(place, str))


def _address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
