"""Redaction: no secret survives, and what an operator needs stays readable."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqworker.redaction import is_secret_name, masked_text, masked_traceback, masked_url

MARK = "S3CR3T"
around = st.text(max_size=20)
around_without_space = st.text(max_size=20).filter(lambda text: not any(each.isspace() for each in text))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://user:p@host:6379/0", "redis://user:***@host:6379/0"),
        ("rediss://:p@host", "rediss://:***@host"),
        ("redis://p@host", "redis://***@host"),
        ("redis://user:p@ss/w?r#d@host/1", "redis://user:***@host/1"),
        ("unix:///run/redis.sock?db=1&password=p", "unix:///run/redis.sock?db=1&password=***"),
        ("redis://host?pass%77ord=p", "redis://host?pass%77ord=***"),
        ("redis+sentinel://u:p@a:26379,b:26379/main", "redis+sentinel://u:***@a:26379,b:26379/main"),
        ("redis://host?password=p@q", "redis://***"),
        ("user:p@host", "user:***@host"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert masked_url(url) == shown


@given(before=around, after=around)
@example(before="a?token=", after="")
@example(before="12?token=", after="")
@example(before="@", after="@")
def test_no_password_in_the_user_part_survives(before: str, after: str) -> None:
    masked = masked_url(f"redis://user:{before}{MARK}{after}@host:6379/0")

    assert MARK not in masked


@given(
    before=around.filter(lambda text: "&" not in text),
    name=st.sampled_from(["password", "sentinel_password"]),
)
def test_no_password_in_the_query_survives(before: str, name: str) -> None:
    masked = masked_url(f"unix:///run/redis.sock?db=0&{name}={before}{MARK}")

    assert MARK not in masked


@given(before=around_without_space, lead=around, trail=around)
def test_no_url_password_survives_inside_text(before: str, lead: str, trail: str) -> None:
    masked = masked_text(f"{lead} redis://user:{before}{MARK}@host:6379 {trail}")

    assert MARK not in masked


@pytest.mark.parametrize(
    "text",
    [
        "password=S3CR3T",
        "User(name='a', password='S3CR3T and more S3CR3T')",
        '{"db_passwd": "S3CR3T \\" S3CR3T", "x": 1}',
        '"{\\"token\\": \\"S3CR3T S3CR3T\\"}"',
        "api-key: S3CR3T",
        "Authorization: Bearer S3CR3T",
        "Cookie: a=S3CR3T; b=S3CR3T",
        "secret=b'S3CR3T'",
        "token='S3CR3T cut off S3CR3T",
    ],
)
def test_a_named_secret_inside_text_is_masked(text: str) -> None:
    assert MARK not in masked_text(text)


def test_text_without_secrets_is_left_as_it_is() -> None:
    text = "lease 7 of queue mail expired 20 ms ago, see http://host/docs?page=2"

    assert masked_text(text) == text


@pytest.mark.parametrize(
    "name", ["password", "DB_PASSWD", "access_token", "apiKey", "x-api-key", "Set-Cookie"]
)
def test_a_sensitive_name_is_recognised(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["queue", "fence", "lease_id", "permits", "passed"])
def test_an_everyday_name_is_not_sensitive(name: str) -> None:
    assert not is_secret_name(name)


def test_lines_of_source_in_a_traceback_stay_readable_and_show_no_written_secret() -> None:
    trace = """Traceback (most recent call last):
  File "shop.py", line 3, in login
    token = issue(token=read_token(user), password="S3CR3T")
            ^^^^^^^^^^^^^^^^^
  File "shop.py", line 9, in issue
    connect("redis://u:S3CR3T@host/0", secret = secret)
ValueError: token=S3CR3T
    password=S3CR3T
"""

    shown = masked_traceback(trace)

    assert MARK not in shown
    assert "    token = issue(token=read_token(user), password=***)" in shown
    assert "secret = secret)" in shown
    assert shown.count("\n") == trace.count("\n")


@given(text=st.text(alphabet=" \nFile\",line1 =xpassword'", max_size=300))
def test_any_text_can_be_masked_as_a_traceback(text: str) -> None:
    assert masked_traceback(text).count("\n") <= text.count("\n")
