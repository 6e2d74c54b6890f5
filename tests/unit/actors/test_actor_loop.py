"""The loop of an actor: what it waits for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from mqworker.actors.actor import ActorLoop, Post, Watched
from mqworker.actors.mail import ConsumerGone, Mail, Ping, Pong
from mqworker.actors.mailbox import Mailbox, open_pipe
from mqworker.log import get_logger
from mqworker.model.clock import ManualClock, SystemClock


class Ear:
    """The reading end of a pipe, under a given number."""

    def __init__(self, descriptor: int) -> None:
        reading, self.writing = os.pipe()
        if reading != descriptor:
            os.dup2(reading, descriptor)
            os.close(reading)
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)
        os.close(self.writing)


class Listener:
    """An actor that does nothing but wait."""

    name = "listener"
    is_done = False

    def __init__(self, ear: Ear) -> None:
        self.ear = ear

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002
        return ()

    def turn(self, now_ms: int) -> Iterable[Post]:  # noqa: ARG002
        return ()

    def next_turn_in_ms(self, now_ms: int) -> int:  # noqa: ARG002
        return 0

    def watched(self) -> Iterable[Watched]:
        return (self.ear,)

    def facts(self) -> dict[str, Any]:
        return {}


def test_a_watched_thing_that_takes_over_the_number_of_another_is_heard() -> None:
    ours, theirs = open_pipe()
    number = os.dup(ours)
    os.close(number)  # free again: both ears get this number, one after the other
    first = Ear(number)
    actor = Listener(first)
    control = Mailbox(ours)
    loop = ActorLoop(actor, control, SystemClock(), get_logger())
    loop._wait_for_mail(0)
    first.close()

    actor.ear = Ear(number)
    loop._wait_for_mail(0)
    os.write(actor.ear.writing, b"!")

    assert [key.fd for key, _ in loop._selector.select(10)] == [number]
    actor.ear.close()
    loop._selector.close()
    control.close()
    os.close(theirs)


class Waiting(Listener):
    """Waits for a slow server in its turn; the test says what happens between two round trips."""

    name = "waiting"
    is_done = False

    def __init__(self, ear: Ear) -> None:
        super().__init__(ear)
        self.handled: list[Mail] = []

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        self.handled.append(mail)
        return super().handle(mail, sender, now_ms)


@pytest.mark.parametrize(("trips", "answered"), [(20, 20), (100, 30)], ids=["slow", "endless"])
def test_pings_are_answered_between_two_round_trips_of_a_turn_unless_it_never_ends(
    trips: int, answered: int
) -> None:
    ours, theirs = open_pipe()
    clock, supervisor = ManualClock(), Mailbox(theirs)
    actor = Waiting(Ear(os.dup(ours)))
    control = Mailbox(ours)
    loop = ActorLoop(actor, control, clock, get_logger())
    loop._turned_at_ms = clock.monotonic_ms()
    supervisor.send(ConsumerGone("north"))
    pongs = 0

    for number in range(trips):
        supervisor.send(Ping(number))
        clock.advance(ms=2_000)
        loop.answer_pings()
        with suppress(BlockingIOError):
            pongs += sum(isinstance(mail, Pong) for mail in supervisor.receive())
    told_within = list(actor.handled)
    loop._take_what_was_put_off()

    actor.ear.close()
    loop._selector.close()
    control.close()
    supervisor.close()
    assert pongs == answered
    assert told_within == []
    assert actor.handled == [ConsumerGone("north")]
