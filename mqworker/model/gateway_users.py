"""Who may come in at a gateway, and what each may do there: users, tokens, certificates, permissions. Pure.

A user proves itself by a token, of which only the SHA-256 is kept, or by the common name of a client
certificate. It may publish to, consume from and inspect the queues whose names match its patterns. Patterns
match the name that the client says: a queue of RedisMQ, a topic of GOMQ, an app of SKMQ.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mqworker.errors import ConfigurationError

PUBLISH, CONSUME, INSPECT = "publish", "consume", "inspect"
VERBS = (PUBLISH, CONSUME, INSPECT)
EVERYTHING = "*"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FIELDS = frozenset({"token_sha256", "certificate", *VERBS})
_LONGEST_TOKEN_BYTES = 1_024
_MOST_USERS = 1_000
_MOST_PATTERNS = 1_000


@dataclass(frozen=True, slots=True)
class GatewayUser:
    """One user; made by `read_users`, or `TRUSTED`."""

    name: str
    patterns_by_verb: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    token_digest: bytes | None = field(default=None, repr=False)
    certificate: str | None = None
    is_unlimited: bool = field(init=False, default=False)
    """Whether it may do everything with every queue."""

    def __post_init__(self) -> None:
        is_unlimited = all(EVERYTHING in self.patterns_by_verb.get(verb, ()) for verb in VERBS)
        object.__setattr__(self, "is_unlimited", is_unlimited)

    def may(self, verb: str, queue: str) -> bool:
        """Whether it may do this with a queue of that name."""
        return matches(self.patterns_by_verb.get(verb, ()), queue)

    def may_somewhere(self, verb: str) -> bool:
        """Whether there is a queue with which it may do this."""
        return verb in self.patterns_by_verb


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a name is among those that the patterns stand for; * is any text."""
    return _compiled(patterns).fullmatch(name) is not None


@lru_cache(maxsize=_MOST_USERS)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    parts = (".*".join(map(re.escape, re.sub(r"\*+", "*", each).split("*"))) for each in patterns)
    return re.compile("|".join(f"(?:{part})" for part in parts) or r"(?!)", re.DOTALL)


TRUSTED = GatewayUser("default", dict.fromkeys(VERBS, (EVERYTHING,)))
"""Who knows the one token of a gateway without users, or comes where none is asked for."""


def digest_of(token: bytes) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token).digest()


@dataclass(frozen=True, slots=True)
class GatewayUsers:
    """Everybody who may come in; empty where nobody is asked."""

    users: tuple[GatewayUser, ...] = ()

    def by_token(self, token: bytes, name: str | None = None) -> GatewayUser | None:
        """The user with this token, and of this name if one is given.

        Looks at all of them: it takes as long for a nearly right token, and for whichever user.
        """
        if not token or len(token) > _LONGEST_TOKEN_BYTES:
            return None
        digest, found = digest_of(token), None
        for user in self.users:
            is_it = user.token_digest is not None and hmac.compare_digest(digest, user.token_digest)
            found = user if is_it and name in {None, user.name} else found
        return found

    def by_certificate(self, names: Sequence[str]) -> GatewayUser | None:
        """The user whose certificate has one of these common names; the certificate itself was verified."""
        return next((user for user in self.users if user.certificate in names), None)


def users_of_token(token: str | None) -> GatewayUsers:
    """One user who may do everything, or none."""
    if token is None:
        return GatewayUsers()
    return GatewayUsers((GatewayUser(TRUSTED.name, TRUSTED.patterns_by_verb, digest_of(token.encode())),))


def common_names(certificate: Mapping[str, Any] | None) -> list[str]:
    """The common names in a certificate, as `ssl` shows one."""
    subject = (certificate or {}).get("subject", ())
    return [value for row in subject for key, value in row if key == "commonName"]


def read_users(document: Mapping[str, Any], source: str) -> GatewayUsers:
    """The users in a parsed TOML file: a table [users.NAME] each. ConfigurationError names what is wrong."""
    tables = document.get("users")
    if not isinstance(tables, dict) or set(document) != {"users"} or not 1 <= len(tables) <= _MOST_USERS:
        raise ConfigurationError(
            f"gateway_users_file {source}: accepted are 1 to {_MOST_USERS:,} tables [users.NAME] alone"
        )
    users = tuple(_user(name, table, f"{source}, [users.{name[:64]}]") for name, table in tables.items())
    for kind, values in (
        ("token", [user.token_digest for user in users if user.token_digest is not None]),
        ("certificate", [user.certificate for user in users if user.certificate is not None]),
    ):
        if len(set(values)) != len(values):
            raise ConfigurationError(
                f"gateway_users_file {source}: two users have the same {kind}; accepted is one each"
            )
    return GatewayUsers(users)


def _user(name: str, table: object, where: str) -> GatewayUser:
    if not _NAME.fullmatch(name):
        raise _wrong(where, "the name has 1 to 64 characters of A-Z a-z 0-9 _ . -")
    if not isinstance(table, dict) or not set(table) <= _FIELDS:
        raise _wrong(where, f"accepted are {', '.join(sorted(_FIELDS))}")
    digest, certificate = table.get("token_sha256"), table.get("certificate")
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise _wrong(
            where, "token_sha256 is 64 hexadecimal digits in small letters, as `sha256sum` prints them"
        )
    if certificate is not None and not (isinstance(certificate, str) and certificate):
        raise _wrong(where, "certificate is the common name of a client certificate")
    if digest is None and certificate is None:
        raise _wrong(where, "token_sha256 or certificate is needed, or nobody can be this user")
    patterns = {verb: _patterns(table[verb], verb, where) for verb in VERBS if verb in table}
    return GatewayUser(name, patterns, bytes.fromhex(digest) if digest else None, certificate)


def _patterns(given: object, verb: str, where: str) -> tuple[str, ...]:
    is_list = isinstance(given, list) and 1 <= len(given) <= _MOST_PATTERNS
    if (
        not isinstance(given, list)
        or not is_list
        or not all(isinstance(each, str) and each for each in given)
    ):
        raise _wrong(where, f'{verb} is a list of names, such as ["mail", "orders.*"], where * is any text')
    return tuple(given)


def _wrong(where: str, accepted: str) -> ConfigurationError:
    return ConfigurationError(f"gateway_users_file {where}: {accepted}")
