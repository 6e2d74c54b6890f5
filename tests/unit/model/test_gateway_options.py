"""Where gateways listen and who may come in: checked before anything starts."""

from __future__ import annotations

import re

import pytest

from mqworker.actors.gateway.settings import gateway_names, options_of
from mqworker.errors import ConfigurationError
from mqworker.model.gateway_options import GatewayOptions, TcpPlace, UnixPlace, parse_place
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


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])  # noqa: S104 - to be refused
def test_strangers_need_a_token_or_tls(host: str) -> None:
    with pytest.raises(ConfigurationError, match="gateway_token"):
        GatewayOptions("redismq", TcpPlace(host, 1))
    assert GatewayOptions("redismq", TcpPlace(host, 1), token="open-sesame").is_token(b"open-sesame")  # noqa: S106


def test_tokens_are_compared_whole_and_never_shown() -> None:
    options = GatewayOptions("redismq", TcpPlace("127.0.0.1", 1), token="open-sesame")  # noqa: S106 - of this test

    assert not options.is_token(b"open-sesam")
    assert not options.is_token(b"")
    assert not GatewayOptions("redismq", TcpPlace("127.0.0.1", 1)).is_token(b"")
    assert "sesame" not in repr(options)
    assert "sesame" not in repr(Settings(gateway_token="open-sesame"))  # noqa: S106 - as above


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
