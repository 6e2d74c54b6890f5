"""`mqworker web`: the console as a process of its own."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import replace
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from mqworker.errors import ConfigurationError
from mqworker.settings import Settings
from mqworker_services.web.access import Access, TrustedProxy, read_tokens
from mqworker_services.web.asgi import console
from mqworker_services.web.connections import Strangers, connections_of
from mqworker_services.web.console import Console

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HIGHEST_PORT = 65_535


def serve(
    settings: Settings, listen: str, allowed_hosts: Iterable[str], proxy: TrustedProxy | None = None
) -> None:
    """Serve until TERM or Ctrl-C."""
    host, port = parse_listen(listen)
    app = console_app(settings, listen, allowed_hosts, proxy)
    _ConsoleServer(uvicorn_config(app, host, port), app.state.console).run()


def console_app(
    settings: Settings, listen: str, allowed_hosts: Iterable[str], proxy: TrustedProxy | None = None
) -> Starlette:
    """The console as it is served at this place."""
    host, _ = parse_listen(listen)
    access = access_for(settings, host, listen, proxy)
    hosts = {*LOOPBACK_NAMES, *map(str.lower, allowed_hosts), _as_host(host)}
    is_open_to_any = not access.is_open and not allowed_hosts
    return console(settings, access=access, hosts=() if is_open_to_any else hosts)


def uvicorn_config(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> uvicorn.Config:
    """How it is served."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=connections_of(Strangers()),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=500,
    )


def proxy_of(user_header: str | None, addresses: Iterable[str]) -> TrustedProxy | None:
    """The proxy that is trusted, if any; raises ConfigurationError where anybody could pretend to be it."""
    known = frozenset(addresses)
    if user_header is None and not known:
        return None
    try:
        are_addresses = bool(known) and all(ipaddress.ip_address(each) for each in known)
    except ValueError:
        are_addresses = False
    if user_header is None or not re.fullmatch(r"[A-Za-z0-9-]{1,100}", user_header) or not are_addresses:
        raise ConfigurationError(
            "--trusted-user-header and --trusted-proxy belong together; accepted: the name of a header, and "
            "the IP address of each proxy that sets it"
        )
    return TrustedProxy(user_header.lower(), known)


def access_for(settings: Settings, host: str, listen: str, proxy: TrustedProxy | None = None) -> Access:
    """Who may come in; raises ConfigurationError where that would be everybody on other machines."""
    if settings.web_tokens is not None:
        return replace(read_tokens(settings.web_tokens), proxy=proxy)
    if is_loopback(host) or proxy is not None:
        return Access(proxy=proxy)
    raise ConfigurationError(
        f"--listen {listen} can be reached from other machines, and nobody would have to log in; accepted: "
        "a loopback address, or web_tokens (MQWORKER_WEB_TOKENS), a file with lines of `role name token`"
    )


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, colon, port = listen.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and int(port) <= _HIGHEST_PORT):
        raise ConfigurationError(
            f"--listen: got {listen[:100]!r}; accepted: host:port, such as 127.0.0.1:8780"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _as_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


class _ConsoleServer(uvicorn.Server):
    """A server that lets go of its viewers when it is told to stop, instead of waiting for open tabs."""

    def __init__(self, config: uvicorn.Config, served: Console) -> None:
        super().__init__(config)
        self._served = served

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """TERM or Ctrl-C."""
        self._served.hub.close()
        super().handle_exit(sig, frame)
