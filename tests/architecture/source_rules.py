"""Source rules: what every module holds, and what none may hold."""

import ast
from collections.abc import Iterator

from tests.architecture.source_tree import Module

LONGEST_MODULE = 500
LONGEST_INIT = 80
FORBIDDEN_WORDS = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "builtins.eval", "builtins.exec", "os.system", "os.popen"}
NO_DOCSTRING_NEEDED = {"overload", "override", "setter", "deleter"}

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def forbidden_name(module: Module) -> list[str]:
    """A name that says nothing about what the module is for."""
    words = {word for part in module.parts for word in part.split("_")}
    return [f"{module.path}: {word} says nothing" for word in sorted(words & FORBIDDEN_WORDS)]


def excess_lines(module: Module) -> list[str]:
    """More lines than a reader keeps in mind."""
    lines = len(module.text.splitlines())
    limit = LONGEST_INIT if module.stem == "__init__" else LONGEST_MODULE
    return [f"{module.path}: {lines} lines, at most {limit}"] if lines > limit else []


def missing_docstrings(module: Module) -> list[str]:
    """Public names, and the module itself, that nobody explained."""
    missing = [] if ast.get_docstring(module.tree) else [f"{module.path}: the module"]
    if any(part.startswith("_") and not part.startswith("__") for part in module.parts):
        return missing
    return missing + [
        f"{module.path}:{node.lineno}: {node.name}"
        for node in _public_definitions(module.tree.body)
        if not ast.get_docstring(node)
    ]


def forbidden_calls(module: Module) -> list[str]:
    """Calls that run text as code, in Python or in a shell."""
    calls = [node for node in module.nodes if isinstance(node, ast.Call)]
    by_name = [(node.lineno, ast.unparse(node.func)) for node in calls]
    imported = [(line, name) for line, name in module.imports() if name in FORBIDDEN_CALLS]
    shells = [(node.lineno, "shell=True") for node in calls if any(_is_shell(word) for word in node.keywords)]
    found = [(line, name) for line, name in by_name if name in FORBIDDEN_CALLS] + imported + shells
    return [f"{module.path}:{line}: never {name}" for line, name in found]


def _is_shell(word: ast.keyword) -> bool:
    return word.arg == "shell" and not (isinstance(word.value, ast.Constant) and word.value.value is False)


def _public_definitions(body: list[ast.stmt]) -> Iterator[Documented]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _public_definitions(node.body)
        if not isinstance(node, Documented) or node.name.startswith("_") or _is_excused(node):
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _public_definitions(node.body)


def _is_excused(node: Documented) -> bool:
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & NO_DOCSTRING_NEEDED)
