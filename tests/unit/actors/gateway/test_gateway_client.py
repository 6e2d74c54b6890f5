"""A gateway's batches: calls become turns, turns are repeated, and everybody gets one answer."""

from __future__ import annotations

from functools import partial
from typing import Any

from mqworker.actors.gateway.client import PATIENCE_MS, CallBatches
from mqworker.actors.mail import GatewayCalls, GatewayReplies


class Callers:
    """Makes calls and keeps the answers."""

    def __init__(self) -> None:
        self.batches = CallBatches()
        self.answers: list[tuple[int, list[Any]]] = []

    def make(self, *calls: int, now_ms: int = 0) -> None:
        for call in calls:
            self.batches.submit(["echo", call], partial(self._keep, call), 8, now_ms)

    def _keep(self, call: int, reply: list[Any]) -> None:
        self.answers.append((call, reply))


def answer(mail: GatewayCalls) -> GatewayReplies:
    """What a node that echoes says."""
    return GatewayReplies(mail.numbers, [[True, call[1]] for call in mail.calls])


def test_calls_made_in_one_turn_of_the_loop_are_one_mail() -> None:
    callers = Callers()
    callers.make(1, 2, 3)

    (mail,) = callers.batches.mails()
    callers.batches.take(answer(mail))

    assert [call[1] for call in mail.calls] == [1, 2, 3]
    assert callers.answers == [(1, [True, 1]), (2, [True, 2]), (3, [True, 3])]
    assert len(callers.batches) == 0


def test_two_turns_may_be_under_way_each_in_its_own_lane() -> None:
    callers = Callers()
    callers.make(1)
    (first,) = callers.batches.mails()
    callers.make(2)
    (second,) = callers.batches.mails()
    callers.make(3)

    assert callers.batches.mails() == []
    callers.batches.take(answer(first))
    (third,) = callers.batches.mails()

    assert first.lane != second.lane
    assert third.lane == first.lane
    assert third.turn > second.turn > first.turn


def test_what_was_not_answered_is_repeated_as_it_was() -> None:
    callers = Callers()
    callers.make(1)
    (first,) = callers.batches.mails()
    callers.make(2, 3)
    (second,) = callers.batches.mails()
    callers.batches.take(GatewayReplies(second.numbers[:1], [[True, 2]]))

    assert callers.batches.unanswered() == [first, second]
    for mail in callers.batches.unanswered():
        callers.batches.take(answer(mail))

    assert sorted(callers.answers) == [(1, [True, 1]), (2, [True, 2]), (3, [True, 3])]


def test_what_was_refused_together_is_sent_again_apart() -> None:
    callers = Callers()
    callers.make(1, 2)
    (mail,) = callers.batches.mails()
    callers.batches.take(GatewayReplies(mail.numbers, [[False, "apart", ""], [False, "apart", ""]]))

    (again,) = callers.batches.mails()

    assert callers.answers == []
    assert again.is_apart
    assert again.calls == mail.calls
    assert not mail.is_apart


def test_who_waits_too_long_is_told_whether_it_may_have_happened() -> None:
    callers = Callers()
    callers.make(1)
    callers.batches.mails()
    callers.make(2)
    callers.batches.mails()
    callers.make(3)

    callers.batches.give_up(PATIENCE_MS - 1)
    assert callers.answers == []
    callers.batches.give_up(PATIENCE_MS)

    assert sorted((call, reply[1]) for call, reply in callers.answers) == [
        (1, "unknown"),
        (2, "unknown"),
        (3, "unavailable"),
    ]
    assert callers.batches.unanswered() == []


def test_a_lane_with_an_unknown_outcome_is_not_used_again() -> None:
    callers = Callers()
    callers.make(1)
    (mail,) = callers.batches.mails()
    callers.batches.take(GatewayReplies(mail.numbers, [[False, "unknown", "no answer"]]))
    callers.make(2)

    (following,) = callers.batches.mails()

    assert following.lane != mail.lane
