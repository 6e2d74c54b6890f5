"""Every trouble of a server becomes one of our errors, with advice and without secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from redis import exceptions
from redis._parsers.base import BaseParser

from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.store.command import ReplyError
from mqworker.store.link.server_errors import (
    ServerName,
    connect_trouble,
    has_lost_primary,
    link_trouble,
    settled,
)

SERVER = ServerName("redis://:***@h:6379/0", ("s3cret",))


def reply(text: str) -> Exception:
    """The error that redis-py makes of an error reply."""
    parse = cast("Callable[[str], Exception]", BaseParser.parse_error)
    return parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "NOREPLICAS Not enough good replicas to write.",
        "BUSY Redis is busy running a script.",
        "MISCONF Redis is configured to save RDB snapshots",
    ],
)
def test_passing_trouble_is_unavailable_and_was_not_executed(text: str) -> None:
    with pytest.raises(StoreUnavailable, match="Redis at redis://") as raised:
        settled([reply(text)], SERVER)

    assert not raised.value.maybe_executed


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        ("NOAUTH Authentication required.", StoreRefused),
        ("WRONGPASS invalid username-password pair or user is disabled.", StoreRefused),
        ("NOPERM User worker has no permissions to run the 'get' command", StoreRefused),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", StoreRefused),
        ("ERR unknown command 'NOSUCH', with args beginning with: 'a' ", StoreRefused),
        ("MOVED 1 h:1", StoreRefused),
        ("CROSSSLOT Keys in request don't hash to the same slot", StoreRefused),
        ("SOMETHING new", StoreRefused),
        ("", StoreRefused),
    ],
)
def test_lasting_trouble_has_its_own_error(text: str, kind: type[MqworkerError]) -> None:
    with pytest.raises(kind):
        settled([reply(text)], SERVER)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("NOSCRIPT No matching script.", ReplyError("NOSCRIPT", "No matching script.")),
        ("MQW_FULL 7 of 7", ReplyError("MQW_FULL", "7 of 7")),
        ("MQW_GONE", ReplyError("MQW_GONE", "")),
    ],
)
def test_answers_stay_in_the_list(text: str, answer: ReplyError) -> None:
    assert settled([b"OK", reply(text), None], SERVER) == [b"OK", answer, None]


@pytest.mark.parametrize(
    ("others", "is_maybe_executed"),
    [
        ([b"OK"], True),
        ([None], True),
        (["MQW_FULL"], True),
        (["ERR in the middle of a script"], True),
        (["NOSCRIPT No matching script."], False),
        (["LOADING"], False),
    ],
)
def test_batch_was_executed_in_part_when_one_of_its_commands_was(
    others: list[object], *, is_maybe_executed: bool
) -> None:
    rest = [reply(other) if isinstance(other, str) else other for other in others]

    with pytest.raises(StoreUnavailable) as raised:
        settled([reply("READONLY You can't write"), *rest], SERVER)

    assert raised.value.maybe_executed is is_maybe_executed


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ConnectionError("Error 111 connecting to h:6379. Connection refused."), StoreUnavailable),
        (exceptions.TimeoutError("Timeout connecting to server"), StoreUnavailable),
        (exceptions.ConnectionError("max number of clients reached"), StoreUnavailable),
        (reply("LOADING"), StoreUnavailable),
        (reply("WRONGPASS invalid"), StoreRefused),
        (exceptions.ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] no"), StoreRefused),
        (exceptions.InvalidResponse("Protocol error"), StoreRefused),
    ],
)
def test_trouble_while_connecting_executed_nothing(error: Exception, kind: type[MqworkerError]) -> None:
    trouble = connect_trouble(error, SERVER)

    assert type(trouble) is kind
    assert not getattr(trouble, "maybe_executed", False)


@pytest.mark.parametrize(
    ("error", "is_maybe_executed"),
    [
        (exceptions.ConnectionError("Connection closed by server."), True),
        (exceptions.TimeoutError("Timeout reading from h:6379"), True),
        (TimeoutError(), True),
        (exceptions.ConnectionError("max number of clients reached"), False),
    ],
)
def test_broken_link_may_have_executed_the_call(error: Exception, *, is_maybe_executed: bool) -> None:
    trouble = link_trouble(error, SERVER)

    assert isinstance(trouble, StoreUnavailable)
    assert trouble.maybe_executed is is_maybe_executed


def test_texts_are_short_and_hold_neither_secrets_nor_arguments() -> None:
    long = "ERR unknown command 's3cret', with args beginning with: 'body'\r\n" + "x" * 5000

    with pytest.raises(StoreRefused) as raised:
        settled([reply(long)], SERVER)

    text = str(raised.value)
    assert "s3cret" not in text
    assert "body" not in text
    assert len(text) < 500
    assert "s3cret" not in repr(SERVER)


def test_demoted_primary_is_recognised() -> None:
    assert has_lost_primary([b"OK", reply("READONLY You can't write")])
    assert not has_lost_primary([b"OK", reply("LOADING")])
