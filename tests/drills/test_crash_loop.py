"""D10: a configuration error ends a first start; who dies again and again is parked, the rest goes on."""

from __future__ import annotations

import signal
import time

import pytest

from tests.drills.conftest import MakeScene, Report
from tests.drills.scene import Scene
from tests.support.real_server import RealServer

EXIT_CONFIGURATION = 78
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
def test_d10_an_actor_that_dies_again_and_again_is_parked_and_the_node_goes_on(
    make_scene: MakeScene, report: Report, name: str
) -> None:
    with RealServer() as server:
        scene = make_scene(server.url)
        node = scene.add_node()
        node.wait_complete()
        began, kills = time.monotonic(), 0
        while node.child(name).get("state") != "parked" and time.monotonic() < began + DEADLINE_S:
            kills += node.kill(name, signal.SIGSEGV)  # a SIGKILL of the dispatcher is not its own fault
            time.sleep(0.02)
        parked = node.child(name)
        others = {other: pid for other, pid in node.live_children().items() if other != name}

        scene.publish("work", 200)
        node.wait_complete()  # it is tried again, and nobody kills it any more
        scene.wait_drained()

        report(f"{name} killed {kills} times, parked for {parked['retry_in_ms']} ms, then all went on")
        assert parked["state"] == "parked"
        assert parked["restarts"] == 5  # five are forgiven within 30 s
        assert parked["last_exit"] == "SIGSEGV"
        assert others.items() <= node.live_children().items()
        assert node.logged("child_parked")[0]["child"] == name
        assert node.stop() == 0
        scene.account().check()
