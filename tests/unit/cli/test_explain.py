"""Codes of errors: every class has one, every one is explained, none changes its name."""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

import mqworker
import mqworker_services
from mqworker import errors
from mqworker.cli.explain import read_explanations
from mqworker.cli.main import exit_code_of
from mqworker.cli.main import mqworker as command_line
from mqworker.errors import MqworkerError, code_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "errors.md"
CODES = tomllib.loads((Path(__file__).with_name("error_codes.toml")).read_text(encoding="utf-8"))["codes"]


def all_classes() -> list[type[MqworkerError]]:
    """Every error class of the packages; without the extra that some of them need there is no such list.

    Three modules of Django import in a configured project only, and have no errors of their own.
    """
    pytest.importorskip("pyspark", reason="errors of the pipeline need pyspark")
    for package in (mqworker, mqworker_services):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not re.search(
                r"__main__|generated|\.testing\.plugin|django\.(admin|models|worker)$", module.name
            ):
                with suppress(ModuleNotFoundError):
                    importlib.import_module(module.name)
    found, waiting = [], [MqworkerError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("mqworker"):
            found.append(kind)
    return sorted(set(found), key=lambda kind: kind.__name__)


def test_every_error_class_is_explained_once_by_its_code() -> None:
    explained = {each.class_name: each.code for each in read_explanations() if each.class_name}

    assert explained == {kind.__name__: code_of(kind) for kind in all_classes() if kind.__name__[0] != "_"}


def test_no_code_stands_twice() -> None:
    codes = [each.code for each in read_explanations()]

    assert len(codes) == len(set(codes))


def test_codes_are_never_renamed_or_taken_away() -> None:
    assert [each.code for each in read_explanations()] == CODES, "add new codes to error_codes.toml"


def test_every_explanation_says_what_to_do_and_the_true_exit_code() -> None:
    kinds = {kind.__name__: kind for kind in all_classes()}

    for each in read_explanations():
        assert "**To do.** " in each.text, each.code
        if each.class_name:
            kind = kinds[each.class_name]
            assert each.exit_code == exit_code_of(kind.__new__(kind)), each.code


def test_every_reason_for_a_burial_is_explained() -> None:
    table = (ROOT / "docs" / "guide" / "retries.md").read_text(encoding="utf-8")
    reasons = re.findall(
        r"(?m)^\| (`[a-z_ ]+`(?:, `[a-z_ ]+`)*) \|", table.partition("| reason | means |")[2]
    )

    wanted = {word.strip("`") for cell in reasons for word in cell.split(", ")}
    assert wanted <= {each.code for each in read_explanations()}
    assert {"failed", "lost"} <= wanted


def test_the_page_of_the_site_is_what_the_command_reads() -> None:
    assert PAGE.resolve() == Path(errors.__file__).parent / "cli" / "errors.md"


@pytest.mark.parametrize("asked", ["queue-full", "QueueFull", "QUEUE-FULL", "[queue-full]"])
def test_a_code_is_found_as_it_was_printed_or_by_its_class(asked: str) -> None:
    result = CliRunner().invoke(command_line, ["explain", asked])

    assert result.exit_code == 0, result.output
    assert result.output.startswith("queue-full\n")
    assert "To do. Try again later" in result.output
    assert "`" not in result.output
    assert "<!--" not in result.output


def test_what_a_gateway_answers_leads_to_the_errors_behind_it() -> None:
    result = CliRunner().invoke(command_line, ["explain", "OOM"])

    assert [line for line in result.output.splitlines() if re.fullmatch("[a-z]+-[a-z]+", line)] == [
        "queue-full",
        "store-full",
    ]


def test_a_wrong_code_is_answered_by_those_that_come_close() -> None:
    result = CliRunner().invoke(command_line, ["explain", "quefull"])

    assert result.exit_code == 2
    assert "did you mean queue-full" in result.stderr


def test_without_a_code_all_are_listed() -> None:
    result = CliRunner().invoke(command_line, ["explain"])

    assert [line.split("  ")[0] for line in result.output.splitlines()] == CODES


@pytest.mark.parametrize("width", [80, 100])
def test_every_explanation_fits_the_terminal(width: int) -> None:
    for code in CODES:
        result = CliRunner().invoke(command_line, ["explain", code], env={"COLUMNS": str(width)})
        for line in result.output.splitlines():
            assert len(line) <= width or line.startswith("    "), line
