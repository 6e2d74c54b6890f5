"""What a gateway is told: where to listen, who may come in, and how much of anything. Pure."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mqworker.errors import ConfigurationError

DEFAULT_PORT_BY_GATEWAY: Mapping[str, int] = {"skmq": 1734, "gomq": 10001, "redismq": 6390}
LOOPBACK = "127.0.0.1"
HIGHEST_PORT = 65_535
ACCEPTED_PLACE = "host:port, [ipv6]:port, :port, or unix:/path/of/socket"

_PLACE = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\])|([^\[\]:/@\s]*)):([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class TcpPlace:
    """A host and a port; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine can come."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class UnixPlace:
    """A socket in the file system, whose permissions decide who may come."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"

    @property
    def is_local(self) -> bool:
        """Always."""
        return True


Place = TcpPlace | UnixPlace


def parse_place(text: str) -> Place:
    """Where to listen; raises ValueError for anything but `ACCEPTED_PLACE`."""
    if text.startswith("unix:") and len(text) > len("unix:"):
        return UnixPlace(text.removeprefix("unix:"))
    found = _PLACE.fullmatch(text)
    if found is None or int(found[3]) > HIGHEST_PORT:
        raise ValueError(text)
    host = found[1].strip("[]") if found[1] else found[2]
    return TcpPlace(host or LOOPBACK, int(found[3]))


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Everything a gateway needs to know to begin."""

    name: str
    place: Place
    token: str | None = field(default=None, repr=False)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_connections: int = 1_000
    max_message_bytes: int = 1_048_576
    idle_s: float = 300.0
    """A connection that says nothing for so long is closed, unless it waits for us; 0: never."""
    handshake_s: float = 5.0
    """So long a connection may take until its first whole command, or its token."""
    rate: int = 0
    """Commands each second on one connection; 0: as many as it likes."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """What only this gateway knows."""

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigurationError(
                "gateway_tls_certificate and gateway_tls_key: got one of them; accepted: both or neither"
            )
        if not (self.place.is_local or self.token):
            # TLS alone hides what is said, and lets anybody say it.
            raise ConfigurationError(
                f"gateway {self.name}: listens at {self.place}, which other machines can reach; accepted: "
                "a loopback address or a unix socket; any other with gateway_token, best together with "
                "gateway_tls_certificate"
            )

    def is_token(self, given: bytes) -> bool:
        """Whether somebody knows the token; takes as long for a nearly right one as for any other."""
        return self.token is not None and hmac.compare_digest(given, self.token.encode())
