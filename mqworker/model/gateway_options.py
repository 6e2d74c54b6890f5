"""What a gateway is told: where to listen, who may come in, and how much of anything. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mqworker.errors import ConfigurationError
from mqworker.model.gateway_users import TRUSTED, GatewayUser, GatewayUsers

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
    users: GatewayUsers = field(default_factory=GatewayUsers, repr=False)
    """Who may come in; without users and without `tls_client_ca`, everybody who can connect."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    """Whoever connects shows a certificate that was signed by one of these."""
    max_strangers: int = 20
    """Connections of one address that have not shown yet who they are."""
    own_ports: frozenset[int] = frozenset()
    """Where the servers of this node listen: nobody may be made to write there."""
    max_connections: int = 1_000
    max_message_bytes: int = 1_048_576
    idle_s: float = 300.0
    """A connection that says nothing for so long is closed, unless it waits for us; 0: never."""
    handshake_s: float = 5.0
    """How long a connection may take until its first whole command, or its token."""
    rate: int = 0
    """Commands each second on one connection; 0: as many as it likes."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """What only this gateway knows."""

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigurationError(
                "gateway_tls_certificate and gateway_tls_key: got one of them; accepted: both or neither"
            )
        if self.tls_client_ca is not None and not self.has_tls:
            raise ConfigurationError(
                "gateway_tls_client_ca: got no certificate of our own; accepted: together with "
                "gateway_tls_certificate and gateway_tls_key"
            )
        # TLS alone hides what is said, and lets anybody say it; a token alone is read by whoever listens.
        if not (self.place.is_local or (self.has_tls and self.asks_who)):
            raise ConfigurationError(
                f"gateway {self.name}: listens at {self.place}, which other machines can reach; accepted: "
                "a loopback address or a unix socket; any other with gateway_tls_certificate and "
                "gateway_tls_key, and with gateway_token_file, gateway_users_file or gateway_tls_client_ca"
            )

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.tls_certificate is not None

    @property
    def asks_who(self) -> bool:
        """Whether a client has to show who it is."""
        return bool(self.users.users) or self.tls_client_ca is not None

    def newcomer(self, common_names: Sequence[str] = ()) -> GatewayUser | None:
        """Who somebody is that said nothing yet, by its verified certificate; None: it has to say."""
        if not self.asks_who:
            return TRUSTED
        if self.tls_client_ca is None:
            return None
        return self.users.by_certificate(common_names) if self.users.users else TRUSTED
