"""Group commit: one round trip for many callers, and the trouble of one is nothing to the others."""

from __future__ import annotations

from typing import Any

from mqworker.errors import InvalidMessage, StoreUnavailable
from mqworker.store.command import NO_SCRIPT, ReplyError
from mqworker.store.exchange import Entry, GroupCommit
from mqworker.store.procedure import Commands
from mqworker.store.script import Call, Script

SCRIPT = Script("settle", "return 1", "sha-of-it")
FORGOTTEN = ReplyError(NO_SCRIPT, "No matching script")


def a_call(key: str = "k", *, is_numbered: bool = False) -> Call[Any]:
    return Call(SCRIPT, (key,), ("argument",), lambda reply: ["decoded", reply], is_numbered)


def an_entry(step: Call[Any] | Commands | None = None, number: int = 1) -> Entry:
    return Entry(step or a_call(), "lane", number)


def test_the_steps_of_all_callers_are_sent_together_each_with_its_key() -> None:
    read = Commands((("GET", "a"), ("GET", "b")), "a")
    group = GroupCommit([an_entry(a_call("k")), an_entry(read)])

    commands, keys = group.commands()

    assert commands == [("EVALSHA", "sha-of-it", 1, "k", "argument"), ("GET", "a"), ("GET", "b")]
    assert keys == ["k", "a", "a"]


def test_each_caller_gets_its_own_answer() -> None:
    read, call = an_entry(Commands((("GET", "a"), ("GET", "b")), "a")), an_entry()
    group = GroupCommit([read, call])

    group.take_replies([b"1", b"2", 3])

    assert (read.outcome, call.outcome) == ([b"1", b"2"], ["decoded", 3])
    assert read.is_answered
    assert call.is_answered
    assert group.is_complete


def test_a_numbered_step_carries_the_number_of_its_caller() -> None:
    group = GroupCommit([an_entry(a_call(is_numbered=True), number=7)])

    assert group.commands()[0] == [("EVALSHA", "sha-of-it", 1, "k", "lane", 7, "argument")]


def test_the_trouble_of_one_is_its_own() -> None:
    trouble = StoreUnavailable("away", maybe_executed=True)
    lost, fine = an_entry(), an_entry()
    group = GroupCommit([lost, fine])

    group.take_replies([trouble, 1])

    assert (lost.outcome, fine.outcome) == (trouble, ["decoded", 1])
    assert group.is_complete


def test_an_answer_that_cannot_be_read_is_the_trouble_of_its_caller() -> None:
    def refuse(_reply: object) -> None:
        raise InvalidMessage("not a reply of ours")

    broken, fine = an_entry(Call(SCRIPT, ("k",), (), refuse)), an_entry()
    GroupCommit([broken, fine]).take_replies([1, 1])

    assert isinstance(broken.outcome, InvalidMessage)
    assert fine.outcome == ["decoded", 1]


def test_a_forgotten_script_is_sent_in_full_once_and_only_that() -> None:
    forgotten, fine = an_entry(a_call("f")), an_entry()
    group = GroupCommit([forgotten, fine])

    group.take_replies([FORGOTTEN, 1])
    again = group.commands()[0]
    group.take_replies([2])

    assert again == [("EVAL", "return 1", 1, "f", "argument")]
    assert (forgotten.outcome, group.is_complete) == (["decoded", 2], True)


def test_a_server_that_forgets_what_it_was_just_sent_is_not_asked_for_ever() -> None:
    entry = an_entry()
    group = GroupCommit([entry])

    group.take_replies([FORGOTTEN])
    group.take_replies([FORGOTTEN])

    assert group.is_complete
    assert isinstance(entry.outcome, StoreUnavailable)
