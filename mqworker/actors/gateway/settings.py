"""The options of a gateway, out of the settings of its node. Pure."""

from __future__ import annotations

from mqworker.model.gateway_options import (
    DEFAULT_PORT_BY_GATEWAY,
    LOOPBACK,
    GatewayOptions,
    TcpPlace,
    parse_place,
)
from mqworker.settings import Settings


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
        token=settings.gateway_token,
        tls_certificate=settings.gateway_tls_certificate,
        tls_key=settings.gateway_tls_key,
        max_connections=settings.gateway_max_connections,
        idle_s=settings.gateway_idle_s,
        rate=settings.gateway_rate,
        extra={key.removeprefix(f"{name}."): value for key, _, value in extra},
    )
