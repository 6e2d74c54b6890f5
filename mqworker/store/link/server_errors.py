"""What went wrong at a server, as one of our errors: pure, and shared by the sync and the async connection.

Three sources: connecting (`connect_trouble`), a link that broke under a call (`link_trouble`), and error
replies (`settled`). Texts name the server without secrets and say what to do. NOSCRIPT and the refusals of
our own scripts are no trouble but answers: they stay in the list of replies as `ReplyError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from redis import exceptions

from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.store.command import Command, Reply, ReplyError

SCRIPT_CODE_PREFIX = "MQW_"
MAX_CLIENTS = "max number of clients reached"
TEXT_LIMIT = 300
_SCRIPT_COMMANDS = frozenset({"EVALSHA", "EVAL", "FCALL"})
_SCRIPT_COMMAND = re.compile(r"['`\"](?:eval|evalsha|script)\b", re.IGNORECASE)

# redis-py raises these out of `read_response` although they are replies: the link is in step after them.
REPLY_ERRORS = (
    exceptions.ResponseError,
    exceptions.BusyLoadingError,
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
)

# redis-py cuts the code off the text of the errors that it has a class for. Subclasses stand before parents.
CODE_BY_CLASS: Mapping[type[Exception], str] = {
    exceptions.NoScriptError: "NOSCRIPT",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.ExecAbortError: "EXECABORT",
}

# The server answers these before it runs anything, so nothing was executed.
ADVICE_BY_UNAVAILABLE_CODE: Mapping[str, str] = {
    "LOADING": "is still loading its data; it will answer when that is done",
    "READONLY": "is a replica now; the primary is looked up again at the next call",
    "MASTERDOWN": "is a replica that lost its primary; wait for the failover",
    "CLUSTERDOWN": "belongs to a cluster that does not serve all its slots; wait, or repair the cluster",
    "TRYAGAIN": "is moving this slot to another node; wait until that is done",
    "NOREPLICAS": "has fewer replicas than min-replicas-to-write demands; start them",
    "BUSY": "is busy running a long script; wait, or end it with SCRIPT KILL",
    "MISCONF": "cannot save to its disk and therefore refuses writes; see its log and make room",
}
ADVICE_BY_REFUSED_CODE: Mapping[str, str] = {
    "NOAUTH": "demands a password; put it into redis_url",
    "WRONGPASS": "does not accept the user or password in redis_url",
    "NOPERM": "does not permit this command to the user in redis_url; `mqworker acl` prints what is needed",
    "ACL": "does not permit a command of this script to the user in redis_url; see `mqworker acl`",
    "WRONGTYPE": "holds a key of another type under a name of ours; use another database or server",
    "MOVED": "is a node of a cluster; use a redis+cluster:// address",
    "ASK": "is a node of a cluster; use a redis+cluster:// address",
    "CROSSSLOT": "is a cluster, and the keys of one call lie in different slots",
}
# What OpenSSL says when waiting does not help.
TLS_REFUSALS: Mapping[str, str] = {
    "CERTIFICATE_VERIFY_FAILED": "shows a certificate that is not trusted; see ssl_ca_certs and the host",
    "WRONG_VERSION_NUMBER": "does not speak TLS on this port; use redis:// or its TLS port",
}


@dataclass(frozen=True, slots=True)
class ServerName:
    """How a server is called in texts, and what must not stand in them."""

    text: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def mask(self, text: str) -> str:
        """`text` on one line, of bounded length, without secrets and without echoed arguments."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        text = text.partition(", with args beginning with")[0]
        return " ".join(text.split())[:TEXT_LIMIT]


def connect_trouble(
    error: Exception, server: ServerName, *, may_want_tls: bool = False, speaks_plainly: bool = False
) -> MqworkerError:
    """The error for a link that could not be opened: nothing was sent.

    `speaks_plainly`: without TLS it answered as a Redis does (plain_probe.py).
    """
    if speaks_plainly:
        return StoreRefused(_sentence(server, TLS_REFUSALS["WRONG_VERSION_NUMBER"], str(error)))
    if isinstance(error, REPLY_ERRORS):
        return _reply_trouble(error, server, maybe_executed=False)
    text = str(error)
    for sign, advice in TLS_REFUSALS.items():
        if sign in text:
            return StoreRefused(_sentence(server, advice, text))
    if isinstance(error, exceptions.InvalidResponse):
        return StoreRefused(_sentence(server, "does not speak the Redis protocol", text))
    what = "cannot be reached"
    if may_want_tls and is_hang_up(error) and "while reading" in text:
        what = "cannot be reached, it closes connections at once; if it wants TLS, use rediss://"
    return StoreUnavailable(_sentence(server, what, text), maybe_executed=False)


def replica_refusal(server: ServerName) -> StoreRefused:
    """For an address of one server, which never took a write from us: it is not the primary's."""
    return StoreRefused(
        f"Redis at {server.text} is a replica, which takes no writes; accepted is the address of its "
        "primary, or redis+sentinel:// with the sentinels that know it.",
        code="READONLY",
    )


@dataclass(frozen=True, slots=True)
class FirstWrite:
    """Until a server took a write, READONLY means that its address is wrong; afterwards, a failover."""

    name: ServerName

    def judge(self, commands: Sequence[Command], raw: Sequence[object]) -> FirstWrite | None:
        """Raise `StoreRefused` for a replica; None once a script, which may write, was accepted."""
        if has_lost_primary(raw):
            raise replica_refusal(self.name)
        is_accepted = any(
            command[0] in _SCRIPT_COMMANDS and not isinstance(reply, Exception)
            for command, reply in zip(commands, raw, strict=True)
        )
        return None if is_accepted else self


def link_trouble(error: Exception, server: ServerName) -> MqworkerError:
    """The error for a link that broke while a call was under way: it may have been executed."""
    text = str(error)
    if isinstance(error, exceptions.InvalidResponse):
        return StoreRefused(_sentence(server, "does not speak the Redis protocol", text))
    if MAX_CLIENTS in text:
        return StoreUnavailable(
            _sentence(server, "has no room for another client", text), maybe_executed=False
        )
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return StoreUnavailable(_sentence(server, "did not answer in time", text))
    return StoreUnavailable(_sentence(server, "closed the connection", text))


def is_hang_up(error: Exception | None) -> bool:
    """Whether the other end closed the link, rather than saying nothing for too long."""
    return error is not None and not isinstance(error, exceptions.TimeoutError | TimeoutError)


def settled(raw: list[object], server: ServerName) -> list[Reply]:
    """The replies for the caller; raises the first trouble among them."""
    for index, reply in enumerate(raw):
        if isinstance(reply, Exception):
            raw[index] = _answer_or_raise(reply, raw, server)
    return cast("list[Reply]", raw)  # hiredis hands out nothing else for RESP2


def each_settled(raw: Iterable[object], server: ServerName) -> list[Reply | MqworkerError]:
    """The replies of commands that have nothing to do with one another: the trouble of each in its place."""
    return [
        _answer_or_trouble(reply, server) if isinstance(reply, Exception) else cast("Reply", reply)
        for reply in raw
    ]


def has_lost_primary(raw: Iterable[object]) -> bool:
    """Whether the server said that it does not take writes any more: its links are of no use."""
    return any(isinstance(reply, exceptions.ReadOnlyError | exceptions.MasterDownError) for reply in raw)


def was_executed(reply: object) -> bool:
    """Whether the command of this reply may have changed anything."""
    if not isinstance(reply, Exception | ReplyError):
        return True
    code = reply.code if isinstance(reply, ReplyError) else code_and_text(reply)[0]
    return code not in ADVICE_BY_UNAVAILABLE_CODE and code not in {
        "NOSCRIPT",
        "OOM",
        "NOAUTH",
        "MOVED",
        "ASK",
    }


def code_and_text(error: Exception) -> tuple[str, str]:
    """The first word of an error reply, and the rest."""
    text = str(error)
    if isinstance(error, exceptions.AuthenticationError):
        return getattr(error, "status_code", None) or "NOAUTH", text
    for kind, code in CODE_BY_CLASS.items():
        if isinstance(error, kind):
            return code, text
    first, _, rest = text.partition(" ")
    return (first, rest) if re.fullmatch(r"[A-Z][A-Z0-9_]+", first) else ("ERR", text)


def _answer_or_raise(error: Exception, batch: list[object], server: ServerName) -> ReplyError:
    code, text = code_and_text(error)
    if code == "NOSCRIPT" or code.startswith(SCRIPT_CODE_PREFIX):
        return ReplyError(code, server.mask(text))
    raise _reply_trouble(error, server, maybe_executed=any(map(was_executed, batch))) from error


def _answer_or_trouble(error: Exception, server: ServerName) -> ReplyError | MqworkerError:
    try:
        return _answer_or_raise(error, [error], server)
    except MqworkerError as trouble:
        return trouble


def _reply_trouble(error: Exception, server: ServerName, *, maybe_executed: bool) -> MqworkerError:
    code, text = code_and_text(error)
    if code == "OOM":
        return StoreFull(_sentence(server, "reached its memory limit; drain queues or raise maxmemory", text))
    if code in ADVICE_BY_UNAVAILABLE_CODE:
        return StoreUnavailable(
            _sentence(server, ADVICE_BY_UNAVAILABLE_CODE[code], text), maybe_executed=maybe_executed
        )
    advice = ADVICE_BY_REFUSED_CODE.get(code) or _advice_about_scripts(text) or "refused the command"
    return StoreRefused(_sentence(server, advice, f"{code} {text}"), code=code)


def _advice_about_scripts(text: str) -> str | None:
    """What an old server, or one without scripts, says when it is sent one."""
    if "Error compiling script" in text and "near '#'" in text:
        return "is older than Redis 7.0 or Valkey 7.2 and cannot run our scripts; upgrade it"
    if "unknown command" in text.lower() and _SCRIPT_COMMAND.search(text):
        return "runs no scripts (EVAL), like some proxies; use Redis 7.0 or Valkey 7.2 or later itself"
    return None


def _sentence(server: ServerName, what: str, server_text: str) -> str:
    detail = server.mask(server_text)
    return f"Redis at {server.text} {what} ({detail})." if detail else f"Redis at {server.text} {what}."
