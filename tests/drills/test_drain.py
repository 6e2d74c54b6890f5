"""D8: TERM. What runs is finished or released at once; nothing waits for a lease to end."""

from __future__ import annotations

import signal
import time

import pytest

from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.scene import Scene
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

DRAIN_S = 2.0
# On top of the grace: the end of a dozen processes on a busy machine.
SLACK_S = 4.0


def test_d8_short_tasks_are_finished_and_the_rest_waits_in_line(
    scene: Scene, sized: Sized, report: Report
) -> None:
    rounds = sized(1, 5)
    longest_s = 0.0
    for _ in range(rounds):
        node = scene.add_node(settings={"drain_s": DRAIN_S})
        node.wait_complete()
        before = scene.executed()
        scene.publish("hold", 2, 0.3)
        scene.publish("work", 1_000)
        wait_until(lambda before=before: scene.executed() > before + 10, "it is at work")
        began = time.monotonic()
        assert node.stop() == 0
        longest_s = max(longest_s, time.monotonic() - began)
        assert scene.counts().leased == 0
    waiting = scene.counts().waiting
    node = scene.add_node()
    scene.wait_drained()

    account = scene.account()
    report(f"{account.summary()}; stopped within {longest_s:.2f} s, {waiting} were left in line")
    account.check()
    assert account.duplicates == 0  # nothing that had begun was given up
    assert longest_s < DRAIN_S + SLACK_S
    assert waiting > 0
    assert node.stop() == 0


@pytest.mark.parametrize("terms", [1, 2], ids=["one_term", "two_terms"])
def test_d8_long_tasks_are_released_at_once_and_uncounted(scene: Scene, terms: int, report: Report) -> None:
    node = scene.add_node(settings={"drain_s": DRAIN_S if terms == 1 else 60.0}, workers=4)
    node.wait_complete()
    scene.publish("hold", 8, 30.0)
    scene.wait_executed(4)
    began = time.monotonic()
    node.process.send_signal(signal.SIGTERM)
    if terms == 2:
        wait_until(lambda: node.logged("node_draining"), "the drain began")
        node.process.send_signal(signal.SIGTERM)
    exit_code = node.wait_exit()
    took_s = time.monotonic() - began

    counts, account = scene.counts(), scene.account()
    report(f"{account.summary()}; took {took_s:.2f} s, {counts.ready} back in line")
    assert exit_code == 0
    assert took_s < DRAIN_S + SLACK_S
    assert (counts.ready, counts.leased, counts.dead) == (8, 0, 0)
    assert account.ending_counts["crashed"] == 0


def test_d8_term_during_the_start_ends_it(scene: Scene, sized: Sized, report: Report) -> None:
    rounds, exits = sized(3, 8), []
    for number in range(rounds):
        node = scene.add_node()
        if number:  # the first as early as possible
            wait_until(lambda node=node: node.logged("node_starting"), "it begins to start")
            time.sleep(0.05 * number)
        else:
            wait_until(lambda node=node: node.logged("node_starting"), "its handlers are there")
        exits.append(node.stop())
        assert not node.descendants()
    report(f"{rounds} starts interrupted, exit codes {exits}")
    assert exits == [0] * rounds


def test_d8_term_while_the_server_is_down_ends_in_time_and_loses_nothing(
    make_scene: MakeScene, report: Report
) -> None:
    with RealServer(aof="always") as server:
        scene = make_scene(server.url)
        node = scene.add_node(settings={"drain_s": DRAIN_S})
        node.wait_complete()
        scene.publish("hold", 2, 0.2)
        scene.publish("work", 500)
        wait_until(lambda: scene.executed() > 10, "it is at work")
        server.kill()
        scene.ledger.note("R", 1)
        began = time.monotonic()
        exit_code = node.stop()
        took_s = time.monotonic() - began
        # Nobody could say what became of the last batch: whoever ran it is as good as killed.
        for pid in account_pids(scene):
            scene.ledger.note("S", pid, "worker")
        server.start()
        again = scene.add_node()
        scene.wait_drained()

        account = scene.account()
        report(f"{account.summary()}; exit code {exit_code} after {took_s:.2f} s")
        account.check()
        assert took_s < DRAIN_S + SLACK_S
        assert exit_code == 1  # something was not settled, and says so
        assert again.stop() == 0
        scene.close()


def account_pids(scene: Scene) -> set[int]:
    """Processes that ran something so far."""
    from tests.drills.ledger import Account  # noqa: PLC0415
    from tests.support.ledger import read_ledger  # noqa: PLC0415

    return {run.pid for run in Account(read_ledger(scene.ledger_folder)).executions}
