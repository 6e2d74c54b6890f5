"""Every module explains itself, stays small and runs no text as code; and the rules bite."""

from collections.abc import Callable

import pytest

from tests.architecture import source_rules as rules
from tests.architecture.source_tree import Module, modules

Check = Callable[[Module], list[str]]
EVERYWHERE = ("mqworker", "services", "examples", "benchmarks")


@pytest.mark.parametrize(
    ("check", "folders"),
    [
        (rules.forbidden_name, EVERYWHERE),
        (rules.excess_lines, EVERYWHERE),
        (rules.forbidden_calls, EVERYWHERE),
        (rules.missing_docstrings, ("mqworker",)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_tree_keeps_the_rule(check: Check, folders: tuple[str, ...]) -> None:
    assert [problem for module in modules(*folders) for problem in check(module)] == []


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (rules.forbidden_name, "mqworker/store/utils.py", ""),
        (rules.forbidden_name, "mqworker/store/redis_helpers.py", ""),
        (rules.forbidden_name, "services/common/codec.py", ""),
        (rules.excess_lines, "mqworker/log.py", "x = 1\n" * 501),
        (rules.excess_lines, "mqworker/store/__init__.py", "x = 1\n" * 81),
        (rules.missing_docstrings, "mqworker/log.py", "x = 1"),
        (rules.missing_docstrings, "mqworker/log.py", '"""Log."""\ndef f(): ...'),
        (rules.missing_docstrings, "mqworker/log.py", '"""Log."""\nasync def f(): ...'),
        (rules.missing_docstrings, "mqworker/log.py", '"""Log."""\nclass C: ...'),
        (
            rules.missing_docstrings,
            "mqworker/log.py",
            '"""Log."""\nclass C:\n    """C."""\n    def f(self): ...',
        ),
        (rules.missing_docstrings, "mqworker/log.py", '"""Log."""\nif X:\n    def f(): ...'),
        (rules.missing_docstrings, "mqworker/_inside.py", "x = 1"),
        (rules.forbidden_calls, "mqworker/log.py", "eval('1')"),
        (rules.forbidden_calls, "mqworker/log.py", "def f():\n    exec('1')"),
        (rules.forbidden_calls, "mqworker/log.py", "import os\nos.system('ls')"),
        (rules.forbidden_calls, "mqworker/log.py", "from os import system"),
        (rules.forbidden_calls, "mqworker/log.py", "import subprocess\nsubprocess.run('ls', shell=True)"),
        (rules.forbidden_calls, "mqworker/log.py", "import subprocess\nsubprocess.run('ls', shell=x)"),
    ],
)
def test_a_rule_bites(check: Check, path: str, text: str) -> None:
    assert check(Module(path, text))


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (rules.missing_docstrings, "mqworker/_inside.py", '"""Inside."""\ndef f(): ...'),
        (rules.missing_docstrings, "mqworker/log.py", '"""Log."""\ndef _f(): ...'),
        (rules.missing_docstrings, "mqworker/log.py", '"""Log."""\n@typing.overload\ndef f(): ...'),
        (rules.forbidden_calls, "mqworker/log.py", "client.eval('return 1', 0)"),
        (rules.forbidden_calls, "mqworker/log.py", "run('ls', shell=False)"),
    ],
)
def test_a_rule_lets_pass_what_is_allowed(check: Check, path: str, text: str) -> None:
    assert check(Module(path, text)) == []
