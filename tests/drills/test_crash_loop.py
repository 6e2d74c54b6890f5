"""D10: what cannot be mended by a restart ends the node, with one sentence and the right code."""

from __future__ import annotations

import signal
import time

import pytest

from tests.drills.conftest import Report
from tests.drills.scene import Scene

EXIT_FAILED, EXIT_CONFIGURATION = 1, 78
DEADLINE_S = 60.0


def test_d10_an_app_that_does_not_import_is_a_configuration_error(scene: Scene, report: Report) -> None:
    node = scene.add_node(app="tests.drills.no_such_app:app")
    began = time.monotonic()

    exit_code = node.wait_exit()

    report(f"exit code {exit_code} after {time.monotonic() - began:.2f} s")
    assert exit_code == EXIT_CONFIGURATION
    assert "cannot be imported" in node.log_path.read_text()
    assert not node.descendants()


@pytest.mark.parametrize("name", ["broker", "dispatcher"])
def test_d10_an_actor_that_dies_again_and_again_is_given_up(scene: Scene, report: Report, name: str) -> None:
    node = scene.add_node()
    node.wait_complete()
    ends_at, kills = time.monotonic() + DEADLINE_S, 0
    while node.process.poll() is None and time.monotonic() < ends_at:
        kills += node.kill(name, signal.SIGSEGV)  # a SIGKILL of the dispatcher would not be its own fault
        time.sleep(0.02)

    exit_code = node.wait_exit()

    ends = [line for line in node.logged("child_ended") if line["child"] == name]
    report(f"{name} killed {kills} times, given up after {len(ends)} deaths with exit code {exit_code}")
    assert exit_code == EXIT_FAILED
    assert len(ends) == 6  # five are forgiven within 30 s
    assert "died 6 times within 30 s" in node.log_path.read_text()
    assert not node.descendants()
