"""How a link to a server is set up: what the sync and the async link have in common.

A link is one authenticated socket. redis-py makes it (name look-up, TLS, AUTH, SELECT, keepalive); its
retries are off, because only the layer above knows whether a call may be repeated.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, assert_never

from mqworker.errors import ConfigurationError
from mqworker.store.link.address import Cluster, Credentials, HostPort, Sentinel, ServerAddress, Tls

Place: TypeAlias = HostPort | str
"""Where a link leads: a host and port, or the path of a unix socket."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a server wants to know of us, the same for every place of one address."""

    credentials: Credentials
    db: int = 0
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """How long we wait, and under which name the server lists us."""

    connect_timeout_s: float
    read_timeout_s: float
    client_name: str | None = None


def table_limits(limits: Limits, nodes: int) -> Limits:
    """For asking a node of a cluster who serves what: where there are others, nobody waits long for one."""
    if nodes <= 1:
        return limits
    return replace(limits, read_timeout_s=min(limits.read_timeout_s, limits.connect_timeout_s))


DEFAULT_LIMITS = Limits(connect_timeout_s=2.0, read_timeout_s=5.0, client_name="mqworker")
"""For programs that open a client by URL alone; the settings of an app have the same."""


def access_of(address: ServerAddress) -> Access:
    """The access to the data servers of `address`."""
    match address:
        case Cluster(_, credentials, tls):
            return Access(credentials, tls=tls)
        case Sentinel():
            return Access(address.credentials, address.db, address.tls)
        case _:
            return Access(address.credentials, address.db, getattr(address, "tls", None))


def sentinel_access(address: Sentinel) -> Access:
    """The access to the sentinels themselves, which have users and passwords of their own."""
    return Access(address.sentinel_credentials, tls=address.tls)


def link_options(place: Place, access: Access, limits: Limits) -> dict[str, Any]:
    """The arguments of redis-py's connection classes, without their `retry`."""
    options: dict[str, Any] = {
        "db": access.db,
        "username": access.credentials.user,
        "password": access.credentials.password,
        "socket_connect_timeout": limits.connect_timeout_s,
        "socket_timeout": limits.read_timeout_s,
        "driver_info": None,  # saves two round trips per link
        "protocol": 2,
    }
    match place:
        case HostPort(host, port):
            options |= {"host": host, "port": port, "socket_keepalive": True}
        case str():
            options |= {"path": place}
        case _:
            assert_never(place)
    return options if access.tls is None else options | _tls_options(access.tls)


def _tls_options(tls: Tls) -> dict[str, Any]:
    check_files(tls)
    return {
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": tls.check_hostname,
        "ssl_ca_certs": tls.ca_certs,
        "ssl_certfile": tls.certfile,
        "ssl_keyfile": tls.keyfile,
    }


def check_files(tls: Tls) -> None:
    """ConfigurationError when a file of TLS is missing or no PEM: waiting for the server would not help."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca_certs is not None:
        with _blaming("ssl_ca_certs", tls.ca_certs, "a file with certificates of authorities, as PEM"):
            context.load_verify_locations(tls.ca_certs)
    if tls.keyfile is not None:
        with _blaming("ssl_keyfile", tls.keyfile, "a file with a private key, as PEM"):
            Path(tls.keyfile).open("rb").close()
    if tls.certfile is not None:
        with _blaming("ssl_certfile", tls.certfile, "a file with a certificate chain, as PEM, and its key"):
            context.load_cert_chain(tls.certfile, tls.keyfile)


@contextmanager
def _blaming(option: str, path: str, accepted: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # ssl.SSLError is of this family
        reason = str(error) if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigurationError(
            f"redis_url: {option} is {path}, which cannot be used ({reason}); accepted is {accepted}"
        ) from error
