"""When everything is healthy, degraded or down, and with which words."""

from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from mqworker.model.throughput import Throughput
from mqworker.model.verdict import Health, Verdict, judge
from mqworker.model.view import (
    ChildView,
    ConsumerView,
    NodeView,
    ParkedView,
    QueueView,
    ServerView,
    SystemView,
)
from mqworker.model.waits import WaitView

Fact: TypeAlias = Any
"""A field of ChildView: its type depends on which."""

SERVER = ServerView("Valkey", "9.1.0", used_bytes=10, limit_bytes=100, is_append_only=True)
DISPATCHER = ChildView("dispatcher", "dispatcher", "live", silent_ms=10, facts={"queues": ["mail"]})
NODE = NodeView("web-1", children=(DISPATCHER,))
MAIL = QueueView("mail", ready=10, oldest_ms=100)


def a_view(
    *queues: QueueView, nodes: tuple[NodeView, ...] = (NODE,), server: ServerView = SERVER
) -> SystemView:
    return SystemView(1_700_000_000_000, "mqw", server, nodes, queues)


def a_node(**child: Fact) -> NodeView:
    return NodeView(
        "web-1",
        children=(DISPATCHER, ChildView(**({"name": "broker", "role": "actor", "state": "live"} | child))),
    )


def test_a_node_that_beats_and_queues_that_move_are_healthy() -> None:
    verdict = judge(a_view(MAIL, QueueView("idle")))

    assert (verdict.health, verdict.text, verdict.health.exit_code) == (Health.HEALTHY, "healthy", 0)


def test_no_node_is_down_and_tells_what_waits() -> None:
    verdict = judge(a_view(MAIL, nodes=()))

    assert verdict.health.exit_code == 2
    assert verdict.text == "down: no node beats, nothing runs; start `mqworker run`; 10 messages wait"


@pytest.mark.parametrize(
    ("child", "words"),
    [
        ({"silent_ms": 6_000}, "broker of node web-1 makes no progress since 6 s"),
        (
            {"state": "waiting", "restarts": 4, "last_exit": "SIGKILL"},
            "does not stay up, 4 restarts: SIGKILL",
        ),
        ({"state": "waiting", "last_exit": "exit code 1"}, "broker of node web-1 is down: exit code 1"),
        ({"state": "parked"}, "is down"),
        (
            {
                "state": "parked",
                "restarts": 6,
                "retry_in_ms": 5_000,
                "last_exit": "does not answer (SIGABRT)",
            },
            "is down, parked after 6 restarts, next try in 5 s: does not answer (SIGABRT)",
        ),
        ({"facts": {"is_listening": False}}, "does not listen"),
        ({"facts": {"is_store_up": False}}, "cannot reach the server"),
    ],
)
def test_a_child_in_trouble_degrades(child: dict[str, Any], words: str) -> None:
    verdict = judge(a_view(nodes=(a_node(**child),)))

    assert verdict.health is Health.DEGRADED
    assert words in verdict.text


@pytest.mark.parametrize(
    "child",
    [
        {"state": "starting"},
        {"restarts": 9, "last_exit": "SIGKILL", "silent_ms": 20},
        {"role": "worker", "name": "worker:1", "silent_ms": 3_600_000},
    ],
)
def test_starting_a_past_restart_and_a_long_task_are_no_trouble(child: dict[str, Any]) -> None:
    assert judge(a_view(nodes=(a_node(**child),))).health is Health.HEALTHY


def test_a_node_that_was_not_heard_degrades() -> None:
    assert "was last heard 7 s ago" in judge(a_view(nodes=(replace(NODE, age_ms=7_000),))).text


def test_draining_degrades_only_when_nobody_else_works() -> None:
    draining = replace(NODE, name="web-2", is_draining=True)

    assert judge(a_view(nodes=(NODE, draining))).health is Health.HEALTHY
    assert "every node is draining" in judge(a_view(nodes=(draining,))).text


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (QueueView("lost", ready=3, oldest_ms=9_000), "queue lost has 3 ready and nobody consumes it"),
        (replace(MAIL, oldest_ms=400_000), "queue mail is late: its front message is 6 min old"),
        (replace(MAIL, throughput=Throughput(0, 1, 7, 10_000)), "queue mail buried 7 in the last 10 s"),
        (replace(MAIL, limit=10), "queue mail is full: 10 of 10"),
        (
            replace(MAIL, consumers=(ConsumerView("web-0.ab.1", 20_000, 3),)),
            "consumer web-0.ab.1 is silent since 20 s and holds 3",
        ),
    ],
)
def test_a_queue_in_trouble_degrades(queue: QueueView, words: str) -> None:
    verdict = judge(a_view(queue))

    assert verdict.text == f"degraded: {words}"


@pytest.mark.parametrize(
    "queue",
    [
        QueueView("lost", ready=3, oldest_ms=400_000, is_paused=True),
        QueueView("new", ready=3, oldest_ms=100),
        QueueView("delayed", delayed=3),
        QueueView("outside", ready=3, oldest_ms=9_000, consumers=(ConsumerView("php-1", 500, 1),)),
        replace(MAIL, oldest_ms=400_000, throughput=Throughput(0, 10, 0, 10_000)),
    ],
    ids=["paused", "just enqueued", "delayed", "consumed from outside", "drained in a second"],
)
def test_a_queue_that_waits_on_purpose_or_not_for_long_is_no_trouble(queue: QueueView) -> None:
    assert judge(a_view(queue)).health is Health.HEALTHY


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (replace(SERVER, used_bytes=91), "the server's memory is 91% full"),
        (replace(SERVER, troubles=("the server's last save to disk failed",)), "last save to disk failed"),
    ],
)
def test_a_server_in_trouble_degrades(server: ServerView, words: str) -> None:
    assert words in judge(a_view(server=server)).text


def test_all_reasons_are_told_those_of_the_server_first() -> None:
    verdict = judge(
        a_view(
            replace(MAIL, limit=10), server=replace(SERVER, used_bytes=95), nodes=(a_node(state="parked"),)
        )
    )

    assert [reason.split()[0] for reason in verdict.reasons] == ["the", "broker", "queue"]


STILL = Throughput(in_per_s=0.0, out_per_s=0.0, buried=0, span_ms=10_000)
MOVING = replace(STILL, out_per_s=3.0)
WAITING = replace(MAIL, ready=87_210, oldest_ms=25_000, throughput=STILL)


def a_node_with_workers(*running: str, **facts: Fact) -> NodeView:
    dispatcher = replace(DISPATCHER, facts={"queues": ["mail"], "busy": list(running), **facts})
    workers = [ChildView(f"worker:{index}", "worker", "live", silent_ms=10) for index in range(2)]
    return NodeView("web-1", children=(dispatcher, *workers))


def test_a_queue_that_waits_while_nothing_goes_out_and_workers_are_idle_is_not_healthy() -> None:
    verdict = judge(a_view(WAITING, nodes=(a_node_with_workers(),)))

    assert verdict.text == (
        "degraded: queue mail has 87,210 ready and nothing went out for 10 s, "
        "though worker:0 of node web-1 and 1 more run nothing"
    )


@pytest.mark.parametrize(
    ("queue", "running"),
    [
        (WAITING, ["worker:0", "worker:1"]),  # all have long tasks
        (replace(WAITING, oldest_ms=400), []),  # it came a moment ago
        (replace(WAITING, throughput=replace(STILL, span_ms=600)), []),
        (replace(WAITING, throughput=replace(STILL, out_per_s=0.1)), []),
        (replace(WAITING, is_paused=True), []),
        (replace(WAITING, ready=0), []),
    ],
)
def test_no_standstill_is_seen_where_none_is(queue: QueueView, running: list[str]) -> None:
    assert judge(a_view(queue, nodes=(a_node_with_workers(*running),))).health is Health.HEALTHY


def test_a_worker_that_holds_deliveries_and_does_not_answer_is_named() -> None:
    node = a_node_with_workers(workers={"worker:0": 19}, unanswered_ms={"worker:0": 4_000, "worker:1": 900})

    assert judge(a_view(nodes=(node,))).reasons == (
        "worker:0 of node web-1 holds 19, runs nothing and does not answer since 4 s",
    )


def test_a_queue_of_another_model_in_trouble_degrades() -> None:
    models = {"orders": {"model": "gq on SQL", "held": 0, "trouble": "the database did not answer"}}
    node = NodeView("web-1", children=(replace(DISPATCHER, facts={"queues": ["orders"], "models": models}),))

    verdict = judge(a_view(nodes=(node,)))

    assert verdict.health is Health.DEGRADED
    assert verdict.reasons == ("queue orders is in trouble on node web-1: the database did not answer",)


def test_what_nobody_can_run_degrades_and_is_named() -> None:
    parked = (ParkedView("shop.pay", 3, is_unknown=True), ParkedView("shop.mail", 1, is_unknown=False))

    verdict = judge(a_view(QueueView("mail", delayed=4, parked=parked)))

    assert verdict.reasons == (
        "queue mail: 3 messages wait for task shop.pay, which no node knows",
        "queue mail: 1 message waits for task shop.mail, whose signature the calls do not fit",
    )


def test_a_server_that_keeps_nothing_is_remarked_and_still_healthy() -> None:
    verdict = judge(a_view(server=replace(SERVER, is_append_only=False)))

    assert verdict.health is Health.HEALTHY
    assert "appendonly no" in verdict.remarks[0]


def test_a_cluster_of_which_a_part_is_away_is_degraded_and_not_down() -> None:
    view = replace(
        a_view(nodes=(), server=replace(SERVER, troubles=("a part of the cluster is away",))), is_partial=True
    )

    assert judge(view).text == "degraded: a part of the cluster is away"


@pytest.mark.parametrize(
    ("state", "queue", "words"),
    [
        ("ready", replace(MAIL, throughput=STILL), "which nobody runs"),
        ("ready", replace(MAIL, throughput=STILL, is_paused=True), "and the queue is paused"),
        ("further", replace(MAIL, throughput=STILL), "which nobody runs"),
        ("ready", replace(MAIL, throughput=MOVING), None),
        ("delayed", MAIL, None),
        ("delayed", replace(MAIL, parked=(ParkedView("send", 1, is_unknown=True),)), "which is put off"),
        ("absent", replace(MAIL, throughput=STILL), None),
    ],
)
def test_a_task_that_waits_for_what_cannot_run_is_named(
    state: str, queue: QueueView, words: str | None
) -> None:
    wait = WaitView("web-1", "worker:0", "parent", "id-1", "mail", "id-2", 7_000, state)

    reasons = judge(replace(a_view(queue), long_waits=(wait,))).reasons

    found = [
        reason for reason in reasons if reason.startswith("parent id-1 on worker:0 of node web-1 waits 7 s")
    ]
    assert [words in reason for reason in found] == ([] if words is None else [True])


@pytest.mark.parametrize(
    ("by_ms", "words"),
    [
        (3_600_000, "set forward by 60 min, 20 s ago: leases that end by time"),
        (-5_000, "set back by 5 s, 20 s ago: leases that end by time"),
    ],
)
def test_that_the_servers_clock_was_set_is_said_while_it_matters(by_ms: int, words: str) -> None:
    def verdict_after(ago_ms: object) -> Verdict:
        node = a_node(facts={"server_clock_step": {"by_ms": by_ms, "ago_ms": ago_ms}})
        return judge(a_view(MAIL, nodes=(node, replace(node, name="web-2"))))

    (remark,) = verdict_after(20_000).remarks
    assert words in remark
    assert verdict_after(20_000).health is Health.HEALTHY
    assert verdict_after(600_001).remarks == ()
    assert verdict_after("soon").remarks == ()
