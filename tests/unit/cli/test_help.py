"""Help fits a terminal of eighty columns, and what a list of commands says of each is whole."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from mqworker.cli.main import mqworker

COLUMNS = 80


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, groups first."""
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("words", list(commands(mqworker)), ids=lambda words: " ".join(words) or "mqworker")
def test_help_is_whole_and_fits_eighty_columns(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(mqworker, [*words, "--help"], terminal_width=COLUMNS)

    lines = result.output.splitlines()[1:]  # below the usage, which ends in "..." where anything may follow
    assert result.exit_code == 0
    assert [line for line in lines if len(line) > COLUMNS or line.endswith("...")] == []


@pytest.mark.parametrize(("typed", "meant"), [("stauts", "stats or status"), ("que", "queue")])
def test_a_misspelt_command_is_told_which_was_meant(typed: str, meant: str) -> None:
    result = CliRunner().invoke(mqworker, [typed])

    assert result.exit_code == 2
    assert f"Did you mean {meant}?" in result.output
