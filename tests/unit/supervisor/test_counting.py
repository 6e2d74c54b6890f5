"""What the supervisor keeps of a child beyond the life of its processes: causes, totals, figures."""

from __future__ import annotations

import pytest

from mqworker.model.figures import Figures
from mqworker.supervisor.child_plan import ChildPlan, Role
from mqworker.supervisor.children import ChildRecord, Children, State
from mqworker.supervisor.plain_reasons import NOT_ANSWERING, cause_of
from mqworker.supervisor.server_keeper import main
from mqworker.supervisor.topology import MONITOR, node_topology


@pytest.mark.parametrize(
    ("code", "signal_name", "kill_reason", "cause"),
    [
        (0, None, None, "retired"),
        (1, None, None, "failed"),
        (69, None, None, "unavailable"),
        (78, None, None, "configuration"),
        (None, "SIGKILL", None, "killed"),
        (None, "SIGSEGV", None, "crashed"),
        (None, "signal 34", None, "crashed"),
        (None, "SIGKILL", "hard time-out", "stopped"),
        (None, "SIGABRT", NOT_ANSWERING, "silent"),
        (3, None, "hard time-out", "failed"),
    ],
)
def test_every_ending_has_a_cause_of_one_word(
    code: int | None, signal_name: str | None, kill_reason: str | None, cause: str
) -> None:
    assert cause_of(code, signal_name, kill_reason) == cause


def test_totals_go_on_through_restarts_and_other_facts_do_not() -> None:
    record = ChildRecord(ChildPlan("dispatcher", Role.DISPATCHER, main), 0)
    record.begin_anew()
    record.note(1, {"settled": 5, "in_flight": 3})
    record.cause = "killed"
    record.begin_anew()
    assert record.totals == {"settled": 5}

    record.note(1, {"settled": 2, "lost_leases": 1})

    assert record.totals == {"settled": 7, "lost_leases": 1}
    assert dict(record.restarts_by_cause) == {"killed": 1}


def test_a_total_of_another_type_is_nobodys_count() -> None:
    record = ChildRecord(ChildPlan("gateway:skmq", Role.GATEWAY, main), 0)

    record.note(1, {"in": "many", "out": None, "refused": 2})

    assert record.totals == {"refused": 2}


def test_figures_are_kept_apart_from_the_facts_and_through_restarts() -> None:
    counted = Figures()
    counted.note("shop.send", "mail", 1.0, 1.0, "succeeded")
    record = ChildRecord(ChildPlan("dispatcher", Role.DISPATCHER, main), 0)

    for _ in range(3):
        record.note(1, {"settled": 1, "figures": counted.snapshot()})
        record.begin_anew()

    assert "figures" not in record.facts
    assert record.carried_figures.by_task[("mail", "shop.send")].succeeded == 3


def test_a_node_is_complete_without_its_monitor() -> None:
    children = Children(((MONITOR,), *node_topology(workers=1)))
    assert [record.name for record in children if children.may_start(record, 0)] == ["monitor", "broker"]

    for record in children:
        record.state = State.PARKED if record.role is Role.MONITOR else State.LIVE

    assert children.is_complete
