"""The site is built without a warning, asks no other host for anything, and its reference is complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import mqworker
from mqworker import errors
from mqworker.cli.main import COMMANDS
from mqworker.settings import Settings
from tests.docs.pages import DOCS, ROOT, all_pages

_FETCHED = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\ssrc="(?P<a>[^"]+)"|<link[^>]*\shref="(?P<b>[^"]+)"'
)
_ELSEWHERE = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        for found in _FETCHED.finditer(page.read_text(encoding="utf-8")):
            assert "//" not in (found["a"] or found["b"]), f"{page.relative_to(site)}: {found[0]}"
    for sheet in site.rglob("*.css"):
        assert not _ELSEWHERE.search(sheet.read_text(encoding="utf-8")), sheet


def test_every_page_can_be_found_by_the_search(site: Path) -> None:
    script = (site / "search" / "search_index.js").read_text(encoding="utf-8")  # read without a server
    index = json.loads(script.removeprefix("var __index = "))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}

    for page in all_pages():
        name = page.relative_to(DOCS).with_suffix(".html").as_posix()
        assert name.replace("README.html", "index.html") in found


def test_the_reference_names_every_setting_command_error_and_export(site: Path) -> None:
    def text(name: str) -> str:
        return (site / "reference" / f"{name}.html").read_text(encoding="utf-8")

    for setting in fields(Settings):
        assert f"<code>{setting.name}</code>" in text("settings")
    for command in COMMANDS:
        assert f"mqworker {command}" in text("command-line")
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert name in text("errors")
    for name in mqworker.__all__:
        assert f".{name}" in text("python"), name


def test_pictures_are_drawn_in_the_colours_of_the_page(site: Path) -> None:
    for picture in DOCS.glob("pictures/*.svg"):
        svg = picture.read_text(encoding="utf-8")
        assert "var(--picture-ink" in svg, picture
        assert "prefers-color-scheme: dark" in svg, (
            f"{picture}: on its own it must be readable in the dark, too"
        )
    assert '<figure class="picture"' in (site / "start" / "how-it-works.html").read_text(encoding="utf-8")


def test_a_dead_anchor_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[Two](index.md#two)\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: one\nvalidation: {links: {anchors: warn}}\n", encoding="utf-8"
    )

    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=tmp_path, capture_output=True, check=False
    )

    assert done.returncode != 0
