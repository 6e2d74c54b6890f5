"""The settings of the SKMQ gateway, and the two files of its document from which they may come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mqworker.errors import ConfigurationError
from mqworker.queues.skmq.frame import LARGEST_FRAME_BYTES
from mqworker.queues.skmq.settlement import RetryRules
from mqworker_services.gateways.skmq.recipient_rules import parse_places

_YEAR_MS = 366 * 24 * 3_600_000
_CHOICES = {
    "rate_scope": ("accept", "frame"),
    "dead_letter": ("keep", "delete"),
    "greeting": ("yes", "no"),
    "push_tls": ("yes", "no"),
}
_LIMITS: Mapping[str, tuple[int, int]] = {
    "retry_times": (0, 998),
    "retry_delay": (0, _YEAR_MS),
    "ack_timeout": (1, _YEAR_MS),
    "arrived_wait": (0, _YEAR_MS),
    "connect_timeout": (1, 600_000),
    "heartbeat": (1, _YEAR_MS),
    "pong_timeout": (1, 600_000),
    "rate": (1, 1_000_000),
    "concurrency": (1, 100_000),
    "max_frame": (1_024, 64 * 1024 * 1024),
}
_OF_THE_SERVER = {"listener_host", "listener_port", "log_level"}


@dataclass(frozen=True, slots=True)
class SkmqOptions:
    """How messages are delivered. All times in milliseconds, as in the document."""

    retry_times: int = 5
    retry_delay: int = 60_000
    ack_timeout: int = 60_000
    arrived_wait: int = 60_000
    """How long a connection stays open after `arrived`, for the ack; never longer than ack_timeout."""
    connect_timeout: int = 10_000
    heartbeat: int = 60_000
    pong_timeout: int = 60_000
    rate: int = 1_000
    """Permits per second, for connections or, with rate_scope "frame", for frames too."""
    rate_scope: str = "accept"
    dead_letter: str = "keep"
    concurrency: int = 1_000
    """Messages of one app that are pushed and not acknowledged, at this gateway."""
    max_frame: int = LARGEST_FRAME_BYTES
    resp_msgid: bool = False
    """Whether replies name the message: an addition to the document."""
    recipients: str = ""
    """Where recipients may be besides the address that registers them: addresses, networks and host names,
    separated by spaces; `*` for anywhere."""
    greeting: str = "yes"
    """Whether an address is pushed to only after it answered `ping` with `pong`."""
    push_tls: str = "no"
    """Whether recipients are connected to by TLS; their certificates are verified."""
    push_tls_ca: str = ""
    """A file with the certificates that sign those of recipients; empty for the system's own."""

    def __post_init__(self) -> None:
        for name, (least, most) in _LIMITS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise ConfigurationError(
                    f"{name} is {value!r}; accepted is a whole number from {least:,} to {most:,}"
                )
        for name, accepted in _CHOICES.items():
            if getattr(self, name) not in accepted:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}; accepted are {' and '.join(accepted)}"
                )
        parse_places(self.recipients)

    @property
    def rules(self) -> RetryRules:
        """What decides about another push."""
        return RetryRules(self.retry_times, self.retry_delay)


def options_of(given: Mapping[str, Any]) -> SkmqOptions:
    """Options by name, from a file or a command line; texts are read as numbers where a number is due."""
    known = {field.name for field in fields(SkmqOptions)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigurationError(
            f"{unknown[0]} is not an option of skmq; accepted are {', '.join(sorted(known))}"
        )
    return SkmqOptions(**{name: _value(name, value) for name, value in given.items()})


def read_conf(path: Path) -> tuple[dict[str, Any], str | None]:
    """The options in a conf file, and the address to listen on, if it gives one."""
    conf = _read_object("conf", path)
    host, port = conf.get("listener_host", "127.0.0.1"), conf.get("listener_port")
    listen = None if port is None and "listener_host" not in conf else f"{host}:{port or 1734}"
    return {name: value for name, value in conf.items() if name not in _OF_THE_SERVER}, listen


def read_dbconf(path: Path) -> str:
    """The URL of the server in a dbconf file. A missing file means the document's defaults."""
    conf = _read_object("dbconf", path) if path.exists() else {}
    address, database = conf.get("address", "127.0.0.1:6379"), conf.get("db", 1)
    if not isinstance(address, str) or not address:
        raise ConfigurationError(f"address in {path} is {address!r}; accepted is host:port")
    if not isinstance(database, int) or isinstance(database, bool) or database < 0:
        raise ConfigurationError(f"db in {path} is {database!r}; accepted is a whole number from 0")
    password = conf.get("password") or ""
    login = f":{quote(str(password), safe='')}@" if password else ""
    return f"redis://{login}{address}/{database}"


def _value(name: str, value: Any) -> Any:  # noqa: ANN401 - what a file or a command line holds
    if name in _LIMITS and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if name == "resp_msgid" and isinstance(value, str):
        return value.lower() in {"1", "true", "yes", "on"}
    return value


def _read_object(name: str, path: Path) -> dict[str, Any]:
    try:
        conf = json.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{name} file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{name} file {path} is not JSON: {error}") from error
    if not isinstance(conf, dict):
        raise ConfigurationError(f"{name} file {path} holds {type(conf).__name__}; accepted is an object")
    return conf
