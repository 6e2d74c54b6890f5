"""Whether a server can be trusted with a queue: asked once, at start, and refused with one clear sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mqworker.errors import ConfigurationError, StoreRefused
from mqworker.model.view import ServerView
from mqworker.store.command import Command, Reply

INFO_COMMANDS: Sequence[Command] = tuple(
    ("INFO", section) for section in ("server", "memory", "persistence", "cluster")
)
# Sharded pub/sub, script flags and multi-part AOF came with Redis 7.0; Valkey began as 7.2.
OLDEST_BY_PRODUCT: Mapping[str, tuple[int, int]] = {"Redis": (7, 0), "Valkey": (7, 2)}
SAFE_POLICY = "noeviction"
UNKNOWN_POLICY = (
    "the user may not ask INFO, so version and eviction policy of the server cannot be checked; accepted is "
    "a user with +info, as `mqworker acl` prints it"
)
UNSEEN = ServerView("Redis", "unknown", 0, 0, is_append_only=False, primaries=1, troubles=(UNKNOWN_POLICY,))
"""A server that does not say what it is."""


class AsksPrimaries(Protocol):
    """The part of a Connection that the check needs."""

    def each_primary(self, commands: Sequence[Command]) -> Mapping[str, list[Reply]]:
        """Send the commands to every primary; the replies by the name of the server."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself. With several primaries: the oldest version, the weakest persistence."""

    product: str
    version: tuple[int, ...]
    maxmemory_policy: str
    is_append_only: bool
    is_cluster: bool

    @property
    def version_text(self) -> str:
        """For people: 7.2.4."""
        return ".".join(map(str, self.version))


def check_server(connection: AsksPrimaries) -> ServerFacts:
    """Ask every primary; ConfigurationError when one of them is too old or may evict keys."""
    try:
        replies_by_server = connection.each_primary(INFO_COMMANDS)
    except StoreRefused as error:
        if error.code != "NOPERM":
            raise
        # Nobody could tell whether it drops messages when its memory is short.
        raise ConfigurationError(f"redis_url: {UNKNOWN_POLICY} ({error})") from error
    facts_by_server = {server: parse_facts(replies) for server, replies in replies_by_server.items()}
    for server, facts in facts_by_server.items():
        reason = refusal(facts)
        if reason is not None:
            raise ConfigurationError(f"redis_url: the server at {server} cannot be used: {reason}.")
    return weakest(list(facts_by_server.values()))


def refusal(facts: ServerFacts) -> str | None:
    """Why this server must not hold queues; None when it may."""
    oldest = OLDEST_BY_PRODUCT[facts.product]
    if facts.version < oldest:
        needed = " or ".join(f"{name} {major}.{minor}" for name, (major, minor) in OLDEST_BY_PRODUCT.items())
        return f"it runs {facts.product} {facts.version_text}, and at least {needed} is needed"
    if facts.maxmemory_policy != SAFE_POLICY:
        return (
            f"its maxmemory-policy is {facts.maxmemory_policy}, which drops messages when memory is short;"
            f" set it to {SAFE_POLICY}"
        )
    return None


def weakest(all_facts: Sequence[ServerFacts]) -> ServerFacts:
    """What can be relied on at every primary."""
    oldest = min(all_facts, key=lambda facts: facts.version)
    return ServerFacts(
        product=oldest.product,
        version=oldest.version,
        maxmemory_policy=oldest.maxmemory_policy,
        is_append_only=all(facts.is_append_only for facts in all_facts),
        is_cluster=any(facts.is_cluster for facts in all_facts),
    )


def parse_facts(replies: Sequence[Reply]) -> ServerFacts:
    """The facts out of INFO; it needs no CONFIG, which an ACL often forbids."""
    value_by_name = fields_of(replies)
    is_valkey = "valkey_version" in value_by_name
    return ServerFacts(
        product="Valkey" if is_valkey else "Redis",
        version=_parse_version(value_by_name.get("valkey_version" if is_valkey else "redis_version", "")),
        # Servers that hide it (some hosted ones) do not let it be changed either.
        maxmemory_policy=value_by_name.get("maxmemory_policy", SAFE_POLICY),
        is_append_only=value_by_name.get("aof_enabled") == "1",
        is_cluster=value_by_name.get("cluster_enabled") == "1",
    )


def _parse_version(text: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(\.\d+)*", text, re.ASCII)  # what follows them marks a preview: 8.0-rc1
    return tuple(map(int, numbers[0].split("."))) if numbers else (0,)


def view_of(primaries: Sequence[Sequence[Reply]]) -> ServerView:
    """All primaries as one server, from the replies to INFO_COMMANDS of each."""
    facts = weakest([parse_facts(replies) for replies in primaries])
    fields = [fields_of(replies) for replies in primaries]
    unfit = refusal(facts)
    return ServerView(
        product=facts.product,
        version=facts.version_text,
        used_bytes=sum(whole_number(each, "used_memory") for each in fields),
        limit_bytes=sum(whole_number(each, "maxmemory") for each in fields),
        is_append_only=facts.is_append_only,
        primaries=len(primaries),
        troubles=tuple(
            dict.fromkeys(
                [
                    *(trouble for each in fields for trouble in _troubles(each)),
                    *([f"the server should not be used: {unfit}"] if unfit else []),
                ]
            )
        ),
    )


def _troubles(fields: dict[str, str]) -> Iterator[str]:
    if fields.get("aof_enabled") == "1" and fields.get("aof_last_write_status", "ok") != "ok":
        yield "the server cannot write its append-only file"
    if fields.get("rdb_last_bgsave_status", "ok") != "ok":
        yield "the server's last save to disk failed"


def fields_of(replies: Sequence[Reply]) -> dict[str, str]:
    """The replies to INFO as one: its fields by name."""
    text = b"\n".join(reply for reply in replies if isinstance(reply, bytes)).decode(errors="replace")
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}


def whole_number(fields: Mapping[str, str], name: str) -> int:
    """A field of INFO as a number; 0 where it is missing or something else."""
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else 0
