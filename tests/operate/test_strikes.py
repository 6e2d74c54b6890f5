"""Strikes: durable, bounded, audited; those whose time is over go away."""

from __future__ import annotations

import pytest

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.strike import MOST_STRIKES
from mqworker.operate.audit import read_audit
from mqworker.operate.strikes import add_strike, read_strikes, remove_strike
from mqworker.operate.system import System
from mqworker.queues.work.keys import strikes_key
from tests.support.deadline import wait_until


def test_a_strike_is_in_force_until_it_is_removed_and_both_are_audited(system: System) -> None:
    strike = add_strike(
        system, "ann", task="shop.charge", where=["args.tenant=acme"], until="2h", reason="bank"
    )

    assert read_strikes(system) == [strike]
    assert strike.until_ms == strike.since_ms + 7_200_000
    remove_strike(system, "bob", strike.id)

    assert read_strikes(system) == []
    assert [(noted.deed.who, noted.deed.action) for noted in read_audit(system)] == [
        ("bob", "unstrike"),
        ("ann", "strike"),
    ]


def test_a_strike_whose_time_is_over_is_taken_away_with_the_next_one(system: System) -> None:
    key = strikes_key(system.settings.namespace)
    add_strike(system, "ann", task="shop.charge", until="1ms")
    wait_until(lambda: not read_strikes(system), "the strike is over", 10)
    system.store.send([("HSET", key, "foreign", "nonsense")], key)

    strike = add_strike(system, "ann", task="shop.mail")

    assert [each.id for each in read_strikes(system)] == [strike.id]
    assert system.store.send([("HKEYS", key)], key) == [[strike.id.encode()]]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"task": "*"}, "skip everything"),
        ({"task": "a b"}, "accepted"),
        ({"where": ["tenant=acme"]}, "args.<name>=<value>"),
        ({"task": "t", "until": "soon"}, "until is 'soon'"),
        ({"task": "t", "until": "900d"}, "up to a year"),
    ],
)
def test_what_cannot_be_meant_is_refused(system: System, wrong: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        add_strike(system, "ann", **wrong)  # type: ignore[arg-type]

    assert read_strikes(system) == []


def test_there_are_only_so_many(system: System) -> None:
    for _ in range(MOST_STRIKES):
        add_strike(system, "ann", task="t")

    with pytest.raises(MqworkerError, match="remove one first"):
        add_strike(system, "ann", task="t")


def test_one_that_is_not_there_cannot_be_removed(system: System) -> None:
    with pytest.raises(MqworkerError, match="no strike 'nope'"):
        remove_strike(system, "ann", "nope")
