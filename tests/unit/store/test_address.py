"""What a redis_url may say, and what its errors must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import ConfigurationError
from mqworker.store.link.address import (
    Cluster,
    Credentials,
    HostPort,
    Sentinel,
    ServerAddress,
    Standalone,
    Tls,
    UnixSocket,
    describe,
    masked_url,
    parse_address,
    secrets_of,
)

LOCAL = HostPort("localhost", 6379)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", Standalone(LOCAL)),
        ("redis://localhost/", Standalone(LOCAL)),
        ("redis://h:7000/3", Standalone(HostPort("h", 7000), db=3)),
        ("redis://:p@localhost", Standalone(LOCAL, Credentials(None, "p"))),
        ("redis://u@localhost", Standalone(LOCAL, Credentials("u"))),
        ("redis://u:p%40%2F%3A@localhost", Standalone(LOCAL, Credentials("u", "p@/:"))),
        ("redis://u:p@ss@localhost", Standalone(LOCAL, Credentials("u", "p@ss"))),
        ("redis://[::1]:7000", Standalone(HostPort("::1", 7000))),
        ("redis://[::1]", Standalone(HostPort("::1", 6379))),
        ("rediss://localhost", Standalone(LOCAL, tls=Tls())),
        (
            "rediss://localhost?ssl_ca_certs=/ca.pem&ssl_certfile=/c&ssl_keyfile=/k&ssl_check_hostname=false",
            Standalone(LOCAL, tls=Tls("/ca.pem", "/c", "/k", check_hostname=False)),
        ),
        ("unix:///run/r.sock", UnixSocket("/run/r.sock")),
        ("unix:///run/a%20b.sock?db=2", UnixSocket("/run/a b.sock", db=2)),
        ("unix://u:p@/run/r.sock", UnixSocket("/run/r.sock", Credentials("u", "p"))),
        ("redis+sentinel://a/mq", Sentinel((HostPort("a", 26379),), "mq")),
        (
            "rediss+sentinel://u:p@a:1,[::2]:3/mq/4?sentinel_password=s",
            Sentinel(
                (HostPort("a", 1), HostPort("::2", 3)),
                "mq",
                Credentials("u", "p"),
                Credentials(None, "s"),
                db=4,
                tls=Tls(),
            ),
        ),
        ("redis+cluster://a:1,b", Cluster((HostPort("a", 1), HostPort("b", 6379)))),
        ("rediss+cluster://:p@a", Cluster((HostPort("a", 6379),), Credentials(None, "p"), Tls())),
    ],
)
def test_url_names_an_address(url: str, address: ServerAddress) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "unknown scheme"),
        ("localhost:6379", "unknown scheme"),
        ("http://localhost", "unknown scheme"),
        ("redis://", "no host"),
        ("redis://:6379", "no host"),
        ("redis://a,b", "more than one host"),
        ("redis://h:0", "port '0'"),
        ("redis://h:65536", "port"),
        ("redis://h:7x", "port '7x'"),
        ("redis://h:1_000", "port"),
        ("redis://h:²", "port"),
        ("redis://[::1", "Invalid IPv6"),
        (f"redis://{'h' * 64}", "no resolver"),
        ("redis://h/x", "database 'x'"),
        ("redis://h/-1", "database"),
        ("redis://h/1/2", "not a database"),
        ("redis://h?ssl_ca_certs=/x", "unknown option"),
        ("rediss://h?ssl_cert_reqs=none", "unknown option 'ssl_cert_reqs'"),
        ("rediss://h?ssl_check_hostname=maybe", "ssl_check_hostname"),
        ("rediss://h?ssl_keyfile=a&ssl_keyfile=b", "twice"),
        ("unix://run/r.sock", "three slashes"),
        ("unix://", "no socket path"),
        ("redis+sentinel://a", "no /service"),
        ("redis+sentinel://a/mq/1/2", "no /service"),
        ("redis+cluster://a/1", "other than 0"),
        ("redis+cluster://a,", "no host"),
    ],
)
def test_unusable_url_is_refused_with_its_reason_and_what_is_accepted(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_address(url)

    assert reason in str(raised.value)
    assert "redis_url" in str(raised.value)
    assert "Accepted: redis://" in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:s3cret@h:bad",
        "redis://:s3cret@h/x",
        "http://u:s3cret@h",
        "u:s3cret@h",
        "redis://u:s3cret@[::1",
        "redis+sentinel://h?sentinel_password=s3cret",
        "redis://h?password=s3cret",
    ],
)
def test_error_never_shows_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_address(url)

    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:s3cret@h",
        "unix://:s3cret@/s.sock",
        "redis+sentinel://u:s3cret@h/mq?sentinel_password=s3cret",
        "rediss+cluster://u:s3cret@h",
    ],
)
def test_repr_and_description_hide_the_password(url: str) -> None:
    address = parse_address(url)

    assert "s3cret" not in repr(address) + describe(address)
    assert ":***@" in describe(address)
    assert set(secrets_of(address)) == {"s3cret"}


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:6379/0",
        "unix:///s.sock?db=1",
        "rediss://[::1]:1/0",
        "redis+sentinel://a:1,b:2/mq/0",
        "redis+cluster://a:1,b:2",
    ],
)
def test_description_without_secrets_is_the_url(url: str) -> None:
    assert describe(parse_address(url)) == url == masked_url(url)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_configuration_error(text: str) -> None:
    for url in (text, f"redis://{text}", f"redis+sentinel://{text}/mq", f"unix:///{text}"):
        try:
            address = parse_address(url)
        except ConfigurationError:
            continue
        assert describe(address)
