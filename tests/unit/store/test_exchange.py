"""Sending: numbering, scripts that a server does not know, and groups in which each has its own outcome."""

from __future__ import annotations

import pytest

from mqworker.errors import QueueFull, StoreRefused, StoreUnavailable
from mqworker.store.command import ReplyError
from mqworker.store.exchange import Entry, Exchange, GroupCommit, LanePool, Request
from mqworker.store.procedure import Commands
from mqworker.store.script import Call, Script

SCRIPT = Script("claim", "return 1", "sha")
UNKNOWN = ReplyError("NOSCRIPT", "No matching script")


def a_call(key: str = "mq:{q}:meta", *, is_numbered: bool = False) -> Call[int]:
    return Call(SCRIPT, (key,), ("x",), int, is_numbered)


def test_a_script_is_sent_by_its_hash_and_in_full_to_a_server_that_does_not_know_it() -> None:
    request = Request(a_call(), ("lane", 7))

    by_hash = request.commands()
    is_answered = request.take([UNKNOWN])
    in_full = request.commands()

    assert by_hash == (("EVALSHA", "sha", 1, "mq:{q}:meta", "lane", 7, "x"),)
    assert not is_answered
    assert in_full == (("EVAL", "return 1", 1, "mq:{q}:meta", "lane", 7, "x"),)
    assert request.take([1])
    assert request.answer() == 1


def test_a_server_that_does_not_know_a_script_it_was_sent_is_unavailable() -> None:
    request = Request(a_call())
    request.take([UNKNOWN])

    assert request.take([UNKNOWN])
    with pytest.raises(StoreUnavailable, match="forgets scripts"):
        request.answer()


def test_plain_commands_are_answered_as_they_come_also_none_at_all() -> None:
    nothing = Request(Commands((), None))

    assert nothing.take([])
    assert nothing.answer() == []
    assert Request(Commands((("TIME",),), "k")).key == "k"


def test_an_exchange_sends_again_only_what_has_no_answer_with_the_same_number() -> None:
    exchange = Exchange([a_call(is_numbered=True), a_call(is_numbered=True)], LanePool())
    first, second = exchange.commands()

    is_complete = exchange.take_replies([1, UNKNOWN])
    (again,) = exchange.commands()

    assert not is_complete
    assert first[4:6] != second[4:6]
    assert (again[0], again[4:6]) == ("EVAL", second[4:6])
    assert exchange.take_replies([2])
    assert exchange.results() == [1, 2]


def test_the_lane_of_an_answered_call_is_used_again_and_counts_on() -> None:
    lanes = LanePool()
    for _ in range(2):
        exchange = Exchange([a_call(is_numbered=True)], lanes)
        ((_, _, _, _, lane, number, _),) = exchange.commands()
        exchange.take_replies([1])
        exchange.results()

    assert (lane, number) == (lanes.take().name, 2)


def test_in_a_group_the_trouble_of_one_leaves_the_others_alone() -> None:
    answered, refused, unreachable, plain, unknown = entries = [
        Entry(a_call(), "a", 1),
        Entry(a_call(is_numbered=True), "b", 2),
        Entry(a_call("mq:{other}:meta"), "c", 3),
        Entry(Commands((("GET", "k"), ("GET", "l")), "k"), "d", 4),
        Entry(a_call(is_numbered=True), "e", 5),
    ]
    group = GroupCommit(entries)
    commands, keys = group.commands()

    group.take_replies([1, ReplyError("MQW_FULL", "5 of 5"), StoreRefused("no"), b"v", None, UNKNOWN])
    (rest,), _ = group.commands()
    group.take_replies([3])

    assert len(commands) == len(keys) == 6
    assert keys[2:5] == ["mq:{other}:meta", "k", "k"]
    assert rest == ("EVAL", "return 1", 1, "mq:{q}:meta", "e", 5, "x")
    assert group.is_complete
    assert (answered.outcome, plain.outcome, unknown.outcome) == (1, [b"v", None], 3)
    assert isinstance(refused.outcome, QueueFull)
    assert isinstance(unreachable.outcome, StoreRefused)
    assert all(entry.is_answered for entry in entries)
