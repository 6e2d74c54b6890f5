"""What has no name of its own is told to give one; an app that cannot be imported is told where and why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.tasks.app import App
from mqworker.tasks.loading import load_app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_a_lambda_needs_a_name() -> None:
    app = App()

    with pytest.raises(InvalidArgument, match=r"is a lambda .*accepted are .*name=\.\.\."):
        app.task(lambda: None)

    assert app.task(name="shop.nothing")(lambda: None).name == "shop.nothing"


def test_what_is_no_function_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match=r"accepted are functions, and others with name=\.\.\."):
        App().task(print)


def test_a_failed_import_names_every_line_on_the_way_the_innermost_first(folder: Path) -> None:
    (folder / "broken_outer.py").write_text("import sys\nimport broken_inner\n")
    (folder / "broken_inner.py").write_text("1 / 0\n")

    with pytest.raises(ConfigurationError) as refused:
        load_app("broken_outer:app", folder)

    places = f"({folder}/broken_inner.py, line 1, called from {folder}/broken_outer.py, line 2)"
    assert str(refused.value).endswith(f"fails to import: ZeroDivisionError: division by zero {places}")


def test_a_syntax_error_is_named_with_its_line_once(folder: Path) -> None:
    (folder / "broken_syntax.py").write_text("\n\nx = = 1\n")

    with pytest.raises(ConfigurationError) as refused:
        load_app("broken_syntax:app", folder)

    assert str(refused.value).endswith(f"SyntaxError: invalid syntax ({folder}/broken_syntax.py, line 3)")
