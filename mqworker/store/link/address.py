"""Where the server is: a URL becomes one of four closed values, and no secret ever leaves them in a text.

    redis://[user[:password]@]host[:port][/db]                      one server; `rediss` speaks TLS
    unix://[user[:password]@]/path/to.sock[?db=0]                   one server on this machine
    redis+sentinel://[user:password@]h1:26379,h2/<service>[/db]     a primary that sentinels know
    redis+cluster://[user:password@]h1:7000,h2:7001                 a cluster, from any of its nodes

TLS options are `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile` and `ssl_check_hostname`. Certificates are
always verified and TLS is never given up: there is no option for either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from mqworker.errors import ConfigurationError
from mqworker.redaction import masked_url

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379
MAX_PORT = 65535

ACCEPTED = (
    "redis://[user:password@]host[:port][/db], rediss://… for TLS, unix:///path/to.sock[?db=0], "
    "redis+sentinel://host:port,…/service[/db] or redis+cluster://host:port,…"
)
TLS_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname"})
SENTINEL_OPTIONS = frozenset({"sentinel_user", "sentinel_password"})
BOOLEANS: Mapping[str, bool] = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class HostPort:
    """One place a TCP connection can go to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we say we are; both None means that we say nothing."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """What a TLS connection trusts and shows; None stands for the system's own authorities."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Standalone:
    """One server behind a host and a port."""

    place: HostPort
    credentials: Credentials = Credentials()
    db: int = 0
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """One server on this machine."""

    path: str
    credentials: Credentials = Credentials()
    db: int = 0


@dataclass(frozen=True, slots=True)
class Sentinel:
    """The primary of a service that sentinels watch over."""

    sentinels: tuple[HostPort, ...]
    service: str
    credentials: Credentials = Credentials()
    sentinel_credentials: Credentials = Credentials()
    db: int = 0
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, known by some of its nodes."""

    nodes: tuple[HostPort, ...]
    credentials: Credentials = Credentials()
    tls: Tls | None = None


ServerAddress = Standalone | UnixSocket | Sentinel | Cluster


def parse_address(url: str) -> ServerAddress:
    """The address that `url` names; ConfigurationError says what is wrong with it, without its password."""
    try:
        return _address_of(urlsplit(url))
    except ValueError as reason:
        # Chaining would print the original, and urlsplit's own texts quote the whole URL.
        raise ConfigurationError(
            f"redis_url: {reason} in {masked_url(url)!r}. Accepted: {ACCEPTED}."
        ) from None


def describe(address: ServerAddress) -> str:
    """The address for people: as a URL, a password shown as ***."""
    match address:
        case Standalone(place, credentials, db, tls):
            return f"{_scheme(tls)}://{_shown(credentials)}{place}/{db}"
        case UnixSocket(path, credentials, db):
            return f"unix://{_shown(credentials)}{path}?db={db}"
        case Sentinel(sentinels, service, credentials, _, db, tls):
            places = ",".join(map(str, sentinels))
            return f"{_scheme(tls)}+sentinel://{_shown(credentials)}{places}/{service}/{db}"
        case Cluster(nodes, credentials, tls):
            return f"{_scheme(tls)}+cluster://{_shown(credentials)}{','.join(map(str, nodes))}"
        case _:
            assert_never(address)


def secrets_of(address: ServerAddress) -> tuple[str, ...]:
    """Every text that must not appear in a log or an error."""
    known = [address.credentials.password]
    if isinstance(address, Sentinel):
        known.append(address.sentinel_credentials.password)
    return tuple(secret for secret in known if secret)


def _address_of(parts: SplitResult) -> ServerAddress:
    match parts.scheme:
        case "unix":
            return _unix_socket(parts)
        case "redis" | "rediss":
            return _standalone(parts)
        case "redis+sentinel" | "rediss+sentinel":
            return _sentinel(parts)
        case "redis+cluster" | "rediss+cluster":
            return _cluster(parts)
        case _:
            raise ValueError(f"unknown scheme {parts.scheme!r}")


def _standalone(parts: SplitResult) -> Standalone:
    credentials, places = _authority(parts, DEFAULT_PORT)
    if len(places) != 1:
        raise ValueError("more than one host for a single server")
    segments = _path_segments(parts)
    if len(segments) > 1:
        raise ValueError("a path that is not a database number")
    database = _database(segments[0] if segments else "0")
    return Standalone(places[0], credentials, database, _tls(parts, _options(parts, _tls_options(parts))))


def _unix_socket(parts: SplitResult) -> UnixSocket:
    credentials, host = _user_info(parts.netloc)
    if host:
        raise ValueError(f"host {host!r} before the socket path (three slashes are needed)")
    path = unquote(parts.path, errors="strict")
    if path in {"", "/"}:
        raise ValueError("no socket path")
    options = _options(parts, frozenset({"db"}))
    return UnixSocket(path, credentials, _database(options.get("db", "0")))


def _sentinel(parts: SplitResult) -> Sentinel:
    credentials, sentinels = _authority(parts, DEFAULT_SENTINEL_PORT)
    segments = _path_segments(parts)
    service, *databases = segments or [""]
    if not service or len(databases) > 1:
        raise ValueError("no /service or /service/db after the sentinels")
    options = _options(parts, _tls_options(parts) | SENTINEL_OPTIONS)
    return Sentinel(
        sentinels,
        service=service,
        credentials=credentials,
        sentinel_credentials=Credentials(options.get("sentinel_user"), options.get("sentinel_password")),
        db=_database(databases[0] if databases else "0"),
        tls=_tls(parts, options),
    )


def _cluster(parts: SplitResult) -> Cluster:
    credentials, nodes = _authority(parts, DEFAULT_PORT)
    if _path_segments(parts) not in ([], ["0"]):
        raise ValueError("a database other than 0 (a cluster has only that one)")
    options = _options(parts, _tls_options(parts))
    return Cluster(nodes, credentials, _tls(parts, options))


def _authority(parts: SplitResult, default_port: int) -> tuple[Credentials, tuple[HostPort, ...]]:
    credentials, hosts = _user_info(parts.netloc)
    return credentials, tuple(_host_port(text, default_port) for text in hosts.split(","))


def _user_info(netloc: str) -> tuple[Credentials, str]:
    user_info, _, hosts = netloc.rpartition("@")
    user, _, password = user_info.partition(":")
    decoded_user, decoded_password = unquote(user, errors="strict"), unquote(password, errors="strict")
    return Credentials(decoded_user or None, decoded_password or None), hosts


def _host_port(text: str, default_port: int) -> HostPort:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"malformed IPv6 host {text!r}")
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError("no host")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"host {host!r} that no resolver accepts") from None
    return HostPort(host, _port(port) if port else default_port)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= MAX_PORT):
        raise ValueError(f"port {text!r} outside 1 to {MAX_PORT}")
    return int(text)


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_PORT))):
        raise ValueError(f"database {text!r} that is not a number")
    return int(text)


def _path_segments(parts: SplitResult) -> list[str]:
    trimmed = parts.path.strip("/")
    return [unquote(segment, errors="strict") for segment in trimmed.split("/")] if trimmed else []


def _options(parts: SplitResult, accepted: frozenset[str]) -> dict[str, str]:
    values_by_name = parse_qs(parts.query, keep_blank_values=True, errors="strict")
    for name, values in values_by_name.items():
        if name not in accepted:
            raise ValueError(f"unknown option {name!r} (known here: {', '.join(sorted(accepted)) or 'none'})")
        if len(values) > 1:
            raise ValueError(f"option {name!r} given twice")
    return {name: values[0] for name, values in values_by_name.items()}


def _tls_options(parts: SplitResult) -> frozenset[str]:
    return TLS_OPTIONS if parts.scheme.startswith("rediss") else frozenset()


def _tls(parts: SplitResult, options: Mapping[str, str]) -> Tls | None:
    if not parts.scheme.startswith("rediss"):
        return None
    check = options.get("ssl_check_hostname", "true").lower()
    if check not in BOOLEANS:
        raise ValueError(f"ssl_check_hostname={check!r} (true or false)")
    return Tls(
        ca_certs=options.get("ssl_ca_certs"),
        certfile=options.get("ssl_certfile"),
        keyfile=options.get("ssl_keyfile"),
        check_hostname=BOOLEANS[check],
    )


def _scheme(tls: Tls | None) -> str:
    return "redis" if tls is None else "rediss"


def _shown(credentials: Credentials) -> str:
    if credentials.password is None:
        return f"{credentials.user}@" if credentials.user else ""
    return f"{credentials.user or ''}:***@"
