"""What stands in `code` on a page exists: commands, options, settings, attributes, arguments, files."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import mqworker
import mqworker.queues
import mqworker.testing
from mqworker import App, Context, Job, Task, WorkflowJob, errors
from mqworker.cli.main import COMMANDS
from mqworker.settings import RULE_BY_NAME
from mqworker.tasks.options import task_options
from tests.docs.pages import DOCS, ROOT, all_pages, prose_of

INSIDE = ("ARCHITECTURE.md", "benchmarks/", "decisions/")
"""For maintainers, about the code at the time of writing; files named there are looked up all the same."""

_SPAN = re.compile(r"`([^`]+)`")
_VARIABLE = re.compile(r"MQWORKER_[A-Z][A-Z_]*[A-Z]")
_FILE = re.compile(r"(?:docs|examples|mqworker|tests|deploy|services|benchmarks)/[\w./-]+\.[a-z]+")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*|\.\.\.|…|\[.*|[\w.]+:[\w.]+|<.*")
_WORD = re.compile(r"[a-z]+(?:_[a-z]+)+")

OWNERS: dict[str, Any] = {
    "app": App("docs", redis_url="redis://127.0.0.1:1"),
    "ctx": Context,
    "job": Job,
    "task": Task,
    "workflow": WorkflowJob,
    "found": WorkflowJob,
    "bench": mqworker.testing.Bench,
}
"""What the names on the pages stand for."""

# Of other programs: Celery and arq, systemd and Compose, Django, gRPC, Pydantic.
FOREIGN = {
    *("delta_scan", "reject_on_worker_lost", "send_task"),
    *("acks_late", "job_timeout", "visibility_timeout", "worker_prefetch_multiplier"),
    *("ExecReload", "TimeoutStopSec", "stop_grace_period"),
    *("SecretBytes", "SecretStr"),
    *("ImmediateBackend", "TestCase", "aget_result"),
    *("bdp_probe", "minimal_stack", "optimization_target"),
}


class Span:
    """One piece of `code` and where it stands."""

    def __init__(self, page: Path, line: int, text: str) -> None:
        self.page, self.line, self.text = page, line, text

    def __repr__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: `{self.text}`"


def spans_of(page: Path) -> Iterator[Span]:
    """All of a page; where others' names stand beside ours, ours are in the later columns."""
    for number, line in prose_of(page):
        text = line
        if page.parent.name == "come-from" and line.startswith("|"):
            text = line.replace(r"\|", " ").split("|", 2)[2]
        for found in _SPAN.finditer(text):
            yield Span(page, number, found[1])


def for_users(page: Path) -> bool:
    """Whether its names are those of now."""
    return not page.relative_to(DOCS).as_posix().startswith(INSIDE)


SPANS = [span for page in all_pages() if for_users(page) for span in spans_of(page)]


def test_variables_are_settings() -> None:
    known = {f"MQWORKER_{name.upper()}" for name in RULE_BY_NAME}

    for page in all_pages():
        for name in _VARIABLE.findall(page.read_text(encoding="utf-8")):
            assert name in known, f"{page}: {name}"


def test_commands_and_their_options_exist() -> None:
    wrong = [span for span in SPANS if span.text.startswith("mqworker ") and not is_command(span.text)]

    assert wrong == []


def test_options_exist_somewhere() -> None:
    known = {option for command in all_commands() for option in options_of(command)}
    known |= {f"--{name.replace('_', '-')}" for name in RULE_BY_NAME}
    wrong = [span for span in SPANS if span.text.startswith("--") and span.text.split()[0] not in known]

    assert wrong == []


def test_attributes_and_arguments_exist() -> None:
    wrong = [(span, problem) for span in SPANS for problem in problems_with(span.text)]

    assert wrong == []


def test_errors_and_classes_exist() -> None:
    modules = (mqworker, errors, mqworker.queues, mqworker.testing, builtins)
    known = {name for module in modules for name in dir(module)} | source_words() | FOREIGN
    wrong = [
        span for span in SPANS if re.fullmatch(r"[A-Z][a-z]+[A-Za-z]*", span.text) and span.text not in known
    ]

    assert wrong == []


def test_words_with_underscores_are_known_to_the_code() -> None:
    known = source_words() | FOREIGN
    # A counter is named in the code without the ending that OpenMetrics gives it.
    words = [span for span in SPANS if _WORD.fullmatch(span.text)]
    wrong = [span for span in words if span.text.removesuffix("_total") not in known]

    assert wrong == []


def test_files_exist() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in all_pages()
        if page.name != "ARCHITECTURE.md" and page.parent.name != "decisions"
        for _, line in prose_of(page)
        for span in _SPAN.findall(line)
        for name in _FILE.findall(span)
        if not (ROOT / name).exists()
    ]

    assert wrong == []


def test_the_chapter_on_tasks_has_every_option() -> None:
    page = (DOCS / "guide" / "tasks.md").read_text(encoding="utf-8")

    for option in ["name", *inspect.signature(task_options).parameters]:
        assert f"| `{option}` |" in page, option


def test_the_chapter_on_calling_has_every_option_of_a_call() -> None:
    page = (DOCS / "guide" / "calling.md").read_text(encoding="utf-8")

    for option in list(inspect.signature(Task.using).parameters)[1:]:
        assert f"`{option}`" in page, option


def test_the_page_on_events_has_every_event() -> None:
    page = (DOCS / "reference" / "events.md").read_text(encoding="utf-8")
    source = (ROOT / "mqworker" / "model" / "event.py").read_text(encoding="utf-8")
    known = re.findall(r'^[A-Z]+: Final = "([a-z]{2,})"$', source, re.MULTILINE)

    assert re.findall(r"(?m)^\| `([a-z]+)` \|", page) == known


@pytest.mark.parametrize(
    "text", ["mqworker frobnicate", "mqworker status --jason", "mqworker queue stop NAME"]
)
def test_a_wrong_command_is_found(text: str) -> None:
    assert not is_command(text)


@pytest.mark.parametrize(
    "text", ["app.tusk", "job.results()", "Retry(maximum=3)", "app.queue(name, length=3)"]
)
def test_a_wrong_name_is_found(text: str) -> None:
    assert problems_with(text)


def is_command(text: str) -> bool:
    """Whether all its words are: a command, its subcommands, their options."""
    words = text.split("#", maxsplit=1)[0].split()[1:]
    if words[:1] == ["COMMAND"]:
        return True
    command: click.Command | None = None
    known: set[str] = set()
    for word in words:
        if word.startswith("-"):
            if word.split("=")[0] not in known | {"--help", "--version"}:
                return False
        elif command is None:
            if word not in COMMANDS:
                return bool(_PLACEHOLDER.fullmatch(word))
            command = COMMANDS[word].load()
            known |= options_of(command)
        elif isinstance(command, click.Group):
            if word not in command.commands:
                return bool(_PLACEHOLDER.fullmatch(word))
            command = command.commands[word]
            known |= options_of(command)
    return True


def options_of(command: click.Command) -> set[str]:
    """Its options, short and long."""
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}


def all_commands() -> Iterator[click.Command]:
    """Every command and subcommand."""
    waiting = [command.load() for command in COMMANDS.values()]
    while waiting:
        command = waiting.pop()
        yield command
        waiting += list(command.commands.values()) if isinstance(command, click.Group) else []


def problems_with(text: str) -> list[str]:
    """What a piece of Python names that is not there."""
    try:
        tree = ast.parse(
            text.strip().removeprefix("@").removeprefix("raise ").removeprefix("await "), mode="eval"
        )
    except SyntaxError:
        return []
    problems: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = OWNERS.get(node.value.id)
            if owner is not None and not hasattr(owner, node.attr) and node.attr not in slots_of(owner):
                problems.append(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Call):
            accepted = keywords_of(node.func)
            if accepted is not None:
                problems += [each.arg for each in node.keywords if each.arg and each.arg not in accepted]
    return problems


def slots_of(owner: Any) -> set[str]:  # noqa: ANN401 - a class or an instance
    """Attributes that only an instance has."""
    kind = owner if isinstance(owner, type) else type(owner)
    source = inspect.getsource(kind)
    return set(re.findall(r"self\.([a-z]\w*)(?::[^=]+)? = ", source))


def keywords_of(function: ast.expr) -> set[str] | None:
    """The keyword arguments that a call on a page may have; None when it is not ours."""
    target: Callable[..., Any] | None = None
    if isinstance(function, ast.Name) and function.id in mqworker.__all__:
        target = getattr(mqworker, function.id)
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if (function.value.id, function.attr) == ("app", "task"):
            return {"name", *inspect.signature(task_options).parameters}
        target = getattr(OWNERS.get(function.value.id), function.attr, None)
    if target is None:
        return None
    parameters = inspect.signature(target).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return None
    return set(parameters)


@functools.cache
def source_words() -> frozenset[str]:
    """Every word of the code: what a page names must stand there somewhere."""
    files = [*ROOT.glob("mqworker/**/*.py"), *ROOT.glob("mqworker/**/*.lua"), *ROOT.glob("services/**/*.py")]
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


def test_the_page_about_installing_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    named = set(re.findall(r"`mqworker\[(\w+)\]`", (DOCS / "start/install.md").read_text()))

    assert named == set(extras) - {"bench", "dev", "docs"}  # which are for work on mqworker itself
