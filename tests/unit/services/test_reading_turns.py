"""Who looks at much takes turns with the others."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from mqworker.gateway import UNAVAILABLE, NodeClient, OnReply
from mqworker_services.gateways.redismq.reading_turns import MOST_AT_ONCE, ReadingTurns

DONE: list[Any] = [True, []]


class Node:
    """Keeps what it was asked, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], OnReply]] = []

    def submit_call(self, call: list[Any], on_reply: OnReply, size: int = 0) -> None:
        del size
        self.asked.append((call, on_reply))

    def answer(self, reply: list[Any]) -> str:
        """Answer the oldest; what it asked for."""
        call, on_reply = self.asked.pop(0)
        on_reply(reply)
        asked: str = call[1]
        return asked


def made() -> tuple[Node, ReadingTurns, list[tuple[str, list[Any]]]]:
    node = Node()
    return node, ReadingTurns(cast("NodeClient", node)), []


def test_few_are_under_way_and_clients_take_turns() -> None:
    node, turns, heard = made()
    for client in ("a", "a", "a", "a", "b", "c"):
        turns.submit(
            client, ["inspect", client], partial(lambda who, reply: heard.append((who, reply)), client)
        )

    assert len(node.asked) == MOST_AT_ONCE == 2
    assert [node.answer(DONE) for _ in range(6)] == ["a", "a", "a", "b", "c", "a"]
    assert len(heard) == 6
    assert node.asked == []


def test_who_left_is_asked_for_no_more() -> None:
    node, turns, heard = made()
    for number in range(10):
        turns.submit("a", ["inspect", f"{number}"], partial(lambda n, reply: heard.append((n, reply)), "a"))

    turns.leave("a")
    while node.asked:
        node.answer(DONE)

    assert len(heard) == MOST_AT_ONCE


def test_while_nobody_answers_those_in_line_are_told_at_once() -> None:
    node, turns, heard = made()
    for client in "abcdef":
        turns.submit(
            client, ["inspect", client], partial(lambda who, reply: heard.append((who, reply)), client)
        )

    node.answer([False, UNAVAILABLE, "Redis is away"])

    assert [who for who, _ in heard] == ["a", "c", "d", "e", "f"]
    assert heard[1][1] == [False, UNAVAILABLE, "Redis is away; it was not sent"]
    node.answer(DONE)
    turns.submit("a", ["inspect", "a"], lambda _: None)
    assert len(node.asked) == 1
