"""Leftovers: prose names no file that is not there, and no name is defined that nothing uses."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.architecture.source_tree import ROOT, Module, modules

OURS = ("mqworker", "services")
LOOKED_THROUGH = ("mqworker", "services", "tests", "docs", "examples", "benchmarks", "deploy")
KINDS = {".py", ".lua", ".md", ".html", ".js", ".toml", ".yml"}
FILE = re.compile(r"(?<![\w./*$-])[\w/]*\w\.(?:py|lua)\b")
WORD = re.compile(r"\w+")
OF_USERS = {"shop.py", "test_shop.py", "shop/tasks.py", "tasks.py", "name.py", "module.py"}
"""Files of the reader's, in examples."""
USED_BY_OTHERS = {
    "MqworkerConfig": "Django looks for it",
    "__dir__": "Python calls it",
    "RECLAIMED": "an event that only scripts write; the module lists all events",
    "REVIVED": "the same",
    "PURGED": "the same",
    "OPENED": "the same",
}


def _files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and not {"vendor", "generated", "node_modules"} & set(path.parts):
                yield path


def _named_files(text: str) -> Iterator[tuple[int, str]]:
    """Files that comments and docstrings name, with their lines."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith(("import ", "from ")):
            yield from ((number, name) for name in FILE.findall(line) if name not in OF_USERS)


def missing(text: str, paths: Sequence[str]) -> list[tuple[int, str]]:
    """Files that are named and are no file, nor the end of a path of one."""
    ends = {"/".join(parts[at:]) for parts in (path.split("/") for path in paths) for at in range(len(parts))}
    return [(number, name) for number, name in _named_files(text) if name not in ends]


def defined(module: Module) -> Iterator[tuple[int, str]]:
    """Names that a module defines at its top, and methods and properties of its classes; private ones too."""
    for node in ast.iter_child_nodes(module.tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield node.lineno, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not node.decorator_list:
                yield node.lineno, node.name
            case ast.ClassDef():
                yield node.lineno, node.name
                yield from _properties(node)


def _properties(owner: ast.ClassDef) -> Iterator[tuple[int, str]]:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and [ast.unparse(each) for each in node.decorator_list] == [
            "property"
        ]:
            yield node.lineno, node.name


def test_no_prose_names_a_file_that_is_not_there() -> None:
    paths = [path.relative_to(ROOT).as_posix() for path in _files(*LOOKED_THROUGH)]
    looked_at = [path for path in _files(*OURS) if path.suffix in {".py", ".lua"}]

    found = [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for path in looked_at
        for number, name in missing(path.read_text(encoding="utf-8"), paths)
    ]

    assert found == []


def test_no_name_is_defined_that_nothing_uses() -> None:
    texts = [path.read_text(encoding="utf-8") for path in _files(*LOOKED_THROUGH) if path != Path(__file__)]
    count = Counter(word for text in texts for word in WORD.findall(text))

    found = {
        name: f"{module.path}:{number}"
        for module in modules(*OURS)
        for number, name in defined(module)
        if count[name] == 1
    }

    assert {name: place for name, place in found.items() if name not in USED_BY_OTHERS} == {}
    assert USED_BY_OTHERS.keys() - found.keys() == set(), "no longer needed"


def test_both_checks_bite() -> None:
    assert missing('"""As in gone.py, and store/store.py."""', ["mqworker/store/store.py"]) == [
        (1, "gone.py")
    ]
    text = "A = 1\nclass B:\n    @property\n    def c(self): ...\ndef d(): ...\n@x\ndef e(): ...\n"
    assert list(defined(Module("mqworker/x.py", text))) == [(1, "A"), (2, "B"), (4, "c"), (5, "d")]
