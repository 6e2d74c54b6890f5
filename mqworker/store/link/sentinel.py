"""Asking sentinels where the primary is."""

from __future__ import annotations

from typing import cast

from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.store.command import Command
from mqworker.store.link.address import HostPort, Sentinel
from mqworker.store.link.options import Limits, sentinel_access
from mqworker.store.link.pool import LinkPool, open_link
from mqworker.store.link.server_errors import ServerName, settled


def find_primary(address: Sentinel, limits: Limits, name: ServerName) -> HostPort:
    """The first answer of a sentinel; StoreUnavailable when none answers or knows the service."""
    reasons: list[str] = []
    for place in address.sentinels:
        sentinel = _sentinel(place, address, limits, name)
        try:
            reply = settled(sentinel.exchange([primary_query(address)]), sentinel.name)[0]
        except ConfigurationError:
            raise
        except MqworkerError as error:
            reasons.append(str(error))
            continue
        finally:
            sentinel.close()
        if reply is not None:
            return parse_primary(reply)
        reasons.append(unknown_service(address, place))
    raise no_primary(address, reasons)


def _sentinel(place: HostPort, address: Sentinel, limits: Limits, name: ServerName) -> LinkPool:
    sentinel_name = ServerName(f"sentinel {place}", name.secrets)
    return LinkPool(sentinel_name, lambda: open_link(place, sentinel_access(address), limits, sentinel_name))


def primary_query(address: Sentinel) -> Command:
    """The question for a sentinel."""
    return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)


def parse_primary(reply: object) -> HostPort:
    """The place out of a sentinel's answer."""
    host, port = cast("list[bytes]", reply)
    return HostPort(host.decode(), int(port))


def unknown_service(address: Sentinel, place: HostPort) -> str:
    """A sentinel answered that it does not watch the service."""
    return f"{place} does not know the service {address.service!r}"


def no_primary(address: Sentinel, reasons: list[str]) -> StoreUnavailable:
    """No sentinel could help."""
    return StoreUnavailable(
        f"No sentinel names a primary of {address.service!r} ({'; '.join(reasons)}).", maybe_executed=False
    )
