"""Each action does what its preview says, once, and is written down."""

from __future__ import annotations

import shlex

import pytest

from mqworker.errors import InvalidArgument, MqworkerError, UnknownQueue
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Bury, Failure
from mqworker.operate.actions import ACTIONS, Request, act, command_of, preview
from mqworker.operate.audit import read_audit
from mqworker.operate.causes import read_causes
from mqworker.operate.system import System
from mqworker.queues.work.drop import drop
from tests.support.command_line import CommandLine
from tests.support.messages import a_message
from tests.support.real_server import RealServer


def bury(system: System, count: int, *, error: str = "ValueError", queue: str = "mail") -> list[MessageId]:
    work = system.open_queue(queue)
    work.enqueue(*[a_message(task=TaskName("shop.send")) for _ in range(count)])
    deliveries = work.claim(count)
    work.settle(*[Bury(each, "retries", Failure(error, "no")) for each in deliveries])
    return [each.id for each in deliveries]


def test_pause_and_resume_switch_the_queue_and_are_noted(system: System) -> None:
    system.open_queue("mail").enqueue(a_message())

    assert act(system, Request("pause", "mail"), "ann") == "queue mail is paused"
    assert system.open_queue("mail").counts().is_paused
    act(system, Request("resume", "mail"), "ann")

    assert not system.open_queue("mail").counts().is_paused
    assert [(noted.deed.who, noted.deed.action) for noted in read_audit(system)] == [
        ("ann", "resume"),
        ("ann", "pause"),
    ]


def test_a_waiting_job_is_cancelled_and_a_running_one_asked_to_stop(system: System) -> None:
    queue = system.open_queue("mail")
    first, second = a_message(), a_message()
    queue.enqueue(first)
    queue.claim(consumer="web.a.1")
    queue.enqueue(second)

    assert "asked to stop" in act(system, Request("cancel", "mail", first.id), "ann")
    assert "is cancelled" in act(system, Request("cancel", "mail", second.id), "ann")
    with pytest.raises(MqworkerError, match="nothing to cancel"):
        act(system, Request("cancel", "mail", second.id), "ann")
    assert queue.find(second.id).state == "cancelled"
    assert read_audit(system)[0].deed.outcome.startswith("failed: ")


def test_a_cause_is_retried_as_a_whole_and_no_other(system: System) -> None:
    bury(system, 7)
    others = bury(system, 3, error="KeyError")
    causes = {cause.error: cause for cause in read_causes(system).causes}
    request = Request("retry-cause", "mail", causes["ValueError"].id)

    assert preview(system, request).count == 7
    assert act(system, request, "ann") == "7 dead letters of queue mail back in line"

    counts = system.open_queue("mail").counts()
    assert (counts.ready, counts.dead) == (7, len(others))
    assert read_audit(system)[0].deed.count == 7


def test_a_cause_is_dropped_as_a_whole_and_counted_as_purged(system: System) -> None:
    bury(system, 700)
    bury(system, 500)
    (cause,) = read_causes(system).causes

    assert act(system, Request("drop-cause", "mail", cause.id), "ann").startswith("1,200 dead letters")

    counts = system.open_queue("mail").counts()
    assert (counts.dead, counts.totals["purged"]) == (0, 1_200)


def test_dropping_twice_drops_once(system: System) -> None:
    ids = bury(system, 2)
    queue = system.open_queue("mail")

    assert drop(queue, ids[:1], events_kept=100) == ids[:1]
    assert drop(queue, ids[:1], events_kept=100) == []
    assert [letter.id for letter in queue.dead_letters()] == ids[1:]


def test_looking_changes_nothing(system: System, server: RealServer) -> None:
    (dead,) = bury(system, 1)
    with server.client() as client:
        before = {key: client.dump(key) for key in client.scan_iter()}
        for action in ("pause", "resume", "retry", "drop"):
            preview(system, Request(action, "mail", dead))

        assert {key: client.dump(key) for key in client.scan_iter()} == before


@pytest.mark.parametrize("action", ["explode", "", "../pause"])
def test_an_unknown_action_is_refused_with_the_known_ones(system: System, action: str) -> None:
    with pytest.raises(InvalidArgument, match="pause, resume, cancel"):
        preview(system, Request(action, "mail"))


def test_an_action_on_a_queue_that_does_not_exist_makes_none(system: System) -> None:
    with pytest.raises(UnknownQueue):
        act(system, Request("pause", "nowhere"), "ann")

    assert system.queue_names() == []


@pytest.mark.parametrize("action", sorted(each for each in ACTIONS if not each.endswith("-schedule")))
def test_the_command_that_is_shown_does_the_same(system: System, server: RealServer, action: str) -> None:
    (dead,) = bury(system, 1)
    waiting = a_message()
    system.open_queue("mail").enqueue(waiting)
    (cause,) = read_causes(system).causes
    what = {"cancel": waiting.id, "retry": dead, "drop": dead}.get(action, cause.id)
    line = CommandLine(server)

    words = shlex.split(command_of(Request(action, "mail", what)))
    result = line.type(*words[1:], answer="y\n")
    line.store.close()

    assert result.exit_code == 0, result.output
    counts = system.open_queue("mail").counts()
    expected = {"pause": (1, 1), "resume": (1, 1), "cancel": (0, 1), "retry": (2, 0), "drop": (1, 0)}
    assert (counts.ready, counts.dead) == expected[action.removesuffix("-cause")]
    assert counts.is_paused == (action == "pause")


def test_commands_list_jobs_and_causes(system: System, server: RealServer) -> None:
    (dead,) = bury(system, 1)
    line = CommandLine(server)

    listed, grouped = line.type("job", "list", "state:dead"), line.type("dead", "causes")
    as_json = line.type("job", "list", "--json")
    line.store.close()

    assert dead in listed.output
    assert "looked at 1; all there is" in listed.output
    assert "ValueError" in grouped.output
    assert f'"id": "{dead}"' in as_json.output
