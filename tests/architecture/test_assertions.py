"""Every test can fail: it asserts something, itself or through a helper; and the check bites."""

import pytest

from tests.architecture.assertion_rules import tests_without_assertion as without_assertion
from tests.architecture.source_tree import Module, modules

_GOMQ = "tests/services/gomq/test_gomq_bad_input.py"
_SURVIVES = "the fixture _gateway_survives asserts after each test of this module"

ALLOWED = {
    "tests/docs/test_code_blocks.py::test_what_a_page_shows_runs": (
        "the page is compared in another thread; what it found is raised here"
    ),
    f"{_GOMQ}::test_bytes_of_another_protocol_end_their_own_connection": _SURVIVES,
    f"{_GOMQ}::test_streams_that_are_reset_at_once_end_their_own_connection": _SURVIVES,
    "tests/unit/tasks/test_task_binding.py::test_a_call_that_fits_is_accepted": (
        "a call that does not fit raises; there is nothing to return"
    ),
    "tests/unit/test_log.py::test_a_closed_stream_never_raises": "the line is lost; there is nothing to read",
}
"""Tests that prove something by raising nothing, with the reason."""

HELPER = "def wait_until(condition):\n    assert condition()\n"
KNOWN = {"tests.support.deadline": Module("tests/support/deadline.py", HELPER)}


def test_every_test_asserts_something() -> None:
    tree = modules("tests")
    module_by_name = {".".join(module.parts): module for module in tree}

    found = {problem for module in tree for problem in without_assertion(module, module_by_name)}

    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "no longer needed"


@pytest.mark.parametrize(
    "text",
    [
        "def test_a(): run()",
        "async def test_a(): await run()",
        "class TestIt:\n    def test_a(self): self.run()",
        "def helper():\n    run()\ndef test_a(): helper()",
        "def helper(x):\n    assert x is not None\ndef test_a(): helper(1)",
        "from tests.support.deadline import DEADLINE_S\ndef test_a(): run(DEADLINE_S)",
    ],
)
def test_a_test_that_asserts_nothing_is_found(text: str) -> None:
    assert without_assertion(Module("tests/unit/test_x.py", text), KNOWN) == ["tests/unit/test_x.py::test_a"]


@pytest.mark.parametrize(
    "text",
    [
        "def test_a(): assert run()",
        "def test_a():\n    with pytest.raises(ValueError): run()",
        "def helper():\n    assert run()\ndef other():\n    helper()\ndef test_a(): other()",
        "class Stage:\n    def look(self):\n        assert run()\ndef test_a(stage): stage.look()",
        "from tests.support.deadline import wait_until\ndef test_a(): wait_until(run)",
        "def test_a(): mock.assert_called_once()",
        "def helper(): run()",
    ],
)
def test_a_test_that_asserts_somehow_passes(text: str) -> None:
    assert without_assertion(Module("tests/unit/test_x.py", text), KNOWN) == []
