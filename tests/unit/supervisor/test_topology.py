"""The literal list of children: its order, its pipes, and whose turn it is."""

from mqworker.supervisor.child_plan import ChildPlan, Role
from mqworker.supervisor.children import Children, State
from mqworker.supervisor.topology import SERVER_KEEPER, node_topology


def test_children_start_in_the_order_of_the_design() -> None:
    steps = [[plan.name for plan in step] for step in node_topology(workers=3, gateways=["skmq", "gomq"])]

    assert steps == [
        ["broker"],
        ["heartbeat_reaper", "recovery_scanner", "rate_limiter"],
        ["dispatcher"],
        ["worker:0", "worker:1", "worker:2"],
        ["gateway:skmq", "gateway:gomq"],
    ]


def test_the_dispatcher_has_a_pipe_to_each_worker_and_to_the_rate_limiter() -> None:
    pipes = {(plan.name, peer) for plan in _plans() for peer in plan.peers}

    assert pipes == {
        ("dispatcher", "rate_limiter"),
        ("worker:0", "dispatcher"),
        ("worker:1", "dispatcher"),
    }


def test_every_peer_is_a_child_that_starts_before() -> None:
    names: list[str] = []
    for plan in _plans():
        assert set(plan.peers) <= set(names)
        names.append(plan.name)

    assert len(names) == len(set(names))


def test_every_start_is_a_function_that_a_spawned_process_can_find() -> None:
    for plan in [SERVER_KEEPER, *_plans()]:
        assert plan.start.__qualname__ == "main"
        assert plan.name.partition(":")[0] in plan.start.__module__.split(".")


def test_nobody_starts_before_those_of_the_step_before_are_ready() -> None:
    children = Children(node_topology(workers=1))
    assert _due(children) == ["broker"]

    _be_ready(children, "broker", "heartbeat_reaper", "recovery_scanner")
    assert _due(children) == ["rate_limiter"]

    _be_ready(children, "rate_limiter")
    assert _due(children) == ["dispatcher"]

    _be_ready(children, "dispatcher")
    assert _due(children) == ["worker:0"]


def test_a_dead_child_waits_for_its_time_and_for_nobody_else() -> None:
    children = Children(node_topology(workers=1))
    _be_ready(children, *(record.name for record in children))
    for name in ("broker", "recovery_scanner"):
        record = children.get(name)
        assert record is not None
        record.state, record.restart_at_ms = State.WAITING, 100

    assert _due(children, now_ms=99) == []
    assert _due(children, now_ms=100) == ["broker", "recovery_scanner"]


def test_a_worker_waits_for_its_dispatcher() -> None:
    children = Children(node_topology(workers=1))
    _be_ready(children, *(record.name for record in children))
    for name in ("dispatcher", "worker:0"):
        record = children.get(name)
        assert record is not None
        record.state = State.WAITING

    assert _due(children) == ["dispatcher"]


def _plans() -> list[ChildPlan]:
    return [plan for step in node_topology(workers=2) for plan in step]


def _be_ready(children: Children, *names: str) -> None:
    for record in children:
        if record.name in names:
            record.state, record.has_been_ready = State.LIVE, True


def _due(children: Children, now_ms: int = 0) -> list[str]:
    return [record.name for record in children if children.may_start(record, now_ms)]


def test_exactly_one_child_has_each_of_the_special_roles() -> None:
    roles = [plan.role for plan in _plans()]

    assert [roles.count(role) for role in (Role.DISPATCHER, Role.REAPER, Role.SERVER)] == [1, 1, 0]
