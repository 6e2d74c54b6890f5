"""What the site is given beside its Markdown: pages made from the code, the navigation, pictures.

MkDocs calls the `on_...` functions (mkdocs.yml, hooks). The reference is made anew with every build, so it
cannot be out of date: settings from `Settings`, the command line from click, the Python reference from the
names that `mqworker` exports. The page on errors is a link to what `mqworker explain` reads.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import mqworker
from mqworker.cli.main import COMMANDS
from mqworker.cli.main import mqworker as command_line
from mqworker.cli.shared_options import share_options
from mqworker.settings import RULE_BY_NAME, Settings

GENERATED = "reference/"
MORE_PAGES = "More pages"
EXPORTS = {
    "Apps and tasks": "App Task AsyncTask Context current_context State task default_app",
    "Batches": "Batch BatchContext BatchTask AsyncBatchTask",
    "Around tasks": "Depends OutgoingCall",
    "Payloads": "Keyring SigningKey EncryptionKey Files S3",
    "Options": "Retry Rate MaxRunning Breaker Fair Unique Rsmq Gq CeleryQueue Secret",
    "Jobs": "Job JobStatus as_completed wait_all aas_completed await_all",
    "Workflows": "chain group chord graph StepGraph GraphStep WorkflowJob WorkflowMember MemberFailure",
}
"""What `mqworker` exports, in the order in which people look for it; a test finds what is missing."""
VALUES = frozenset(
    {"Retry", "Rate", "MaxRunning", "Breaker", "Fair", "Unique", "Rsmq", "Gq", "CeleryQueue", "MemberFailure"}
)
"""Of these only the way to make one is for users."""

_PICTURE = re.compile(
    r'<p><img alt="(?P<alt>[^"]*)" src="(?P<source>[^"]*pictures/[a-z0-9-]+\.svg)" ?/?></p>'
)
_SETTING_NAME = re.compile(r"\b[a-z]+_[a-z_]+\b")
_SETTING = re.compile(r"    (?P<name>[a-z_]+): Annotated\[")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: lists for `folder/*`, and a place for pages that nobody listed."""
    docs = Path(config.docs_dir)
    config.nav = _expanded(config.nav or [], docs)
    listed = set(_paths(config.nav))
    unlisted = [page for page in _all_pages(docs) if page not in listed]
    if unlisted:
        config.nav.append({MORE_PAGES: [{title_of(docs / page): page} for page in unlisted]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put pictures into the page itself, where they follow its light or dark colours."""
    del files
    folder = (Path(config.docs_dir) / page.file.src_uri).parent

    def inlined(found: re.Match[str]) -> str:
        svg = (folder / found["source"]).resolve().read_text(encoding="utf-8")
        return f'<figure class="picture" role="img" aria-label="{found["alt"]}">{svg}</figure>'

    return _PICTURE.sub(inlined, html)


def title_of(page: Path) -> str:
    """What its first heading says."""
    first = next(
        (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("# ")), ""
    )
    return first.removeprefix("# ").strip() or page.stem


def settings_page() -> str:
    """Every setting: what it accepts, its default, and the words that stand above it in `Settings`."""
    lines = [
        "# Settings",
        "",
        "Settings come from flags, then `MQWORKER_*` variables, then `[tool.mqworker]` in the nearest",
        "`pyproject.toml`, then the defaults below. A value that does not fit stops the start with exit code",
        "78 and a sentence that lists every problem. Durations end in `_s` and are seconds.",
        "",
        "In `pyproject.toml` a setting has the name below; as a variable it is the same in capitals with",
        "`MQWORKER_` in front (`drain_s` is `MQWORKER_DRAIN_S`); commands that take it as an option spell it",
        "`--drain-s`.",
    ]
    for words, names in setting_groups():
        lines += [
            "",
            _SETTING_NAME.sub(r"`\g<0>`", words),
            "",
            "| setting | accepts | default |",
            "|---|---|---|",
        ]
        lines += [f"| `{name}` | {_cell(RULE_BY_NAME[name].accepts)} | {_default(name)} |" for name in names]
    return "\n".join(lines) + "\n"


def setting_groups() -> Iterator[tuple[str, list[str]]]:
    """The settings as their source groups them: a comment, and the names below it."""
    words: list[str] = []
    names: list[str] = []
    for line in inspect.getsource(Settings).splitlines():
        if line.startswith("    # "):
            if names:
                yield " ".join(words), names
                words, names = [], []
            words.append(line.strip("# "))
        elif found := _SETTING.match(line):
            names.append(found["name"])
    yield " ".join(words), names


def command_line_page() -> str:
    """Every command with its options, as `--help` tells them."""
    lines = [
        "# Command line",
        "",
        "`mqworker COMMAND --help` shows the same. Every command finds its server like the application does:",
        "`--redis-url`, else `MQWORKER_REDIS_URL`, else the embedded server of this directory.",
        "",
        "| exit code | means |",
        "|---|---|",
        "| 0 | done; for `mqworker status`: healthy |",
        "| 1 | failed; for `mqworker status`: degraded |",
        "| 2 | the command line is wrong; for `mqworker status`: down |",
        "| 3 | only from `mqworker status`: no Redis |",
        "| 69 | Redis or the embedded server is not available, or full: try again later |",
        "| 78 | the configuration does not fit: mend it, trying again will not help |",
    ]
    for words, command in all_commands():
        lines += ["", f"{'##' if len(words) == 1 else '###'} mqworker {' '.join(words)}", ""]
        lines += _command_lines(words, command)
    return "\n".join(lines) + "\n"


def all_commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command by its words, groups before what is in them."""
    with click.Context(command_line):
        for name in COMMANDS:
            yield from _commands_below((name,), share_options(COMMANDS[name].load()))


def python_page() -> str:
    """The names that `mqworker` exports, and those of the packages for tests and queue models."""
    lines = [
        "# Python",
        "",
        "What is listed here is public and keeps its meaning; everything else may change without notice.",
        "",
        "## mqworker",
        "",
        "`@app.task`, `@app.schedule` and `@app.subscribe` are attributes of an `App`: their options are in",
        "[Tasks](../guide/tasks.md#all-options), [Schedules](../guide/schedules.md) and",
        "[Events](../guide/events.md).",
        "",
    ]
    for title, names in EXPORTS.items():
        lines += [f"### {title}", ""]
        for name in names.split():
            lines += _entry(f"{mqworker._MODULE_BY_NAME[name]}.{name}", is_value=name in VALUES)  # noqa: SLF001 - where it is
    lines += ["## mqworker.testing", ""]
    for path in ("bench.Bench", "summary.Summary"):
        lines += _entry(f"mqworker.testing.{path}")
    lines += ["## mqworker.queues", "", "The [queue models](../queue-models.md) as libraries.", ""]
    for path in (
        "rsmq.client.RsmqClient",
        "gq.client.GqClient",
        "topics.client.Topics",
        "work.queue.WorkQueue",
    ):
        lines += _entry(f"mqworker.queues.{path}")
    for path in ("client.SkmqClient", "listener.SkmqListener"):
        lines += _entry(f"mqworker.queues.skmq.{path}")
    return "\n".join(lines)


def _entry(path: str, *, is_value: bool = False) -> list[str]:
    options = "heading_level: 4, members: false" if is_value else "heading_level: 4"
    return [f"::: {path}", f"    options: {{{options}}}", ""]


def changes_page() -> str:
    """The changelog, as it is in the repository."""
    return (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")


PAGES: dict[str, Callable[[], str]] = {
    f"{GENERATED}settings.md": settings_page,
    f"{GENERATED}command-line.md": command_line_page,
    f"{GENERATED}python.md": python_page,
    f"{GENERATED}changes.md": changes_page,
}


# Any: the navigation is what YAML gave: lists, dicts of one entry, texts.
def _expanded(entries: list[Any], docs: Path) -> list[Any]:
    expanded: list[Any] = []
    for entry in entries:
        if not isinstance(entry, dict):
            expanded.append(entry)
            continue
        ((title, value),) = entry.items()
        if isinstance(value, list):
            value = _expanded(value, docs)
        elif value.endswith("/*"):
            pages = sorted((docs / value.removesuffix("/*")).glob("*.md"))
            value = [{title_of(page): page.relative_to(docs).as_posix()} for page in pages]
        expanded.append({title: value})
    return expanded


def _paths(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        values = entry.values() if isinstance(entry, dict) else [entry]
        for value in values:
            yield from _paths(value) if isinstance(value, list) else [value]


def _all_pages(docs: Path) -> list[str]:
    return sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))


def _commands_below(
    words: tuple[str, ...], command: click.Command
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _commands_below((*words, name), command.commands[name])


def _command_lines(words: tuple[str, ...], command: click.Command) -> list[str]:
    context = click.Context(command, info_name=" ".join(("mqworker", *words)))
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        "```text",
        f"mqworker {' '.join(words)} {usage}",
        "```",
        "",
        inspect.cleandoc(command.help or ""),
    ]
    records = [each.get_help_record(context) for each in command.get_params(context)]
    shown = [record for record in records if record is not None and record[1] and record[0] != "-h, --help"]
    if shown:
        lines += ["", "| option | |", "|---|---|"]
        lines += [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in shown]
    return lines


def _default(name: str) -> str:
    value = next(each.default for each in fields(Settings) if each.name == name)
    if value in (None, ()):
        return "none"
    return f"`{value:,}`" if type(value) is int else f"`{value if value != '' else '(empty)'}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
