"""The options of a gateway, out of the settings of its node and the file of its users."""

from __future__ import annotations

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from mqworker.errors import ConfigurationError
from mqworker.model.gateway_options import (
    DEFAULT_PORT_BY_GATEWAY,
    LOOPBACK,
    GatewayOptions,
    TcpPlace,
    parse_place,
)
from mqworker.model.gateway_users import GatewayUsers, read_users, users_of_token
from mqworker.settings import Settings

_LARGEST_USERS_FILE_BYTES = 1_048_576


def gateway_names(settings: Settings) -> list[str]:
    """Which gateways a node starts."""
    return [each.partition("=")[0] for each in settings.gateways]


def options_of(settings: Settings, name: str) -> GatewayOptions:
    """What this gateway is told; ConfigurationError when strangers could come in."""
    chosen = dict(each.partition("=")[::2] for each in settings.gateways).get(name)
    extra = (each.partition("=") for each in settings.gateway_options if each.startswith(f"{name}."))
    return GatewayOptions(
        name=name,
        place=parse_place(chosen) if chosen else TcpPlace(LOOPBACK, DEFAULT_PORT_BY_GATEWAY[name]),
        users=_users(settings),
        tls_certificate=settings.gateway_tls_certificate,
        tls_key=settings.gateway_tls_key,
        tls_client_ca=settings.gateway_tls_client_ca,
        max_strangers=settings.gateway_max_strangers,
        own_ports=own_ports(settings),
        max_connections=settings.gateway_max_connections,
        idle_s=settings.gateway_idle_s,
        rate=settings.gateway_rate,
        extra={key.removeprefix(f"{name}."): value for key, _, value in extra},
    )


def own_ports(settings: Settings) -> frozenset[int]:
    """The ports of the servers that a node has or uses."""
    places = [each.partition("=")[2] for each in settings.gateways]
    places += [each for each in (settings.http, settings.web) if each]
    parsed = [parse_place(each) for each in places if each]
    defaults = {DEFAULT_PORT_BY_GATEWAY[name] for name in gateway_names(settings)}
    ports = {each.port for each in parsed if isinstance(each, TcpPlace)} | _ports_of(settings.redis_url)
    return frozenset(ports | defaults)


def _ports_of(redis_url: str | None) -> set[int]:
    if redis_url is None or redis_url.startswith("unix:"):
        return set()
    parts = urlsplit(redis_url)
    default = 26_379 if "sentinel" in parts.scheme else 6_379
    ports = (host.rpartition(":")[2] for host in parts.netloc.rpartition("@")[2].split(","))
    return {int(port) if port.isdecimal() else default for port in ports}


def _users(settings: Settings) -> GatewayUsers:
    path = settings.gateway_users_file
    if path is None:
        return users_of_token(settings.gateway_token)
    if settings.gateway_token is not None:
        raise ConfigurationError(
            "gateway_token and gateway_users_file: got both; accepted is one of them: a token is a user's own"
        )
    return read_users(_document(path), str(path))


def _document(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_size > _LARGEST_USERS_FILE_BYTES:
            raise ConfigurationError(
                f"gateway_users_file {path} is too large; accepted are {_LARGEST_USERS_FILE_BYTES:,} bytes"
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"gateway_users_file {path}: {error.strerror}; accepted is a TOML file with tables [users.NAME]"
        ) from error
    except ValueError as error:
        raise ConfigurationError(
            f"gateway_users_file {path}: {error}; accepted is a TOML file with tables [users.NAME]"
        ) from error
