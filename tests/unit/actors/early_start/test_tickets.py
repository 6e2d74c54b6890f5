"""Tickets: of the worker and the dispatcher exactly one has its way, however they meet."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from mqworker.actors.early_start.tickets import (
    CANCELLED,
    UNDECIDED,
    HandedOver,
    Places,
    Redeemed,
    Tickets,
    new_number,
    read_handed_over,
)
from mqworker.actors.run_slot import RunSlots, mark_of

ROUNDS = 3_000


def test_a_ticket_is_redeemed_once(tmp_path: Path) -> None:
    tickets = Tickets(str(tmp_path / "slots"))
    tickets.issue(3, 17)

    assert tickets.redeem(3, 17, "default", 900)
    assert not tickets.redeem(3, 17, "default", 901)
    assert tickets.cancel(3, 17) == Redeemed(900, mark_of("default"))


def test_what_was_cancelled_is_worth_nothing(tmp_path: Path) -> None:
    tickets = Tickets(str(tmp_path / "slots"))
    tickets.issue(3, 17)

    assert tickets.cancel(3, 17) == CANCELLED
    assert not tickets.redeem(3, 17, "default", 900)


def test_only_the_ticket_that_is_out_counts(tmp_path: Path) -> None:
    tickets = Tickets(str(tmp_path / "slots"))
    tickets.issue(3, 18)

    assert not tickets.redeem(3, 17, "default", 900)
    assert not tickets.redeem(2, 18, "default", 900)
    assert tickets.redeem(3, 18, "default", 900)


def test_what_was_refused_is_worth_nothing(tmp_path: Path) -> None:
    tickets = Tickets(str(tmp_path / "slots"))
    tickets.issue(3, 17)

    tickets.refuse(3, 18)
    tickets.refuse(3, 17)

    assert not tickets.redeem(3, 17, "default", 900)
    assert tickets.cancel(3, 17) == CANCELLED


def test_a_ticket_has_64_bits_that_nobody_can_guess(tmp_path: Path) -> None:
    tickets = Tickets(str(tmp_path / "slots"))
    numbers = {new_number() for _ in range(1_000)}
    steps = {second - first for first, second in itertools.pairwise(sorted(numbers))}
    largest = 2**64 - 1
    tickets.issue(3, largest)

    assert len(numbers) == 1_000
    assert max(numbers).bit_length() >= 63
    assert min(steps) > 1_000, "the next one does not follow from one that was seen"
    assert tickets.redeem(3, largest, "default", 900)
    assert tickets.cancel(3, largest) == Redeemed(900, mark_of("default"))


def test_a_place_is_taken_once_and_only_if_it_was_offered() -> None:
    places = Places()
    offered = [text.rpartition(":")[2] for text in places.offer(["0:17", "-"])]

    assert [places.take(place) for place in offered] == [True, True]
    assert [places.take(place) for place in [*offered, "0" * 16, ""]] == [False] * 4


def test_a_place_of_one_of_the_last_offers_is_still_good() -> None:
    places = Places()
    ((_, _, early),) = [text.partition(":") for text in places.offer(["-"])]
    for _ in range(63):
        places.offer(["-"])

    assert places.take(early)


def test_it_leaves_alone_what_the_worker_runs(tmp_path: Path) -> None:
    tickets, slots = Tickets(str(tmp_path / "slots")), RunSlots(str(tmp_path / "slots"))
    for worker in range(3):
        slots.begin(worker, "default", 100 + worker, 0)

    tickets.issue(1, 17)
    tickets.redeem(1, 17, "default", 900)

    fences = [running.fence for worker in range(3) if (running := slots.running(worker)) is not None]
    assert fences == [100, 101, 102]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"900 1:17:00112233445566ff a record", HandedOver(900, 1, 17, "00112233445566ff", b"a record")),
        (b"900 -:00112233445566ff a record", HandedOver(900, None, 0, "00112233445566ff", b"a record")),
        (b"900 1:17 a record", None),
        (b"900 - a record", None),
        (b"900 -:0011 a record", None),
        (b"", None),
        (b"ready", None),
        (b"900 1:17", None),
        (b"x 1:17 record", None),
        (b"900 17 record", None),
        (b"900 1:2:3 record", None),
        (b"900 \xff:17 record", None),
    ],
)
def test_what_a_foreign_hand_publishes_is_passed_over(text: bytes, read: HandedOver | None) -> None:
    assert read_handed_over(text) == read


def test_of_two_processes_exactly_one_gets_it(tmp_path: Path) -> None:
    path = str(tmp_path / "slots")
    tickets = Tickets(path)
    ours, theirs = multiprocessing.Pipe()
    redeeming = multiprocessing.get_context("fork").Process(target=_redeem_all, args=(path, theirs))
    redeeming.start()
    redeemed = cancelled = 0
    for number in range(1, ROUNDS + 1):
        tickets.issue(0, number)
        ours.send(number)
        outcome = _until_decided(lambda number=number: tickets.cancel(0, number))
        was_redeemed = ours.recv()
        assert was_redeemed == (outcome == Redeemed(900 + number, mark_of("default")))
        redeemed += was_redeemed
        cancelled += not was_redeemed
    ours.send(0)
    redeeming.join(10)

    assert redeeming.exitcode == 0
    assert redeemed + cancelled == ROUNDS


def _redeem_all(path: str, pipe: Connection) -> None:
    tickets = Tickets(path)
    while number := pipe.recv():
        pipe.send(tickets.redeem(0, number, "default", 900 + number))


def _until_decided(cancel: Callable[[], Redeemed | str]) -> Redeemed | str:
    while (outcome := cancel()) == UNDECIDED:
        pass
    return outcome
