"""Workflows from outside: their members, where each of them is, in slices without arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mqworker import App, chain, chord, group
from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.operate.system import System
from mqworker.operate.workflows import MOST_NODES, read_workflow, read_workflows, workflow_summary
from mqworker.tasks.task import Task
from mqworker_services.web.graph import draw
from tests.support.command_line import CommandLine
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer


@pytest.fixture
def app(system: System) -> Iterator[App]:
    made = App("shop", settings=system.settings)

    @made.task(name="shop.load", retry=0)
    def load(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return number

    @made.task(name="shop.total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    yield made
    made.close()


def task(app: App, name: str) -> Task[..., Any]:
    return Task(app.registry.named(name), app.connections, app.hooks)


def test_members_are_shown_with_their_states_as_they_go_on(app: App, system: System) -> None:
    load, total = task(app, "shop.load"), task(app, "shop.total")
    job = chord(group(load.s(1), load.s(2)), total.s()).enqueue()

    planned = read_workflow(system, job.id)
    HandBroker(app).round()
    waiting = read_workflow(system, job.id)
    worker, broker = HandWorker(app), HandBroker(app)
    while job.status() == "running":
        worker.run_all()
        broker.round()
    done = read_workflow(system, job.id)

    assert planned.state == "running"
    assert planned.counts == {"planned": 3}
    assert waiting.counts == {"waiting": 2, "planned": 1}
    assert (done.state, done.counts) == ("succeeded", {"succeeded": 3})
    assert [node.is_join for node in done.nodes] == [False, False, True, False]
    assert done.nodes[2].inputs == (0, 1)
    assert done.kept_ms is not None


def test_a_failed_member_is_named(app: App, system: System) -> None:
    load, total = task(app, "shop.load"), task(app, "shop.total")
    job = chain(load.s(-1), total.si([1])).enqueue()
    worker, broker = HandWorker(app), HandBroker(app)
    broker.round()
    worker.run_all()
    broker.round()

    found = read_workflow(system, job.id)

    assert (found.state, found.failed_node) == ("failed", 0)
    assert found.counts == {"failed": 1, "planned": 1}


def test_of_a_very_large_workflow_the_first_nodes_are_looked_at(app: App, system: System) -> None:
    job = group(task(app, "shop.load").s(number) for number in range(MOST_NODES + 50)).enqueue()

    found = read_workflow(system, job.id)

    assert (len(found.nodes), found.is_whole) == (MOST_NODES, False)
    assert "only the first are looked at" in workflow_summary(found)
    assert len(draw(found.nodes).boxes) == 1


def test_a_drawing_puts_what_follows_to_the_right_and_many_alike_into_one_box(
    app: App, system: System
) -> None:
    load, total = task(app, "shop.load"), task(app, "shop.total")
    job = chord(group(chain(load.s(each), load.s()) for each in range(40)), total.s()).enqueue()

    drawing = draw(read_workflow(system, job.id).nodes)

    assert [(box.label, box.count) for box in drawing.boxes] == [
        ("shop.load", 40),
        ("shop.load", 40),
        ("", 0),
        ("shop.total", 1),
    ]
    assert [box.x for box in drawing.boxes] == sorted(box.x for box in drawing.boxes)
    assert len(drawing.lines) == 3
    assert drawing.height < 200


def test_the_newest_workflows_are_listed_each_once(app: App, system: System, server: RealServer) -> None:
    jobs = [group(task(app, "shop.load").s(1)).enqueue() for _ in range(3)]
    with server.client() as client:
        client.lpush("mqw:workflows", jobs[0].id, "gone", b"\xff<script>")

    found = read_workflows(system)

    assert [each.id for each in found] == [jobs[0].id, jobs[2].id, jobs[1].id]
    assert {each.state for each in found} == {"running"}


def test_the_commands_show_a_workflow_also_by_job_show(app: App, server: RealServer) -> None:
    load, total = task(app, "shop.load"), task(app, "shop.total")
    job = chord(group(load.s(1), load.s(2)), total.s()).enqueue()
    line = CommandLine(server)

    shown, by_job = line.type("workflow", "show", job.id), line.type("job", "show", job.id)
    as_json = json.loads(line.type("workflow", "show", job.id, "--json").output)
    listed, missing = line.type("workflow", "list"), line.type("workflow", "show", "nobody")
    line.store.close()

    assert "3 members: 3 planned" in shown.output
    assert by_job.output == shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    assert as_json["counts"] == {"planned": 3}
    assert job.id in listed.output
    assert (missing.exit_code, "no workflow nobody" in missing.output) == (1, True)


def test_an_unknown_workflow_is_told(system: System) -> None:
    with pytest.raises(MqworkerError, match="no workflow"):
        read_workflow(system, "nobody")
    with pytest.raises(InvalidArgument):
        read_workflow(system, "<script>")
