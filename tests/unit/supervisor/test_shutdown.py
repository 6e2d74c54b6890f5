"""Who is told to stop when, and who is killed when."""

from __future__ import annotations

from typing import cast

from mqworker.actors.child_start import ChildStart
from mqworker.actors.mailbox import Mailbox
from mqworker.supervisor.child import Child
from mqworker.supervisor.child_plan import ChildPlan, Role
from mqworker.supervisor.children import ChildRecord, State
from mqworker.supervisor.shutdown import KillChild, Shutdown, TellToDrain

TOTAL_MS = 4_000


def test_the_dispatcher_is_told_first_and_only_once() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()

    assert shutdown.orders(children, 0) == [TellToDrain("dispatcher", 3_000)]
    assert shutdown.orders(children, 10) == []


def test_then_workers_then_actors_in_reverse_then_the_server() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()
    shutdown.orders(children, 0)

    _end(children, "dispatcher")
    assert shutdown.orders(children, 100) == [TellToDrain("worker:0", 3_400), TellToDrain("worker:1", 3_400)]
    _end(children, "worker:0", "worker:1")
    assert shutdown.orders(children, 200) == [
        TellToDrain("heartbeat_reaper", 3_800),
        TellToDrain("broker", 3_800),
    ]
    _end(children, "broker", "heartbeat_reaper")
    assert shutdown.orders(children, 300) == [TellToDrain("server_keeper", 5_000)]
    _end(children, "server_keeper")
    assert shutdown.orders(children, 400) == []


def test_busy_workers_are_killed_in_time_for_the_dispatcher_to_release_what_they_ran() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()
    shutdown.orders(children, 0)

    assert shutdown.orders(children, 3_099) == []
    assert shutdown.orders(children, 3_100) == [
        KillChild("worker:0", "drain"),
        KillChild("worker:1", "drain"),
    ]
    _end(children, "worker:0", "worker:1")
    assert shutdown.orders(children, 3_499) == []
    assert shutdown.orders(children, 3_500) == [KillChild("dispatcher", "did not end in time")]


def test_however_late_it_is_the_dispatcher_has_time_to_hear_of_the_workers_that_were_killed() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()
    shutdown.orders(children, 0)

    late_ms = 9_000  # the supervisor had no CPU since
    assert shutdown.orders(children, late_ms) == [
        KillChild("worker:0", "drain"),
        KillChild("worker:1", "drain"),
    ]
    _end(children, "worker:0", "worker:1")
    assert shutdown.orders(children, late_ms + 249) == []
    assert shutdown.orders(children, late_ms + 250) == [KillChild("dispatcher", "did not end in time")]


def test_however_late_it_is_nobody_is_killed_who_was_not_told_before() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()
    _end(children, "dispatcher", "worker:0", "worker:1")

    late_ms = 9_000
    assert {type(order) for order in shutdown.orders(children, late_ms)} == {TellToDrain}
    assert shutdown.orders(children, late_ms + 249) == []
    assert {type(order) for order in shutdown.orders(children, late_ms + 250)} == {KillChild}


def test_nobody_outlives_the_whole_time_but_the_server() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()
    _end(children, "dispatcher", "worker:0", "worker:1")
    shutdown.orders(children, 3_750)

    assert {order.name for order in shutdown.orders(children, TOTAL_MS)} == {"broker", "heartbeat_reaper"}


def test_a_worker_that_is_not_ready_is_not_waited_for() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()
    children[-1].state = State.STARTING

    assert KillChild("worker:1", "drain") in shutdown.orders(children, 0)


def test_the_second_signal_kills_workers_and_hurries_the_dispatcher() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()
    shutdown.orders(children, 0)

    shutdown.hurry(100)

    assert shutdown.orders(children, 100) == [
        KillChild("worker:0", "drain"),
        KillChild("worker:1", "drain"),
        TellToDrain("dispatcher", 0),
    ]
    assert KillChild("dispatcher", "did not end in time") in shutdown.orders(children, 600)


def test_the_third_signal_kills_everybody() -> None:
    shutdown, children = Shutdown(0, TOTAL_MS, 0), _children()

    shutdown.hurry(1)
    shutdown.hurry(2)

    assert {order.name for order in shutdown.orders(children, 2)} == {record.name for record in children}


def _children() -> list[ChildRecord]:
    roles = {
        "server_keeper": Role.SERVER,
        "broker": Role.ACTOR,
        "heartbeat_reaper": Role.REAPER,
        "dispatcher": Role.DISPATCHER,
        "worker:0": Role.WORKER,
        "worker:1": Role.WORKER,
    }
    # Only whether there is a process matters here.
    return [
        ChildRecord(ChildPlan(name, role, _never), step=0, state=State.LIVE, child=cast("Child", object()))
        for name, role in roles.items()
    ]


def _end(children: list[ChildRecord], *names: str) -> None:
    for record in children:
        if record.name in names:
            record.child, record.state = None, State.ENDED


def _never(control: Mailbox, start: ChildStart) -> int:
    raise NotImplementedError((control, start))
