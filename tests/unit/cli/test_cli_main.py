"""The command line without a server: help, version, errors and exit codes."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mqworker import __version__, errors
from mqworker.cli import main as cli
from mqworker.cli.main import COMMANDS, LazyCommand, exit_code_of, mqworker


def test_version_names_the_program() -> None:
    result = CliRunner().invoke(mqworker, ["--version"])

    assert (result.exit_code, result.output) == (0, f"mqworker {__version__}\n")


def test_help_lists_each_command_with_its_summary() -> None:
    result = CliRunner().invoke(mqworker, ["--help"], prog_name="mqworker", terminal_width=200)

    lines = {" ".join(line.split()) for line in result.output.splitlines()}
    assert result.exit_code == 0
    assert result.output.startswith("Usage: mqworker ")
    assert lines >= {f"{name} {command.summary}" for name, command in COMMANDS.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself_as_the_list_promises(name: str) -> None:
    result = CliRunner().invoke(mqworker, [name, "--help"])

    assert result.exit_code == 0
    assert COMMANDS[name].summary in result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(mqworker, ["rediss"])

    assert result.exit_code == 2
    assert "No such command 'rediss'" in result.stderr


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.ConfigurationError("workers: got 0; accepted: 1 or more"), 78),
        (errors.StoreUnavailable("Redis does not answer"), 69),
        (errors.StoreFull("Redis is full"), 69),
        (errors.InvalidArgument("queue: got ''"), 2),
        (errors.QueueFull("mail holds 1000 messages"), 1),
    ],
)
def test_an_error_becomes_one_sentence_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: errors.MqworkerError, exit_code: int
) -> None:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "COMMANDS", {"fail": LazyCommand("Fail.", lambda: fail)})
    result = CliRunner().invoke(mqworker, ["fail"])

    assert result.exit_code == exit_code == exit_code_of(error)
    assert (result.stdout, result.stderr) == ("", f"mqworker: {error} [{errors.code_of(type(error))}]\n")


def test_a_setting_that_does_not_fit_is_reported_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(mqworker, ["redis"], env={"MQWORKER_WORKERS": "many"})

    assert result.exit_code == 78
    assert "MQWORKER_WORKERS" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_and_version_import_no_command_and_no_client_library() -> None:
    program = (
        "import sys; from mqworker.cli.main import mqworker; mqworker(['--help'], standalone_mode=False); "
        "heavy = {'redis', 'structlog', 'msgpack', 'mqworker.settings', 'mqworker.store'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )

    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert output.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "variable", "is_colored"),
    [
        ([], "", True),
        ([], "1", False),
        ([], "false", False),
        ([], "anything", False),
        (["--no-color"], "", False),
    ],
)
def test_colours_are_left_out_where_they_are_unwanted(
    arguments: list[str], variable: str, *, is_colored: bool
) -> None:
    words = [*arguments, "status", "--redis-url", "redis://127.0.0.1:1"]

    result = CliRunner(env={"NO_COLOR": variable}).invoke(mqworker, words, color=True)

    assert ("\x1b[" in result.output) is is_colored
