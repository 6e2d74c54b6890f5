"""The README: what it links to exists, what it shows runs, its figures are those of the benchmarks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.test_names import is_command
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "benchmarks" / "results.md").read_text(encoding="utf-8")
DEADLINE_S = 120.0


def test_what_it_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)

    assert len(links) > 15
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_its_commands_exist() -> None:
    commands = [line.removeprefix("$ ") for line in README.splitlines() if line.startswith("$ ")]
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")

    for command in commands:
        if command.startswith("mqworker "):
            assert is_command(command), command
        if command.startswith("make "):
            assert re.search(rf"(?m)^{command.split()[1]}:", targets), command


def test_its_figures_are_those_of_the_benchmarks() -> None:
    table = README.partition("## Beside others")[2].partition("## Read on")[0]
    figures = re.findall(r"\d{1,3}(?:,\d{3})+|\d+\.\d+", table)

    assert len(figures) >= 12
    assert [figure for figure in figures if figure not in RESULTS and figure != "2,000"] == []


def test_its_twenty_lines_run(tmp_path: Path) -> None:
    code = re.findall(r"(?s)```python\n(.*?)```", README)[0]
    wanted = re.findall(r"print\(.*\)  # (.+)", code)
    with RealServer() as server:
        node = RealNode(server.url, "shop:app", settings={"MQWORKER_WORKERS": "1"})
        (node.directory / "shop.py").write_text(code, encoding="utf-8")
        shutil.copy(node.directory / "shop.py", tmp_path)
        with node:
            done = subprocess.run(
                [sys.executable, "shop.py"],
                cwd=tmp_path,
                env={"MQWORKER_REDIS_URL": server.url},
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == wanted
    assert len(code.splitlines()) <= 22
