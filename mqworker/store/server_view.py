"""What INFO says about a server's memory and persistence, for the status screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mqworker.model.view import ServerView
from mqworker.store.command import Reply
from mqworker.store.server_check import parse_facts, refusal, weakest


def view_of(primaries: Sequence[Sequence[Reply]]) -> ServerView:
    """All primaries as one server, from the replies to INFO_COMMANDS of each."""
    facts = weakest([parse_facts(replies) for replies in primaries])
    fields = [_fields(replies) for replies in primaries]
    unfit = refusal(facts)
    return ServerView(
        product=facts.product,
        version=facts.version_text,
        used_bytes=sum(_whole(each, "used_memory") for each in fields),
        limit_bytes=sum(_whole(each, "maxmemory") for each in fields),
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


def _fields(replies: Sequence[Reply]) -> dict[str, str]:
    text = b"\n".join(reply for reply in replies if isinstance(reply, bytes)).decode(errors="replace")
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}


def _whole(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else 0
