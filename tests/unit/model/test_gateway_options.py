"""Where gateways listen and who may come in: checked before anything starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mqworker.actors.gateway.settings import gateway_names, options_of
from mqworker.errors import ConfigurationError
from mqworker.model.gateway_options import GatewayOptions, TcpPlace, UnixPlace, parse_place
from mqworker.model.gateway_users import TRUSTED, digest_of, read_users, users_of_token
from mqworker.settings import Settings, load_settings


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:6390", TcpPlace("127.0.0.1", 6390)),
        (":0", TcpPlace("127.0.0.1", 0)),
        ("localhost:1", TcpPlace("localhost", 1)),
        ("[::1]:65535", TcpPlace("::1", 65_535)),
        ("unix:/run/mq.sock", UnixPlace("/run/mq.sock")),
    ],
)
def test_places_are_understood(text: str, place: TcpPlace | UnixPlace) -> None:
    assert parse_place(text) == place
    assert place.is_local


@pytest.mark.parametrize(
    "text", ["6390", "host", "host:", "host:65536", "host:1_0", "a b:1", "unix:", "::1:5"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_place(text)


TLS = {"tls_certificate": Path("c.pem"), "tls_key": Path("k.pem")}
ONE_TOKEN = users_of_token("open-sesame")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])  # noqa: S104 - to be refused
@pytest.mark.parametrize("given", [{}, {"users": ONE_TOKEN}, TLS], ids=["nothing", "token", "tls"])
def test_other_machines_need_tls_and_somebody_who_is_known(host: str, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="which other machines can reach"):
        GatewayOptions("redismq", TcpPlace(host, 1), **given)


@pytest.mark.parametrize(
    "who", [{"users": ONE_TOKEN}, {"tls_client_ca": Path("ca.pem")}], ids=["token", "mtls"]
)
def test_tls_with_a_token_or_with_client_certificates_is_accepted(who: dict[str, Any]) -> None:
    assert GatewayOptions("redismq", TcpPlace("10.0.0.1", 1), **TLS, **who).asks_who


def test_client_certificates_need_one_of_our_own() -> None:
    with pytest.raises(ConfigurationError, match="gateway_tls_client_ca"):
        GatewayOptions("redismq", TcpPlace("127.0.0.1", 1), tls_client_ca=Path("ca.pem"))


def test_tokens_are_compared_whole_and_never_shown() -> None:
    options = GatewayOptions("redismq", TcpPlace("127.0.0.1", 1), users=ONE_TOKEN)

    assert options.users.by_token(b"open-sesame") is not None
    for wrong in (b"open-sesam", b"", b"open-sesame ", digest_of(b"open-sesame")):
        assert options.users.by_token(wrong) is None
    assert "sesame" not in repr(options)
    assert "sesame" not in repr(Settings(gateway_token="open-sesame"))  # noqa: S106 - as above


def test_who_comes_is_known_by_its_certificate_or_not_yet() -> None:
    local = TcpPlace("127.0.0.1", 1)
    users = read_users({"users": {"shop": {"certificate": "shop.example", "publish": ["mail"]}}}, "f")
    mutual = {**TLS, "tls_client_ca": Path("ca.pem")}

    assert GatewayOptions("redismq", local).newcomer() is TRUSTED
    assert GatewayOptions("redismq", local, users=ONE_TOKEN).newcomer() is None
    assert GatewayOptions("redismq", local, **mutual).newcomer(["anybody"]) is TRUSTED
    assert (
        GatewayOptions("redismq", local, users=users, **mutual).newcomer(["shop.example"]) == users.users[0]
    )
    assert GatewayOptions("redismq", local, users=users, **mutual).newcomer(["other.example"]) is None
    assert GatewayOptions("redismq", local, users=users).newcomer(["shop.example"]) is None


def test_settings_become_options() -> None:
    settings = load_settings(
        {"gateways": ["skmq", "redismq=:7000"], "gateway_options": ["skmq.conf=a=b"], "gateway_idle_s": "5"},
        environ={},
    )

    assert gateway_names(settings) == ["skmq", "redismq"]
    assert options_of(settings, "skmq").place == TcpPlace("127.0.0.1", 1734)
    assert options_of(settings, "skmq").extra == {"conf": "a=b"}
    assert options_of(settings, "redismq").place == TcpPlace("127.0.0.1", 7000)
    assert options_of(settings, "redismq").extra == {}
    assert options_of(settings, "redismq").idle_s == 5.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gateways", "nothing"),
        ("gateways", "redismq=nowhere"),
        ("gateways", "redismq,redismq=:1"),
        ("gateway_options", "conf=x"),
        ("gateway_token", "two words"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name.replace("_", "-")) as refused:
        load_settings({name: value}, environ={})

    assert "two words" not in str(refused.value)


def test_the_ports_of_a_node_are_those_of_all_its_servers() -> None:
    settings = load_settings(
        {
            "gateways": ["skmq", "redismq=:7000"],
            "http": "127.0.0.1:9464",
            "web": "127.0.0.1:8780",
            "redis_url": "redis+cluster://u:p@h1:7001,h2",
        },
        environ={},
    )

    assert options_of(settings, "skmq").own_ports == {1734, 6390, 7000, 9464, 8780, 7001, 6379}
