"""Secrets by file, and what is said of those that `ps` shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqworker.cli.main import visible_secrets
from mqworker.errors import ConfigurationError
from mqworker.settings import load_settings


def a_file(folder: Path, text: str, name: str = "secret") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_token_and_a_url_may_stand_in_files(tmp_path: Path, end: str) -> None:
    settings = load_settings(
        {
            "gateway_token_file": a_file(tmp_path, f"t0k3n{end}", "token"),
            "redis_url_file": a_file(tmp_path, f"redis://u:p@h:1{end}", "url"),
        },
        environ={},
    )

    assert settings.gateway_token == "t0k3n"  # noqa: S105 - of this test
    assert settings.redis_url == "redis://u:p@h:1"
    assert "t0k3n" not in repr(settings)


def test_a_flag_goes_before_a_file_that_a_variable_names(tmp_path: Path) -> None:
    environ = {"MQWORKER_REDIS_URL_FILE": a_file(tmp_path, "redis://file:1")}

    assert load_settings({"redis_url": "redis://flag:1"}, environ=environ).redis_url == "redis://flag:1"
    assert load_settings({}, environ=environ).redis_url == "redis://file:1"


@pytest.mark.parametrize(
    ("text", "said"),
    [("two words\n", "gateway-token-file"), ("", "gateway-token-file"), ("x" * 5_000, "gateway-token-file")],
)
def test_a_file_with_something_else_in_it_is_named_and_not_shown(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        load_settings({"gateway_token_file": a_file(tmp_path, text)}, environ={})

    assert "two words" not in str(refused.value)


def test_a_file_that_is_missing_and_a_value_given_twice_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_settings({"gateway_token_file": str(tmp_path / "none")}, environ={})
    with pytest.raises(ConfigurationError, match="accepted: one of the two"):
        load_settings({"gateway_token_file": a_file(tmp_path, "t"), "gateway_token": "t"}, environ={})


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "redismq", "--gateway-token", "t"],
        ["serve", "redismq", "--gateway-token=t"],
        ["status", "--redis-url", "redis://u:p@h:1"],
        ["status", "--redis-url=rediss+cluster://:p@h:1,g:2"],
    ],
)
def test_a_secret_that_ps_shows_is_warned_of(words: list[str]) -> None:
    (warning,) = visible_secrets(words)

    assert "`ps` shows it" in warning


@pytest.mark.parametrize(
    "words",
    [["status"], ["serve", "--gateway-token-file", "f"], ["status", "--redis-url", "redis://u@h:1/0"]],
)
def test_nothing_is_said_where_nothing_is_shown(words: list[str]) -> None:
    assert visible_secrets(words) == []
