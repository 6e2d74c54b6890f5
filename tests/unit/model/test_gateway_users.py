"""Users of gateways: who is who, and what each may do."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import ConfigurationError
from mqworker.model.gateway_users import CONSUME, INSPECT, PUBLISH, TRUSTED, matches, read_users

DIGEST = hashlib.sha256(b"shop-token").hexdigest()


def users_of(**tables: Any) -> Any:  # noqa: ANN401 - TOML holds anything
    return read_users({"users": tables}, "users.toml")


def test_a_user_does_what_its_patterns_allow_and_no_more() -> None:
    shop = users_of(shop={"token_sha256": DIGEST, "publish": ["mail", "orders.*"], "consume": ["*"]}).users[0]

    assert shop.may(PUBLISH, "mail")
    assert shop.may(PUBLISH, "orders.eu")
    assert shop.may(CONSUME, "anything:at all")
    for queue in ("mail2", "orders", "xorders.eu", "Mail", ""):
        assert not shop.may(PUBLISH, queue)
    assert not shop.may(INSPECT, "mail")
    assert not shop.is_unlimited
    assert TRUSTED.is_unlimited


def test_a_user_is_found_by_token_and_by_name() -> None:
    users = users_of(
        shop={"token_sha256": DIGEST, "publish": ["*"]},
        admin={"certificate": "admin.example", "inspect": ["*"]},
    )

    assert users.by_token(b"shop-token").name == "shop"
    assert users.by_token(b"shop-token", "shop").name == "shop"
    assert users.by_token(b"shop-token", "admin") is None
    assert users.by_token(DIGEST.encode()) is None
    assert users.by_token(b"x" * 2_000) is None
    assert users.by_certificate(["admin.example"]).name == "admin"
    assert users.by_certificate([]) is None
    assert DIGEST not in repr(users)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({}, "[users.NAME]"),
        ({"a b": {"token_sha256": DIGEST}}, "the name"),
        ({"a": {"token": "plain"}}, "accepted are certificate"),
        ({"a": {"token_sha256": "shop-token"}}, "64 hexadecimal digits"),
        ({"a": {"publish": ["x"]}}, "nobody can be this user"),
        ({"a": {"token_sha256": DIGEST, "publish": "mail"}}, "publish is a list"),
        ({"a": {"token_sha256": DIGEST, "publish": []}}, "publish is a list"),
        ({"a": {"token_sha256": DIGEST}, "b": {"token_sha256": DIGEST}}, "the same token"),
        ({"a": {"certificate": "c"}, "b": {"certificate": "c"}}, "the same certificate"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_one_sentence(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)) as refused:
        users_of(**tables)

    assert DIGEST not in str(refused.value)


@given(st.text(max_size=40))
def test_a_pattern_without_a_star_stands_for_itself_alone(name: str) -> None:
    plain = name.replace("*", "")

    assert matches((plain,), plain)
    assert not matches((plain,), f"{plain}x")
    assert not matches((), plain)
