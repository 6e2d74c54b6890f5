"""Everything the documentation shows runs: Python against a real node, commands in a shell, data parsed."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from mqworker.settings import RULE_BY_NAME
from tests.docs.console import commands_of, has_shape
from tests.docs.page_run import PageRun
from tests.docs.pages import DATA, DOCS, PROGRAMS, PROSE, Block, all_pages, blocks_of
from tests.docs.python_blocks import is_shape
from tests.support.real_server import RealServer

BLOCKS = [block for page in all_pages() for block in blocks_of(page)]
PAGES_THAT_RUN = sorted({block.page for block in BLOCKS if block.is_run})
PAGES_AT_ONCE = 3
WANTED_PROGRAMS = {"gateways": "redis-cli", "skmq": "nc"}


def name_of(value: Path | Block) -> str:
    """How pytest calls it."""
    return value.place if isinstance(value, Block) else value.relative_to(DOCS).as_posix()


@pytest.fixture(scope="session")
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest, server: RealServer) -> Iterator[dict[Path, Future[list[str]]]]:
    """The pages whose tests were asked for, some at once: most of the time they wait for processes."""
    asked_for = {
        item.callspec.params["page"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == test_what_a_page_shows_runs.__name__
    }
    with ThreadPoolExecutor(PAGES_AT_ONCE) as executor:
        cache = request.config.cache.mkdir("docs-npm")
        yield {page: executor.submit(run_page, page, server, cache) for page in sorted(asked_for)}
        executor.shutdown(cancel_futures=True)


def run_page(page: Path, server: RealServer, npm_cache: Path) -> list[str]:
    """Try one page; raises what is wrong with it. What had to be left out, and why."""
    if lacks_program(page) is not None:
        return []
    with PageRun(page, server, npm_cache) as run:
        run.run()
        return run.left_out


def lacks_program(page: Path) -> str | None:
    """A program that the page is about, and that is not installed here."""
    program = WANTED_PROGRAMS.get(page.stem)
    return None if program is None or shutil.which(program) else program


@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=name_of)
def test_what_a_page_shows_runs(page: Path, runs: dict[Path, Future[list[str]]]) -> None:
    if program := lacks_program(page):
        pytest.skip(f"{program} is not installed")

    left_out = runs[page].result()
    if left_out:
        pytest.skip(f"all but its JavaScript was run: {'; '.join(left_out)}")


@pytest.mark.parametrize("block", BLOCKS, ids=name_of)
def test_every_block_says_what_it_is(block: Block) -> None:
    assert block.language in PROGRAMS | DATA | PROSE | {""}, f"{block.place}: {block.language}"
    if block.language == "":  # a drawing, not a program that says nothing
        assert not re.search(r"(?m)^(\$ |mqworker |from \w+ import |import |pip )", block.code), block.place
    if block.language == "python":  # else what it prints would not be compared
        assert not re.search(r"(?m)^\s*\)  # ", block.code), (
            f"{block.place}: print(...) and its text on one line"
        )
    if block.exemption is not None:
        assert len(block.exemption.split()) >= 3, f"{block.place}: give the reason in words"
    elif block.marker is not None:
        assert block.marker.split()[0] in ("background", "exit", "raises"), f"{block.place}: {block.marker}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in DATA], ids=name_of)
def test_data_can_be_read(block: Block) -> None:
    match block.language:
        case "json":
            assert json.loads(block.code)
        case "yaml":
            assert yaml.safe_load(block.code)
        case "toml":
            table = tomllib.loads(block.code).get("tool", {}).get("mqworker", {})
            assert set(table) <= set(RULE_BY_NAME), f"{block.place}: {set(table) - set(RULE_BY_NAME)}"
        case _:
            assert block.code.strip()


def test_the_blocks_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    run = [block for block in BLOCKS if block.is_run]
    exempt = Counter(block.exemption for block in BLOCKS if block.exemption is not None)

    commands = sum(len(commands_of(block.code)) for block in run if block.language == "console")
    kinds = Counter(block.language for block in run)
    lines = [
        (
            f"documentation: {len(run)} blocks run ({kinds['python']} python, "
            f"{kinds['javascript']} javascript, {kinds['console']} console with {commands} commands), "
            f"{sum(exempt.values())} exempt"
        ),
        *(f"  {count} exempt: {reason}" for reason, count in sorted(exempt.items())),
    ]
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")

    assert len(run) > sum(exempt.values())


def test_shapes_are_told_apart() -> None:
    assert has_shape(("ran 1,234 tasks in 2.5 s",), "ran 9 tasks in  17 s\n")
    assert has_shape(("queue  …", "…", "end"), "queue mail\none\ntwo\nend\n")
    assert not has_shape(("queue mail",), "queue post\n")
    assert not has_shape(("one",), "one\ntwo\n")
    assert is_shape("order … charged", "order 7 charged")
    assert not is_shape("order 7 charged", "order 8 charged")
