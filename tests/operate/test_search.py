"""Jobs are found in every state, in slices that say how far they looked."""

from __future__ import annotations

import pytest

from mqworker.errors import InvalidArgument, UnknownQueue
from mqworker.model.envelope import encode_call
from mqworker.model.instant import After
from mqworker.model.names import TaskName
from mqworker.model.settlement import Ack, Bury, Failure, Run
from mqworker.operate.held import read_held
from mqworker.operate.job_filter import parse_filter
from mqworker.operate.search import search
from mqworker.operate.system import System
from mqworker.queues.work.snapshots import read_system
from tests.support.messages import a_message, new_id

CHARGE = TaskName("shop.charge")


def enqueue(system: System, count: int = 1, queue: str = "mail", **options: object) -> list[str]:
    bodies = [encode_call([number], {"tenant": f"t{number % 3}"}) for number in range(count)]
    messages = [a_message(body, task=CHARGE, **options) for body in bodies]
    system.open_queue(queue).enqueue(*messages)
    return [message.id for message in messages]


def found(system: System, text: str) -> list[str]:
    return [job.id for job in search(system, parse_filter(text)).jobs]


def test_every_state_is_searched(system: System) -> None:
    queue = system.open_queue("mail")
    ids: dict[str, str] = {}
    for state in ("dead", "succeeded", "leased"):
        (ids[state],) = enqueue(system)
        (delivery,) = queue.claim(consumer="node.boot.1")
        if state == "dead":
            queue.settle(
                Bury(delivery, "retries", Failure("ValueError", "no address")), consumer="node.boot.1"
            )
        elif state == "succeeded":
            queue.settle(Ack(delivery, run=Run("worker:0", "node", 5, 1.0)), consumer="node.boot.1")
    (ids["delayed"],) = enqueue(system, due=After(60_000))
    (ids["limited"],) = enqueue(system, limits="shop.charge=1/60000/1")
    (ids["ready"],) = enqueue(system)

    assert {state: found(system, f"state:{state}") for state in ids} == {
        state: [id_] for state, id_ in ids.items()
    }
    assert set(found(system, "")) == {id_ for state, id_ in ids.items() if state != "succeeded"}


def test_arguments_and_errors_are_looked_at(system: System) -> None:
    ids = enqueue(system, 9)
    queue = system.open_queue("mail")
    (delivery,) = queue.claim()
    queue.settle(Bury(delivery, "retries", Failure("ValueError", "no address")))

    assert found(system, "args.tenant:t1") == [ids[1], ids[4], ids[7]]
    assert found(system, "error:address") == [ids[0]]


def test_a_slice_says_how_far_it_looked_and_the_next_goes_on_there(system: System) -> None:
    ids = enqueue(system, 700)
    seen: list[str] = []
    cursor, slices, looked_at = None, 0, 0
    while True:
        part = search(system, parse_filter("queue:mail"), cursor, most=1_000, budget=300)
        seen += [job.id for job in part.jobs]
        slices, looked_at, cursor = slices + 1, looked_at + part.looked_at, part.cursor
        if cursor is None:
            break

    assert (seen, slices, looked_at) == (ids, 3, 700)


def test_cancelled_messages_leave_no_trace_in_a_search(system: System) -> None:
    first, second = enqueue(system, 2)
    system.open_queue("mail").cancel(first)

    assert found(system, "") == [second]
    assert found(system, "state:cancelled") == [first]


def test_a_queue_that_does_not_exist_is_said_to(system: System) -> None:
    enqueue(system)
    with pytest.raises(UnknownQueue, match="did you mean mail"):
        search(system, parse_filter("queue:mails"))


def test_a_cursor_of_another_making_is_refused(system: System) -> None:
    with pytest.raises(InvalidArgument, match="cursor"):
        search(system, parse_filter(""), "99:x")


def test_what_is_held_is_seen_without_its_body(system: System) -> None:
    queue = system.open_queue("mail")
    large = a_message(b"x" * 200_000, id=new_id(), task=CHARGE)
    queue.enqueue(large)
    queue.claim(consumer="web-1.ab12.3")

    (job,) = read_held(system.store, read_system(system.store, "mqw"))

    assert (job.id, job.task, job.queue, job.node, job.attempt) == (
        large.id,
        "shop.charge",
        "mail",
        "web-1",
        1,
    )
