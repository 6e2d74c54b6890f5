"""D5: the server is full. Publishing is refused with a clear error; what is there is worked off."""

from __future__ import annotations

import pytest

from mqworker.errors import StoreFull
from tests.drills.conftest import Report, Sized
from tests.drills.scene import Scene
from tests.support.real_server import RealServer

DEADLINE_S = 60.0


def test_d5_a_full_server_is_drained_and_takes_messages_again(
    scene: Scene, server: RealServer, sized: Sized, report: Report
) -> None:
    count = sized(1_500, 6_000)
    node = scene.add_node()
    node.wait_complete()
    with server.client() as client:
        scene.publish("hold", 2, 2.5)
        scene.wait_executed(2)
        scene.publish("work", count)
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        refused = 0
        for _ in range(20):
            with pytest.raises(StoreFull):
                scene.publish("work", 10)
            refused += 1
        scene.wait_drained(DEADLINE_S)
        restarts = {child["name"]: child["restarts"] for child in node.snapshot()["children"]}
        client.config_set("maxmemory", 0)
    scene.publish("work", 100)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(f"{account.summary()}; publishing refused {refused} times, restarts {sum(restarts.values())}")
    account.check()
    assert account.duplicates == 0  # the leases of running tasks were extended all the time
    assert max(restarts.values()) == 0, restarts
    assert len(account.published) == count + 2 + 100
    assert node.stop() == 0
