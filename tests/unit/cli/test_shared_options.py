"""`--redis-url` and `--json` stand before or after a subcommand, at every level, for every command."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from mqworker.cli.connect import connect
from mqworker.cli.main import COMMANDS, SECTIONS, mqworker
from mqworker.cli.shared_options import share_options

NOWHERE = "redis://127.0.0.1:1"
ASKING = [
    ("status",),
    ("doctor",),
    ("audit",),
    ("queue", "list"),
    ("queue", "pause", "mail"),
    ("job", "show", "order-7"),
    ("job", "list"),
    ("dead", "list"),
    ("dead", "causes"),
    ("functions", "list"),
    ("rsmq", "queue", "list"),
    ("rsmq", "message", "pop", "--name", "mail"),
]


def places(words: tuple[str, ...], *option: str) -> Iterator[list[str]]:
    """The command with the option at the front, behind each word of it, and at the end."""
    depth = sum(1 for word in words if not word.startswith("-") and word not in ("mail", "order-7"))
    for position in range(depth + 1):
        yield [*words[:position], *option, *words[position:]]
    yield [*words, *option]


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_the_server_is_named_at_any_place(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connect.__kwdefaults__, "retry_for_ms", 0)  # nobody is there, however long we wait
    for arguments in places(words, "--redis-url", NOWHERE):
        result = CliRunner(env={"MQWORKER_RETRY_FOR_S": "0"}).invoke(mqworker, arguments)

        assert "127.0.0.1:1" in result.output, arguments
        assert "cannot be reached" in result.output, arguments


@pytest.mark.parametrize("arguments", list(places(("status",), "--json")), ids=" ".join)
def test_json_is_asked_for_at_any_place(arguments: list[str]) -> None:
    result = CliRunner().invoke(mqworker, ["--redis-url", NOWHERE, *arguments])

    assert json.loads(result.stdout)["verdict"]["health"] == "no_redis"


def test_the_innermost_server_wins() -> None:
    arguments = ["-r", "redis://127.0.0.1:2", "queue", "-r", "redis://127.0.0.1:3", "list", "-r", NOWHERE]

    result = CliRunner().invoke(mqworker, arguments)

    assert "127.0.0.1:1/" in result.output
    assert "127.0.0.1:2" not in result.output


@pytest.mark.parametrize("arguments", list(places(("queue", "pause", "mail"), "--json")), ids=" ".join)
def test_a_command_without_json_says_so(arguments: list[str]) -> None:
    result = CliRunner().invoke(mqworker, arguments)

    assert result.exit_code == 2
    assert "queue pause has no --json" in result.stderr


def test_a_command_that_asks_no_server_says_so() -> None:
    result = CliRunner().invoke(mqworker, ["--redis-url", NOWHERE, "new", "shop"])

    assert result.exit_code == 2
    assert "new has no --redis-url" in result.stderr


def test_one_run_leaves_nothing_behind_for_the_next() -> None:
    CliRunner().invoke(mqworker, ["--json", "-r", NOWHERE, "status"])

    result = CliRunner().invoke(mqworker, ["status", "-r", "redis://127.0.0.1:2"])

    assert "127.0.0.1:1" not in result.output
    assert not result.stdout.startswith("{")


def leaves(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from leaves(below, (*words, name))
    else:
        yield words, command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_or_refuses_both_and_has_no_option_twice(name: str) -> None:
    for words, command in leaves(share_options(COMMANDS[name].load()), (name,)):
        options = [option for param in command.params for option in param.opts]

        assert {"--redis-url", "--json"} <= set(options), words
        assert len(options) == len(set(options)), words


def test_every_command_stands_in_one_section_of_the_help() -> None:
    named = [name for names in SECTIONS.values() for name in names.split()]

    assert sorted(named) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_fits_80_columns(name: str) -> None:
    for words, _ in leaves(COMMANDS[name].load(), (name,)):
        result = CliRunner().invoke(mqworker, [*words, "--help"], terminal_width=80)

        assert result.exit_code == 0, words
        assert max(map(len, result.output.splitlines())) <= 80, words
