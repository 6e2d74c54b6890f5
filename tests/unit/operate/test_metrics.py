"""Metrics as text: what Prometheus' parser makes of them, whatever the names and numbers are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.model.figures import MOST_TASKS, Figures
from mqworker.model.view import QueueView, ServerView, SystemView
from mqworker.operate.metrics.node import BOUNDS_S, node_families
from mqworker.operate.metrics.scale import MOST_WORKERS, ScaleQuestion, Work, workers_wanted
from mqworker.operate.metrics.system import MOST_QUEUES, system_families
from mqworker.operate.metrics.text import LONGEST_LABEL, family, page
from tests.support.monitored_node import parsed, value

SERVER = ServerView("Valkey", "9.0.0", 1_000, 0, is_append_only=True)


def snapshot(**facts: object) -> dict[str, Any]:
    return {
        "node": "shop-1",
        "app": "shop:app",
        "started_at_ms": 1_700_000_000_000,
        "draining": False,
        "children": [],
        **facts,
    }


def child(name: str, role: str = "actor", **facts: object) -> dict[str, Any]:
    usual = {"state": "live", "pid": None, "silent_ms": 5, "facts": {}, "totals": {}, "restarts_by_cause": {}}
    return {"name": name, "role": role, **usual, **facts}


@given(name=st.text(max_size=400), number=st.floats(allow_nan=False) | st.integers(-(2**70), 2**70))
def test_whatever_a_label_was_prometheus_reads_it(name: str, number: float) -> None:
    text = page(
        family("mqworker_test", "gauge", 'What "this" is:\na \\ test.', [("", {"task": name}, number)])
    )

    ((_, labels),) = parsed(text)
    assert len(dict(labels)["task"]) <= LONGEST_LABEL
    assert text.count("\n") == 4


def test_a_family_without_samples_is_left_out() -> None:
    assert page(family("mqworker_test", "gauge", "Nothing.", [])) == "# EOF\n"


def test_states_of_a_queue_add_up_to_its_messages() -> None:
    queue = QueueView("mail", ready=5, delayed=4, limited=3, leased=2, delivered=1, dead=7)

    values = parsed(page(system_families(SystemView(0, "mqw", SERVER, queues=(queue,)))))

    states = ("ready", "delayed", "limited", "held", "delivered", "dead")
    depths = [value(values, "mqworker_queue_messages", queue="mail", state=state) for state in states]
    assert depths == [5, 1, 3, 2, 1, 7]


def test_a_queue_that_cannot_be_read_tells_only_that() -> None:
    broken = QueueView("mail", trouble="WRONGTYPE")

    values = parsed(page(system_families(SystemView(0, "mqw", SERVER, queues=(broken,)))))

    assert value(values, "mqworker_queue_unreadable", queue="mail") == 1
    assert not [key for key in values if key[0] in {"mqworker_queue_messages", "mqworker_messages_total"}]


def test_queues_beyond_the_bound_are_told_together_and_none_is_lost() -> None:
    names = [f"q{number:05}" for number in range(MOST_QUEUES + 50)]
    queues = tuple(QueueView(name, ready=1, totals={"enqueued": 2}) for name in names)

    values = parsed(page(system_families(SystemView(0, "mqw", SERVER, queues=queues))))

    ready = {key: number for key, number in values.items() if key[0] == "mqworker_queue_messages"}
    assert sum(ready.values()) == len(names)
    assert value(values, "mqworker_queue_messages", queue="other", state="ready") == 50
    assert value(values, "mqworker_messages_total", queue="other", event="enqueued") == 100


def test_a_histogram_counts_each_run_in_every_bucket_that_it_fits() -> None:
    figures = Figures()
    for run_ms in (0.2, 3.0, 700.0, 4_000_000.0):
        figures.note("shop.send", "mail", 1.5, run_ms, "succeeded")

    values = parsed(page(node_families(snapshot(figures=figures.snapshot()))))

    labels = {"queue": "mail", "task": "shop.send"}
    bounds = ("0.001024", "0.004096", "0.524288", "1.048576", "1073.741824", "+Inf")
    buckets = [value(values, "mqworker_process_seconds_bucket", **labels, le=le) for le in bounds]
    assert buckets == [1, 2, 2, 3, 3, 4]
    assert value(values, "mqworker_process_seconds_count", **labels) == 4
    assert value(values, "mqworker_process_seconds_sum", **labels) == pytest.approx(4000.7032)
    assert value(values, "mqworker_wait_seconds_bucket", **labels, le="0.002048") == 4
    assert len(BOUNDS_S) == 21


def test_the_same_task_told_twice_is_added_up() -> None:
    before, now = Figures(), Figures()
    before.note("shop.send", "mail", 1.0, 1.0, "succeeded")
    now.note("shop.send", "mail", 1.0, 1.0, "buried")

    values = parsed(page(node_families(snapshot(figures=[*before.snapshot(), *now.snapshot()]))))

    assert value(values, "mqworker_process_seconds_count", queue="mail", task="shop.send") == 2


def test_tasks_beyond_the_bound_are_told_together_by_queue() -> None:
    figures = Figures()
    for number in range(MOST_TASKS):
        figures.note(f"shop.task{number}", "mail", 1.0, 1.0, "succeeded")
    for number in range(60):
        figures.note(f"shop.other{number}", "slow", 1.0, 1.0, "succeeded")

    values = parsed(page(node_families(snapshot(figures=figures.snapshot()))))

    tasks = {dict(key[1])["task"] for key in values if key[0] == "mqworker_process_seconds_count"}
    assert len(tasks) == MOST_TASKS + 1
    assert value(values, "mqworker_process_seconds_count", queue="slow", task="other") == 60


def test_workers_are_one_actor_and_everybody_else_is_named() -> None:
    children = [
        child("dispatcher", facts={"busy": ["worker:0"], "in_flight": 3}, totals={"settled": 9}),
        child("worker:0", "worker", restarts_by_cause={"killed": 2}),
        child("worker:1", "worker", restarts_by_cause={"killed": 1, "retired": 5}),
        child("worker:2", "worker", state="parked"),
        child("gateway:skmq", "gateway", totals={"in": 4, "refused": 1}, facts={"connections": 2}),
        child("monitor", "monitor", totals={"refused": 77}),
    ]

    values = parsed(page(node_families(snapshot(children=children))))

    assert value(values, "mqworker_actor_restarts_total", actor="worker", cause="killed") == 3
    assert value(values, "mqworker_actor_up", actor="worker") == 2
    states = ("busy", "idle", "parked")
    assert [value(values, "mqworker_workers", state=state) for state in states] == [1, 1, 1]
    assert value(values, "mqworker_deliveries_settled_total") == 9
    assert value(values, "mqworker_gateway_refused_total", gateway="skmq") == 1
    assert value(values, "mqworker_gateway_connections", gateway="skmq") == 2


def wanted(target_wait_s: float = 10.0, slots: int = 1, **work: float | None) -> int:
    usual: dict[str, Any] = {"ready": 0, "held": 0, "due_soon": 0, "in_per_s": 0.0, "run_s": 1.0}
    return workers_wanted(Work(**{**usual, **work}), ScaleQuestion("mail", target_wait_s, 30.0, slots))


def test_nothing_to_do_wants_nobody() -> None:
    assert wanted() == 0


def test_work_whose_run_time_nobody_knows_wants_one() -> None:
    assert wanted(ready=10_000, run_s=None) == 1


def test_what_waits_is_to_be_begun_within_the_target() -> None:
    assert wanted(ready=100) == 10
    assert wanted(ready=100, target_wait_s=1.0) == 100
    assert wanted(ready=100, slots=4) == 3


def test_what_keeps_coming_needs_as_many_as_it_takes_to_run_it() -> None:
    assert wanted(in_per_s=3.0, run_s=2.0) == 6
    assert wanted(ready=1, in_per_s=0.0, run_s=0.001) == 1


def test_what_runs_keeps_its_worker() -> None:
    assert wanted(held=1, run_s=0.0) == 1


@given(ready=st.integers(0, 10**15), run_s=st.floats(0, 10**9), in_per_s=st.floats(0, 10**9))
def test_no_work_wants_more_than_the_bound(ready: int, run_s: float, in_per_s: float) -> None:
    assert 0 <= wanted(ready=ready, run_s=run_s, in_per_s=in_per_s) <= MOST_WORKERS
