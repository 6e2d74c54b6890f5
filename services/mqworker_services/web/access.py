"""Who may do what: roles, tokens, sessions, and what a request from another site looks like.

Without tokens everybody who reaches the console is its administrator: it then listens on loopback only.
A file of tokens has one line each, `role name token`; roles are view, operate and admin.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from mqworker.errors import ConfigurationError, MqworkerError
from mqworker.operate.job_filter import JobFilter

COOKIE = "mqworker_console"
SHORTEST_TOKEN = 16
MOST_SESSIONS_EACH = 100
"""Of one token; who logs in again and again ends only sessions of its own."""
SESSION_S = 24 * 3600.0
"""How old a session may become; a stolen cookie is worth nothing the day after."""
_MOST_ADDRESSES = 10_000
_MOST_FAILURES = 10
_FAILURES_WITHIN_S = 60.0
_WORDS_IN_LINE = 3
_LONGEST_USER = 200


class Role(IntEnum):
    """What somebody may do; each may do what those before it may."""

    VIEW = 1
    OPERATE = 2
    ADMIN = 3


ROLE_BY_ACTION = {"drop": Role.ADMIN, "drop-cause": Role.ADMIN, "bulk-drop": Role.ADMIN}
"""What destroys is for administrators; every other action is for operators."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who was let in."""

    name: str
    role: Role

    @property
    def can_see_arguments(self) -> bool:
        """Arguments are hidden from those who may only look."""
        return self.role >= Role.OPERATE

    def may(self, action: str) -> bool:
        """Whether this action is theirs."""
        return self.role >= ROLE_BY_ACTION.get(action, Role.OPERATE)


LOCAL = Identity("local", Role.ADMIN)


class NotAllowed(MqworkerError):
    """The role of whoever asks is not enough."""


def demand(identity: Identity, action: str) -> None:
    """Raise NotAllowed unless this action is theirs."""
    if not identity.may(action):
        raise NotAllowed(f"the role {identity.role.name.lower()} may not do this")


def demand_search(identity: Identity, wanted: JobFilter) -> None:
    """Whoever may not see arguments may not ask for them one by one either."""
    if wanted.arguments and not identity.can_see_arguments:
        raise NotAllowed(f"the role {identity.role.name.lower()} may not see arguments, nor search by them")


@dataclass(frozen=True, slots=True)
class TrustedProxy:
    """A proxy that has asked who somebody is, and says so in a header; from its address alone it counts."""

    user_header: str
    addresses: frozenset[str]
    role_header: str = "x-mqworker-role"

    def identity(self, client: str | None, headers: Mapping[str, str]) -> Identity | None:
        """Who the proxy says it is; None from anywhere else, without a name, or with an unknown role."""
        name = headers.get(self.user_header, "").strip()
        if client not in self.addresses or not name or len(name) > _LONGEST_USER or not name.isprintable():
            return None
        role = Role.__members__.get(headers.get(self.role_header, "view").upper())
        return None if role is None else Identity(name, role)


@dataclass(frozen=True, slots=True)
class _Session:
    identity: Identity
    ends_at_s: float


@dataclass(slots=True)
class Access:
    """The tokens, as their hashes, and who is logged in."""

    identity_by_hash: dict[bytes, Identity] = field(default_factory=dict)
    proxy: TrustedProxy | None = None
    _sessions: dict[str, _Session] = field(default_factory=dict)
    _failures_by_address: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    @property
    def is_open(self) -> bool:
        """Whether nobody has to say who they are."""
        return not self.identity_by_hash and self.proxy is None

    def identify(self, *, bearer: str | None, session: str | None, now_s: float) -> Identity | None:
        """Who sends this request; None: somebody unknown."""
        if self.is_open:
            return LOCAL
        if bearer is not None:
            return self._known(bearer)
        found = self._sessions.get(session or "")
        return found.identity if found is not None and now_s < found.ends_at_s else None

    def is_throttled(self, address: str, now_s: float) -> bool:
        """Whether too many tokens from there were wrong in the last minute. Others are let in meanwhile."""
        failures = self._failures_by_address.get(address)
        if failures is None or len(failures) < _MOST_FAILURES:
            return False
        return now_s - failures[0] < _FAILURES_WITHIN_S

    def log_in(self, token: str, address: str, now_s: float) -> str | None:
        """The session of who has this token; None where nobody has it."""
        identity = self._known(token)
        if identity is None:
            self._note_failure(address, now_s)
            return None
        self._drop_sessions(identity, now_s)
        session = secrets.token_urlsafe(32)
        self._sessions[session] = _Session(identity, now_s + SESSION_S)
        return session

    def log_out(self, session: str | None) -> None:
        """Forget a session."""
        self._sessions.pop(session or "", None)

    def _note_failure(self, address: str, now_s: float) -> None:
        if address not in self._failures_by_address and len(self._failures_by_address) >= _MOST_ADDRESSES:
            self._failures_by_address.popitem(last=False)
        self._failures_by_address.setdefault(address, deque(maxlen=_MOST_FAILURES)).append(now_s)

    def _drop_sessions(self, identity: Identity, now_s: float) -> None:
        """Those that ended, and the oldest of this identity if it has as many as it may."""
        self._sessions = {mark: each for mark, each in self._sessions.items() if now_s < each.ends_at_s}
        own = [mark for mark, each in self._sessions.items() if each.identity == identity]
        for mark in own[: max(0, len(own) + 1 - MOST_SESSIONS_EACH)]:
            del self._sessions[mark]

    def _known(self, token: str) -> Identity | None:
        """Compared with every token in the same time, so that the time tells nothing."""
        given, found = _hash(token), None
        for known, identity in self.identity_by_hash.items():
            if hmac.compare_digest(known, given):
                found = identity
        return found


def read_tokens(file: Path) -> Access:
    """The tokens of a file; raises ConfigurationError that names the line, and never the token."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"web_tokens: {file} cannot be read: {error}") from error
    identities: dict[bytes, Identity] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        is_right = len(words) == _WORDS_IN_LINE and words[0].upper() in Role.__members__
        if not is_right or len(words[2]) < SHORTEST_TOKEN:
            raise ConfigurationError(
                f"web_tokens: line {number} of {file} does not fit; accepted: `role name token` with a role "
                f"out of view, operate and admin, and a token of at least {SHORTEST_TOKEN} characters"
            )
        identities[_hash(words[2])] = Identity(words[1], Role[words[0].upper()])
    if not identities:
        raise ConfigurationError(f"web_tokens: {file} has no token; accepted: lines of `role name token`")
    return Access(identities)


def is_foreign(method: str, *, fetch_site: str | None, origin: str | None, host: str | None) -> bool:
    """Whether a request that changes something was made by a page of another site. Browsers always say so.

    Programs send neither header; they carry no cookie that somebody else could misuse, either.
    """
    if method in {"GET", "HEAD", "OPTIONS"}:
        return False
    if fetch_site is not None:
        return fetch_site not in {"same-origin", "none"}
    return origin is not None and origin.partition("://")[2] != host


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
