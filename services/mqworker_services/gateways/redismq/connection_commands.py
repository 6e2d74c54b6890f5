"""Commands about the connection itself (HELLO, AUTH, PING, CLIENT, ...). Pure; the broker is not asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mqworker.gateway import GatewayOptions, GatewayUser
from mqworker_services.gateways.redismq.commands import Refused
from mqworker_services.gateways.redismq.replies import OK, RESP2, RESP3, Refusal, Simple, Table, Value

MOST_WRONG_TOKENS = 3
_NO_AUTH = Refusal("NOAUTH Authentication required.")
_WRONG_PASS = Refusal("WRONGPASS invalid username-password pair or user is disabled.")
_DEFAULT = b"default"
_WORDS_WITH_NAME = 3
_FREE = {b"AUTH", b"HELLO", b"QUIT", b"RESET"}
"""What may be said before the token."""

# name, arity, flags, first key, last key, step: what clients ask for to know where the keys stand.
_COMMANDS: tuple[tuple[str, int, tuple[str, ...], int, int, int], ...] = (
    ("mq.push", -3, ("write", "denyoom"), 1, 1, 1),
    ("mq.pop", -3, ("write", "blocking", "movablekeys"), 0, 0, 0),
    ("mq.ack", -3, ("write",), 1, 1, 1),
    ("mq.recover", 4, ("write",), 1, 1, 1),
    ("mq.inspect", -4, ("readonly",), 1, 1, 1),
    ("ping", -1, ("fast",), 0, 0, 0),
    ("echo", 2, ("fast",), 0, 0, 0),
    ("hello", -1, ("fast", "no_auth"), 0, 0, 0),
    ("auth", -2, ("fast", "no_auth"), 0, 0, 0),
    ("quit", -1, ("fast", "no_auth"), 0, 0, 0),
    ("reset", 1, ("fast", "no_auth"), 0, 0, 0),
    ("select", 2, ("fast",), 0, 0, 0),
    ("client", -2, (), 0, 0, 0),
    ("command", -1, (), 0, 0, 0),
)


@dataclass(slots=True)
class ConnectionState:
    """What the gateway knows about one connection."""

    options: GatewayOptions
    number: int
    version: int = RESP2
    name: str = ""
    user: GatewayUser | None = None
    """Who it is; None until it has shown that."""
    newcomer: GatewayUser | None = None
    """Who it was when it connected, and is again after RESET."""
    wrong_tokens: int = 0
    is_leaving: bool = False
    """Whether it said QUIT, or guessed too often: closed once the reply is out."""

    def meet(self, common_names: Sequence[str]) -> None:
        """It connected, with a certificate of these names if any."""
        self.user = self.newcomer = self.options.newcomer(common_names)

    def refusal(self, word: bytes) -> Refusal | None:
        """Why this command may not be carried out, None when it may."""
        return None if self.user is not None or word in _FREE else _NO_AUTH


def answer(words: Sequence[bytes], known: ConnectionState) -> Value:
    """Answer such a command; raises `Refused` for others. The first word is in capitals."""
    speak = _SPEAKERS.get(words[0])
    if speak is None:
        shown = words[0][:64].decode("utf-8", "replace").lower()
        raise Refused(f"ERR unknown command '{shown}'; known are {', '.join(row[0] for row in _COMMANDS)}")
    return speak(words, known)


def is_known(word: bytes) -> bool:
    """Whether there is such a command; in capitals."""
    return any(row[0] == word.lower().decode("latin-1") for row in _COMMANDS)


def _ping(words: Sequence[bytes], _known: ConnectionState) -> Value:
    _want(words, 1, 2)
    return words[1] if len(words) > 1 else Simple("PONG")


def _echo(words: Sequence[bytes], _known: ConnectionState) -> Value:
    _want(words, 2, 2)
    return words[1]


def _auth(words: Sequence[bytes], known: ConnectionState) -> Value:
    _want(words, 2, 3)
    return _try_token(words[-1], words[1] if len(words) == _WORDS_WITH_NAME else None, known) or OK


def _try_token(token: bytes, name: bytes | None, known: ConnectionState) -> Refusal | None:
    users = known.options.users
    if not users.users:
        return Refusal("ERR AUTH <password> called without any password configured for the default user.")
    # Clients that were given a password alone say `default`.
    is_named = name is not None and name != _DEFAULT
    user = users.by_token(token, name.decode("utf-8", "replace") if name is not None and is_named else None)
    if user is not None:
        known.user, known.wrong_tokens = user, 0
        return None
    known.wrong_tokens += 1
    known.is_leaving = known.wrong_tokens >= MOST_WRONG_TOKENS
    return _WRONG_PASS


def _hello(words: Sequence[bytes], known: ConnectionState) -> Value:
    version = known.version
    if len(words) > 1:
        if words[1] not in {b"2", b"3"}:
            raise Refused("NOPROTO unsupported protocol version")
        version = int(words[1])
    name, place = known.name, 2
    while place < len(words):
        match words[place].upper(), words[place + 1 :]:
            case b"AUTH", [user, token, *_]:
                refusal = _try_token(token, user, known)
                if refusal is not None:
                    return refusal
                place += 3
            case b"SETNAME", [given, *_]:
                name = _name(given)
                place += 2
            case _:
                raise Refused(
                    f"ERR Syntax error in HELLO option '{words[place][:32].decode('utf-8', 'replace')}'"
                )
    if known.user is None:
        return Refusal("NOAUTH HELLO must be called with the client already authenticated, or with AUTH")
    known.version, known.name = version, name
    return Table(
        {
            "server": "redis",
            "version": "7.2.0",
            "proto": version,
            "id": known.number,
            "mode": "standalone",
            "role": "master",
            "modules": [],
        }
    )


def _quit(_words: Sequence[bytes], known: ConnectionState) -> Value:
    known.is_leaving = True
    return OK


def _reset(_words: Sequence[bytes], known: ConnectionState) -> Value:
    known.version, known.name, known.user = RESP2, "", known.newcomer
    return Simple("RESET")


def _select(words: Sequence[bytes], _known: ConnectionState) -> Value:
    _want(words, 2, 2)
    if words[1] != b"0":
        raise Refused("ERR DB index is out of range; accepted is 0")
    return OK


def _client(words: Sequence[bytes], known: ConnectionState) -> Value:
    _want(words, 2, None)
    match words[1].upper(), words[2:]:
        case b"ID", []:
            return known.number
        case b"SETNAME", [given]:
            known.name = _name(given)
            return OK
        case b"GETNAME", []:
            return known.name or None
        case b"SETINFO", [_, _]:
            return OK
        case _:
            raise Refused("ERR unknown subcommand or wrong number of arguments for 'client'")


def _command(words: Sequence[bytes], known: ConnectionState) -> Value:
    rows: list[Value] = [[name, arity, list(flags), *keys] for name, arity, flags, *keys in _COMMANDS]
    match [word.upper() for word in words[1:]]:
        case []:
            return rows
        case [b"COUNT"]:
            return len(rows)
        case [b"DOCS", *_]:
            return Table({}) if known.version == RESP3 else []
        case [b"INFO", *names]:
            by_name = {row[0].upper().encode(): rows[place] for place, row in enumerate(_COMMANDS)}
            return [by_name.get(name) for name in names] if names else rows
        case _:
            raise Refused("ERR unknown subcommand or wrong number of arguments for 'command'")


_SPEAKERS: Mapping[bytes, Callable[[Sequence[bytes], ConnectionState], Value]] = {
    b"PING": _ping,
    b"ECHO": _echo,
    b"AUTH": _auth,
    b"HELLO": _hello,
    b"QUIT": _quit,
    b"RESET": _reset,
    b"SELECT": _select,
    b"CLIENT": _client,
    b"COMMAND": _command,
}


def _want(words: Sequence[bytes], least: int, most: int | None) -> None:
    if len(words) < least or (most is not None and len(words) > most):
        raise Refused(f"ERR wrong number of arguments for '{words[0].decode().lower()}' command")


def _name(given: bytes) -> str:
    if len(given) > 128 or not given.isascii() or b" " in given or not given.decode().isprintable():  # noqa: PLR2004 - bounded
        raise Refused("ERR Client names cannot contain spaces, newlines or special characters.")
    return given.decode()
