"""`mqworker new`: a small project to begin with: an app, a test of it, a Procfile, settings."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path
from string import Template

import click

from mqworker.errors import InvalidArgument

_APP = '''"""The tasks of $name. Run them: mqworker run $name:app"""

from mqworker import App, Context, Retry, chain

app = App("$name")


@app.task(retry=Retry(max=5, first=1, backoff=2.0))
def greet(ctx: Context, name: str) -> str:
    ctx.log.info("greeted", name=name)
    return f"Hello, {name}!"


@app.task
def shout(text: str) -> str:
    return text.upper()


@app.schedule("0 3 * * *", timezone="UTC")
def tidy_up(ctx: Context) -> None:
    ctx.log.info("tidied_up")


def welcome(name: str) -> str:
    """Greet, then shout what the greeting returned; the id of the workflow."""
    return chain(greet.s(name), shout.s()).enqueue().id


if __name__ == "__main__":
    print(greet.delay("world").result(timeout=10))
    print(app.workflow(welcome("world")).result(timeout=10))
'''

_TEST = '''"""Tests without a server: pip install 'mqworker[testing]', then pytest."""

import pytest
import $name


@pytest.fixture
def mqworker_app():
    return $name.app


def test_a_greeting(bench):
    job = $name.greet.delay("world")

    assert bench.run_all().succeeded == 1
    assert job.result() == "Hello, world!"


def test_a_welcome_is_shouted(bench):
    workflow = $name.welcome("world")

    bench.run_all()
    assert $name.app.workflow(workflow).result() == "HELLO, WORLD!"


def test_tidying_up_comes_once_a_day(bench):
    bench.advance(days=1)

    assert len(bench.enqueued($name.tidy_up)) == 1
'''

_SETTINGS = """[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["mqworker"]

[project.optional-dependencies]
test = ["mqworker[testing]"]

[tool.mqworker]
# All settings: `mqworker run --help` and the documentation. MQWORKER_REDIS_URL belongs in the environment.
drain_s = 25
"""

_FILES = {
    "$name.py": _APP,
    "test_$name.py": _TEST,
    "pyproject.toml": _SETTINGS,
    "Procfile": "worker: exec mqworker run $name:app\n",
    ".gitignore": ".mqworker/\n.venv/\n__pycache__/\n",
}


@click.command("new")
@click.argument("app")
def new_command(app: str) -> None:
    """Make a small project to begin with: an app, its test, a Procfile.

    APP is the name of the new directory, and of the module in it.
    """
    folder = Path(checked_name(app))
    if folder.exists():
        raise InvalidArgument(f"{folder} is there already; accepted is the name of a new directory")
    folder.mkdir()
    for name, text in _FILES.items():
        path = folder / Template(name).substitute(name=app)
        path.write_text(Template(text).substitute(name=app), encoding="utf-8")
        click.echo(f"  {path}")
    click.echo(f"\nIn one terminal:  cd {app} && mqworker run {app}:app --reload")
    click.echo(f"In another:       cd {app} && python {app}.py")
    click.echo(f"Its tests:        cd {app} && pip install 'mqworker[testing]' && pytest")


def checked_name(app: str) -> str:
    """Check that a module of this name can be imported and shadows no other; raises `InvalidArgument`."""
    is_taken = app in sys.stdlib_module_names or app in ("mqworker", "test")
    if (
        app.isascii()
        and app.isidentifier()
        and app == app.lower()
        and not keyword.iskeyword(app)
        and not is_taken
    ):
        return app
    raise InvalidArgument(
        f"app is {app!r}; accepted is the name of a Python module: lower-case letters, digits and _, "
        "no keyword and no module of Python's own"
    )
