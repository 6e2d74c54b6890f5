"""Setting rules: what a setting accepts, in words and in code, for text and for typed values alike.

A value comes as text from the environment, typed from TOML, and either way from flags. A rule turns it into
the value of the setting or raises ValueError; the words for the user stand beside it.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mqworker.errors import InvalidArgument
from mqworker.model.gateway_options import ACCEPTED_PLACE, DEFAULT_PORT_BY_GATEWAY, TcpPlace, parse_place
from mqworker.model.names import queue_name
from mqworker.redaction import masked_text, masked_url

REDIS_SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
HIGHEST_PORT = 65_535
SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Rule:
    """What one setting accepts: the words for the user, and the parser that raises ValueError."""

    accepts: str
    parse: Callable[[object], object]
    is_secret: bool = False
    """Whether a value must not be shown, not even a wrong one."""


def shown(raw: object) -> str:
    """The given value as an error may show it: secrets masked, control characters escaped, cut to a line."""
    text = f"a value of type {type(raw).__name__}"
    # Python refuses to print an int of more than 4,300 digits.
    with suppress(ValueError):
        text = repr(masked_url(raw)) if isinstance(raw, str) else masked_text(ascii(raw))
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def whole(lowest: int, highest: int) -> Rule:
    """A whole number within bounds."""

    def parse(raw: object) -> int:
        # Digits alone: int() would also take " 7 ", "1_000" and digits of other scripts.
        if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,18}", raw):
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int) or not lowest <= raw <= highest:
            raise ValueError
        return raw

    return Rule(f"a whole number from {lowest} to {highest}", parse)


def seconds(lowest: float, highest: float) -> Rule:
    """A duration within bounds."""

    def parse(raw: object) -> float:
        if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", raw):
            raw = float(raw)
        # NaN and the infinities fail the comparison.
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not lowest <= raw <= highest:
            raise ValueError
        return float(raw)

    return Rule(f"seconds, a number from {lowest:g} to {highest:g}", parse)


def share() -> Rule:
    """A part of the whole."""
    return Rule("a number from 0 to 1", seconds(0, 1).parse)


def one_of(*words: str) -> Rule:
    """One of a few words, in any case."""

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or raw.lower() not in words:
            raise ValueError
        return raw.lower()

    return Rule(f"one of {', '.join(words)}", parse)


def name(longest: int) -> Rule:
    """A name that is safe inside a Redis key."""
    pattern = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{longest - 1}}}")

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not pattern.fullmatch(raw):
            raise ValueError
        return raw

    return Rule(f"1 to {longest} of A-Z a-z 0-9 _ . - and a letter or digit first", parse)


def key_prefix(longest: int) -> Rule:
    """What the keys of a foreign layout begin with; empty for its own names."""
    pattern = re.compile(rf"[A-Za-z0-9_.:-]{{0,{longest}}}")

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not pattern.fullmatch(raw):
            raise ValueError
        return raw

    return Rule(f"up to {longest} of A-Z a-z 0-9 _ . : -", parse)


def names(longest: int) -> Rule:
    """Several names: comma separated text, or a list; repeated ones count once."""
    each = name(longest)

    def parse(raw: object) -> tuple[object, ...]:
        parts = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
        if not (isinstance(parts, list | tuple) and parts):
            raise ValueError
        return tuple(dict.fromkeys(each.parse(part) for part in parts))

    return Rule(f"names separated by commas, or a list of them; each {each.accepts}", parse)


def queue_names() -> Rule:
    """Queues: comma separated text, or a list; repeated ones count once."""

    def parse(raw: object) -> tuple[object, ...]:
        parts = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
        if not (isinstance(parts, list | tuple) and parts):
            raise ValueError
        try:
            return tuple(dict.fromkeys(queue_name(part) for part in parts))
        except InvalidArgument as error:
            raise ValueError from error

    return Rule("names of queues separated by commas, or a list of them", parse)


def path() -> Rule:
    """A path of a directory, which need not exist yet."""

    def parse(raw: object) -> Path:
        if not isinstance(raw, str | Path) or not str(raw).strip() or "\0" in str(raw):
            raise ValueError
        return Path(raw)

    return Rule("a path of a directory", parse)


def lake_place() -> Rule:
    """Where a lake is; whoever reads it says what is wrong with it."""

    def parse(raw: object) -> str:
        if not isinstance(raw, str | Path) or not str(raw).strip() or not str(raw).isprintable():
            raise ValueError
        return str(raw)

    return Rule("a folder, or an address such as s3://bucket/path", parse)


def file() -> Rule:
    """A path of a file; whoever reads it says what is wrong with it."""
    return Rule("a path of a file", path().parse)


def secret(longest: int) -> Rule:
    """A word that proves who somebody is."""

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not re.fullmatch(rf"[!-~]{{1,{longest}}}", raw):
            raise ValueError
        return raw

    return Rule(f"1 to {longest:,} printable ASCII characters without spaces", parse, is_secret=True)


def database_url() -> Rule:
    """A URL of a SQL database; whether there is a driver for it is seen where it is opened."""

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not re.fullmatch(r"[a-z][a-z0-9+]*://[!-~]*", raw):
            raise ValueError
        return raw

    return Rule(
        "a database URL as SQLAlchemy has them: sqlite:///file, postgresql+psycopg://… or mysql+pymysql://…",
        parse,
        is_secret=True,
    )


def keys() -> Rule:
    """A keyring as text."""

    def parse(raw: object) -> str:
        from mqworker.model.keyring import Keyring  # noqa: PLC0415 - only where there are keys

        Keyring.from_text(raw if isinstance(raw, str) else "")
        return str(raw)

    return Rule(
        "keys separated by commas or lines, each id:sign:SECRET or id:encrypt:SECRET, as `mqworker keys new` "
        "makes them",
        parse,
        is_secret=True,
    )


def names_or_all(longest: int) -> Rule:
    """Several names, or a star for all there are."""
    some = names(longest)

    def parse(raw: object) -> object:
        return ("*",) if raw in ("*", ["*"], ("*",)) else some.parse(raw)

    return Rule(f"* for all, or {some.accepts}", parse)


def offload() -> Rule:
    """Where large payloads go."""
    pattern = re.compile(r"s3://[^/\s]+(/\S*)?|file:///.+|/.+")

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not raw.isprintable() or not pattern.fullmatch(raw):
            raise ValueError
        return raw

    return Rule("an absolute path of a directory, or s3://bucket/prefix", parse)


def gateways() -> Rule:
    """Gateways to start, each with its place if it is not the usual one."""
    known = "|".join(DEFAULT_PORT_BY_GATEWAY)
    pattern = re.compile(rf"({known})(?:=(.+))?")

    def parse(raw: object) -> tuple[str, ...]:
        found = [pattern.fullmatch(part) for part in _texts(raw)]
        for each in found:
            if each is None:
                raise ValueError
            if each[2] is not None:
                parse_place(each[2])
        chosen = [each[1] for each in found if each is not None]
        if len(set(chosen)) != len(chosen):
            raise ValueError
        return tuple(each[0] for each in found if each is not None)

    return Rule(
        f"names separated by commas, or a list of them; each once, and one of "
        f"{', '.join(DEFAULT_PORT_BY_GATEWAY)}, or name=place where place is {ACCEPTED_PLACE}",
        parse,
    )


def place() -> Rule:
    """Where to listen."""

    def parse(raw: object) -> str:
        parse_place(raw if isinstance(raw, str) else "")
        return str(raw)

    return Rule(ACCEPTED_PLACE, parse)


def tcp_place() -> Rule:
    """Where to listen for browsers."""

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not isinstance(parse_place(raw), TcpPlace) or raw.startswith(":"):
            raise ValueError
        return raw

    return Rule("host:port, such as 127.0.0.1:8780", parse)


def gateway_options() -> Rule:
    """Options that only one gateway knows."""
    pattern = re.compile(rf"(?:{'|'.join(DEFAULT_PORT_BY_GATEWAY)})\.[a-z][a-z0-9_-]*=.*")

    def parse(raw: object) -> tuple[str, ...]:
        parts = _texts(raw)
        if not all(pattern.fullmatch(part) for part in parts):
            raise ValueError
        return tuple(parts)

    return Rule("name.key=value, such as skmq.conf=skmq.ini, separated by commas, or a list of them", parse)


def _texts(raw: object) -> list[str]:
    parts = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not (isinstance(parts, list | tuple) and parts and all(isinstance(part, str) for part in parts)):
        raise ValueError
    return list(parts)


def redis_url() -> Rule:
    """A URL of a Redis or Valkey server, in one of the forms the store can connect to."""

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not raw.isprintable() or " " in raw:
            raise ValueError
        parts = urlsplit(raw)
        if parts.scheme not in REDIS_SCHEMES or not _has_place(parts.scheme, parts.netloc, parts.path):
            raise ValueError
        return raw

    schemes = ", ".join(f"{scheme}://" for scheme in REDIS_SCHEMES)
    return Rule(
        f"a URL that starts with one of {schemes}, then host and port (unix: a path), "
        "with special characters in user and password percent-encoded",
        parse,
    )


def _has_place(scheme: str, netloc: str, socket_path: str) -> bool:
    if scheme == "unix":
        return len(socket_path) > 1
    hosts = netloc.rpartition("@")[2].split(",")
    return all(_is_host(host) for host in hosts)


def _is_host(host: str) -> bool:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:/@\s]+)(?::([0-9]{1,5}))?", host)
    return found is not None and (found[2] is None or 1 <= int(found[2]) <= HIGHEST_PORT)
