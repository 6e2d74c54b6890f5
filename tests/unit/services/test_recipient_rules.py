"""Where SKMQ recipients may be."""

from __future__ import annotations

import pytest

from mqworker.errors import ConfigurationError
from mqworker_services.gateways.skmq.recipient_rules import RecipientRules, parse_places

NOWHERE = RecipientRules("", frozenset({6379, 1734}))
LISTED = RecipientRules("10.0.0.0/8 192.168.7.7 consumer.example fd00::/8", frozenset({6379}))


@pytest.mark.parametrize(
    ("host", "registered_from"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("::1", "127.0.0.1"),
        ("10.1.2.3", "::ffff:10.1.2.3"),
        ("[fd00::1]", "fd00::1"),
    ],
)
def test_the_address_that_registers_is_accepted(host: str, registered_from: str) -> None:
    assert NOWHERE.refusal(host, 2_000, registered_from) is None


@pytest.mark.parametrize(
    ("host", "registered_from"),
    [
        ("127.0.0.1", "10.1.2.3"),
        ("localhost", "10.1.2.3"),
        ("10.1.2.4", "10.1.2.3"),
        ("169.254.169.254", "127.0.0.1"),
        ("10.1.2.3", "127.0.0.1"),
        ("internal.example", "127.0.0.1"),
        ("::ffff:127.0.0.1", "10.1.2.3"),
    ],
)
def test_another_address_is_refused_and_the_accepted_one_named(host: str, registered_from: str) -> None:
    refusal = NOWHERE.refusal(host, 2_000, registered_from)

    assert refusal is not None
    assert f"accepted is {registered_from}" in refusal


@pytest.mark.parametrize("port", [22, 25, 80, 1_023, 6_379, 1_734])
def test_ports_of_the_system_and_of_our_servers_are_refused_whatever_the_list_says(port: int) -> None:
    assert NOWHERE.refusal("127.0.0.1", port, "127.0.0.1") is not None
    assert RecipientRules("*", frozenset({6379, 1734})).refusal("10.0.0.1", port, "127.0.0.1") is not None


def test_a_list_names_networks_addresses_and_hosts() -> None:
    for host in ("10.9.9.9", "192.168.7.7", "consumer.example", "Consumer.Example", "fd00::7"):
        assert LISTED.refusal(host, 2_000, "127.0.0.1") is None
    for host in ("11.0.0.1", "192.168.7.8", "evil.example", "0.0.0.0", "224.0.0.1"):  # noqa: S104 - to be refused
        assert LISTED.refusal(host, 2_000, "127.0.0.1") is not None


def test_a_list_that_makes_no_sense_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"recipients has '10\.0\.0\.0/99'"):
        parse_places("10.0.0.0/99")
