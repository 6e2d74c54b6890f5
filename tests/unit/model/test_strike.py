"""A strike skips what it says and nothing else; what somebody else wrote is not a strike."""

from __future__ import annotations

import json

import pytest

from mqworker.errors import InvalidArgument
from mqworker.model.strike import MOST_STRIKES, Strike, checked_strike, parse_condition, strikes_in

ACME = Strike("a1", "shop.charge", (("args.tenant", "acme"),), until_ms=2_000)


@pytest.mark.parametrize(
    ("strike", "is_hit"),
    [
        (ACME, True),
        (Strike("b", "shop.*", (("args.tenant", "acme"),)), True),
        (Strike("b", "*", (("tag", "import"),)), True),
        (Strike("b", "shop.charge"), True),
        (Strike("b", "shop.charge", (("args.customer.id", "7"),)), True),
        (Strike("b", "shop.charge", (("args.0", "first"),)), True),
        (Strike("b", "shop.charge", (("args.tenant", "acme"), ("tag", "other"))), False),
        (Strike("b", "shop.charge", (("args.tenant", "Acme"),)), False),
        (Strike("b", "shop.charge", (("args.nobody", "acme"),)), False),
        (Strike("b", "shop.charg", (("args.tenant", "acme"),)), False),
        (Strike("b", "mail.*", (("args.tenant", "acme"),)), False),
    ],
)
def test_a_call_is_hit_when_everything_fits(strike: Strike, is_hit: bool) -> None:  # noqa: FBT001 - a case
    kwargs = {"tenant": "acme", "customer": {"id": 7}}

    found = strike.means("shop.charge") and strike.hits(["first"], kwargs, ("import",))

    assert found is is_hit


def test_strikes_are_in_force_until_their_time_by_the_servers_clock() -> None:
    text = json.dumps(ACME.as_fields()).encode()

    assert strikes_in([text], 1_999) == [ACME]
    assert strikes_in([text], 2_000) == []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"task": "shop.charge", "where": "x"}',
        b'{"task": "shop.charge", "where": [["a"]]}',
        b'{"task": "*", "where": []}',
        b'{"task": "shop.charge", "where": [], "until_ms": "soon"}',
        b'{"task": "../x", "where": []}',
        b'{"task": "shop.charge", "where": [["args.a", "' + b"x" * 20_000 + b'"]]}',
    ],
)
def test_what_somebody_else_wrote_is_passed_over(text: bytes) -> None:
    assert strikes_in([text, json.dumps(ACME.as_fields()).encode()], 0) == [ACME]


def test_no_more_than_a_bounded_number_is_looked_at() -> None:
    texts = [json.dumps(Strike(f"s{n}", "shop.charge").as_fields()).encode() for n in range(500)]

    assert len(strikes_in(texts, 0)) == MOST_STRIKES


@pytest.mark.parametrize(
    "strike",
    [
        Strike("a", "*"),
        Strike("a", "no task"),
        Strike("a", "t", (("tenant", "acme"),)),
        Strike("a", "t", (("args.", "x"),)),
        Strike("a", "t", (("args.x", "y" * 600),)),
        Strike("a", "t", note="x" * 600),
        Strike("a", "t", tuple(("tag", f"t{n}") for n in range(9))),
    ],
)
def test_a_strike_that_cannot_be_meant_is_refused(strike: Strike) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        checked_strike(strike)


def test_a_condition_has_a_value() -> None:
    assert parse_condition("args.tenant=a=b") == ("args.tenant", "a=b")
    with pytest.raises(InvalidArgument, match=r"args.<name>=<value>"):
        parse_condition("args.tenant")
