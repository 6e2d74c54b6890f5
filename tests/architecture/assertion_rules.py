"""Assertion rules: which tests can fail, seen from their source alone.

A test asserts when it has an `assert`, a `pytest.raises` or the like, or calls a function that does: a helper
of its own module, or of a test module that this one imports. Methods are known by their names.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from tests.architecture.source_tree import Module

Function = ast.FunctionDef | ast.AsyncFunctionDef

ASSERTING_CALLS = {"raises", "warns", "deprecated_call", "fail", "assert_type", "run_state_machine_as_test"}
ASSERTING_PREFIXES = ("assert_", "check_", "expect_")


def tests_without_assertion(module: Module, module_by_name: Mapping[str, Module]) -> list[str]:
    """The tests of a module that assert nothing; `module_by_name` are all test modules by dotted name."""
    asserting = _asserting_names(module, module_by_name, depth=1)
    return [
        f"{module.path}::{function.name}"
        for function in _functions(module)
        if function.name.startswith("test_") and not _asserts(function, asserting)
    ]


def _asserting_names(module: Module, module_by_name: Mapping[str, Module], depth: int) -> set[str]:
    names: set[str] = set()
    if depth:
        for imported in _imported_test_modules(module, module_by_name):
            names |= _asserting_names(imported, module_by_name, depth - 1)
    while True:  # helpers that call helpers
        found = {
            function.name
            for function in _functions(module)
            if not function.name.startswith(("test_", "__")) and _asserts(function, names)
        }
        if found <= names:
            return names
        names |= found


def _imported_test_modules(module: Module, module_by_name: Mapping[str, Module]) -> Iterator[Module]:
    for _, name in module.imports():
        for dotted in (name, name.rpartition(".")[0]):
            if dotted in module_by_name:
                yield module_by_name[dotted]
                break


def _asserts(function: Function, asserting: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and (function.name.startswith("test_") or not _narrows(node)):
            return True
        if isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node):
            return True
        if isinstance(node, ast.Call):
            name = _called(node)
            if name in asserting | ASSERTING_CALLS or name.startswith(ASSERTING_PREFIXES):
                return True
    return False


def _narrows(node: ast.Assert) -> bool:
    """`assert x is not None` in a helper tells the type checker something, and proves nothing."""
    test = node.test
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


@cache
def _functions(module: Module) -> list[Function]:
    return [node for node in module.nodes if isinstance(node, Function)]
