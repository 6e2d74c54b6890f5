"""Message ids: unique, short, and sorted by the millisecond in which they were made."""

from __future__ import annotations

import os
import re

from mqworker.model.clock import ManualClock, SystemClock
from mqworker.model.message_id import MessageIdSource
from mqworker.model.names import message_id


def test_ids_are_seventeen_letters_and_digits_that_a_queue_accepts() -> None:
    made = MessageIdSource(SystemClock().now_ms).next()

    assert re.fullmatch(r"[0-9A-Za-z]{17}", made)
    assert message_id(made) == made


def test_a_hundred_thousand_ids_of_one_millisecond_differ() -> None:
    source = MessageIdSource(ManualClock().now_ms)

    made = {source.next() for _ in range(100_000)}

    assert len(made) == 100_000


def test_an_id_made_later_sorts_later() -> None:
    clock = ManualClock()
    source = MessageIdSource(clock.now_ms)

    made = []
    for _ in range(200):
        made.append(source.next())
        clock.advance(ms=1)

    assert made == sorted(made)


def test_the_ids_of_the_year_9999_still_fit_and_sort() -> None:
    early, late = ManualClock(0), ManualClock(253_402_300_799_999)

    first, last = MessageIdSource(early.now_ms).next(), MessageIdSource(late.now_ms).next()

    assert len(first) == len(last) == 17
    assert first[:8] == "00000000" or first < last


def test_two_sources_differ_even_in_the_same_millisecond() -> None:
    clock = ManualClock()

    made = {MessageIdSource(clock.now_ms).next() for _ in range(1_000)}

    assert len(made) == 1_000


def test_a_forked_child_with_a_source_of_its_own_makes_other_ids() -> None:
    clock = ManualClock()
    mine = MessageIdSource(clock.now_ms)
    reading, writing = os.pipe()

    child = os.fork()
    if child == 0:
        os.write(writing, MessageIdSource(clock.now_ms).next().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)

    assert len(theirs) == 17
    assert theirs[8:13] != mine.next()[8:13]
