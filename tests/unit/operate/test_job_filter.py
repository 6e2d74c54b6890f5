"""A search as people type it becomes a filter; what cannot be meant is refused with what is accepted."""

import pytest

from mqworker.errors import InvalidArgument
from mqworker.model.envelope import CallOptions, encode_call
from mqworker.operate.job_filter import Candidate, fits, may_fit, parse_filter

NOW_MS = 1_800_000_000_000
BODY = encode_call(["first"], {"tenant": "acme", "customer": {"id": 7}})
JOB = Candidate("01J-abc", "shop.charge", NOW_MS - 600_000, "TimeoutError: the bank", BODY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task:charge",
        "task:shop.CHARGE",
        "id:01J",
        "error:timeout",
        "age:>5m",
        "age:<1h",
        "args.tenant:acme",
        "args.0:first",
        "args.customer.id:7",
        "bank",
        "charge error:Timeout args.tenant:acme age:>9min",
        'error:"the bank"',
    ],
)
def test_a_job_fits_what_is_true_of_it(text: str) -> None:
    assert fits(parse_filter(text), JOB, NOW_MS)


@pytest.mark.parametrize(
    "text",
    ["task:mail", "id:abc", "error:Value", "age:>1h", "age:<5m", "args.tenant:other", "args.9:x", "zebra"],
)
def test_a_job_does_not_fit_what_is_not(text: str) -> None:
    assert not fits(parse_filter(text), JOB, NOW_MS)


def test_a_body_that_is_no_call_has_no_arguments() -> None:
    assert not fits(parse_filter("args.tenant:acme"), Candidate("a", "t", None, "", b"\xff"), NOW_MS)


@pytest.mark.parametrize("text", ["state:asleep", "age:soon", "age:>5parsecs", "colour:red", "'unclosed"])
def test_what_cannot_be_meant_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"accepted|partner"):
        parse_filter(text)


def test_states_have_the_names_that_people_use() -> None:
    assert parse_filter("state:running state:dead").states == ("leased", "dead")


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("", True),
        ("tag:import", True),
        ("tag:other", False),
        ("args.tenant:acme", True),
        ("args.tenant:nobody", False),
        ("args.customer.id:8", True),  # a number is not seen in the bytes
        ("args.flag:True", True),
        ("id:01J", True),
        ("id:01K", False),
        ("task:nothing", True),
    ],
)
def test_what_is_passed_over_unread_surely_does_not_fit(text: str, may: bool) -> None:  # noqa: FBT001 - a case
    body = encode_call([True], {"tenant": "acme", "customer": {"id": 7}}, CallOptions(tags=("import",)))
    record = b"1800000000000" + b"0--3" + b"0" * 8 + b"01J-abc shop.charge " + body

    assert may_fit(parse_filter(text), record) is may


def test_tags_are_looked_for_in_the_body_or_where_they_are_known() -> None:
    body = encode_call([], {}, CallOptions(tags=("import", "acme")))

    assert fits(parse_filter("tag:import tag:acme"), Candidate("a", "t", 0, "", body), NOW_MS)
    assert not fits(parse_filter("tag:imp"), Candidate("a", "t", 0, "", body), NOW_MS)
    assert fits(parse_filter("tag:x"), Candidate("a", "t", 0, tags=("x",)), NOW_MS)
    assert not fits(parse_filter("tag:x"), Candidate("a", "t", 0, "", b"x no call"), NOW_MS)
