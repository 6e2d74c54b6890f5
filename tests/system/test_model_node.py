"""Tasks on queues of other models, run by a real node: what each model promises while all goes well."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine

from mqworker import Gq, Rsmq
from mqworker.queues.rsmq.client import RsmqClient
from mqworker.queues.rsmq.queue import RsmqQueue
from mqworker.tasks.outcome import JobStatus
from tests.support.command_line import CommandLine
from tests.support.messages import open_store
from tests.support.real_server import RealServer
from tests.system.model_app import QUEUE
from tests.system.model_sites import DatabaseOf, StartNode, database_of, mariadb, postgres, server, start

__all__ = ["database_of", "mariadb", "postgres", "server", "start"]  # fixtures


@pytest.fixture
def rsmq(server: RealServer) -> Iterator[RsmqClient]:
    """As a program that knows nothing of us."""
    store = open_store(server.url)
    yield RsmqClient(store)
    store.close()


def test_a_json_text_that_another_program_sent_runs_as_a_task(start: StartNode, rsmq: RsmqClient) -> None:
    rsmq.create_queue(QUEUE)
    sent = rsmq.send_message(QUEUE, '{"task": "tell", "args": ["hi"], "headers": {"from": "node"}}')
    rsmq.send_message(QUEUE, '{"task": "tell", "kwargs": {"word": "ho"}, "id": "order-7"}')
    node = start(Rsmq(vt=5))

    node.wait("told", 2)

    assert sorted(node.lines("told")) == [
        ["hi", "1", "node", sent, "False"],
        ["ho", "1", "-", "order-7", "False"],
    ]
    node.wait_until(lambda: rsmq.get_queue_attributes(QUEUE).msgs == 0, "done is deleted")


def test_what_fails_is_hidden_tried_again_and_given_up_beside_the_queue(
    start: StartNode, rsmq: RsmqClient
) -> None:
    node = start(Rsmq(vt=5))
    job = node.tasks.fail.enqueue("x")
    rsmq.send_message(QUEUE, "no task at all")

    node.wait_until(lambda: job.status() is JobStatus.FAILED, "given up")

    assert node.lines("failed") == [["x", "1"], ["x", "2"]]
    assert rsmq.list_queues() == [QUEUE]
    burials = RsmqQueue(QUEUE, rsmq.store).burials
    node.wait_until(lambda: len(burials()) == 2, "both are dead letters")
    assert {burial.reason for burial in burials()} == {"undecodable", "retries_exhausted"}
    assert job.retry()
    node.wait("failed", 4)


def test_a_task_that_nobody_knows_is_set_aside_and_not_lost(start: StartNode, rsmq: RsmqClient) -> None:
    node = start(Rsmq(vt=5))
    node.tasks.tell.enqueue("made")
    node.wait("told")
    rsmq.send_message(QUEUE, '{"task": "unknown"}')
    node.tasks.tell.enqueue("after")

    node.wait("told", 2)

    node.wait_until(lambda: "task_unknown" in node.tail(), "the unknown task was met")
    node.wait_until(lambda: rsmq.get_queue_attributes(QUEUE).hiddenmsgs == 1, "it is hidden")
    assert rsmq.receive_message(QUEUE) is None


def test_a_message_stays_hidden_while_its_task_holds_the_interpreter(
    start: StartNode, rsmq: RsmqClient
) -> None:
    # The dispatcher renews it, after a third of `vt`: on a busy machine two thirds of a second are not much.
    node = start(Rsmq(vt=4))
    node.tasks.hog.enqueue(6.0)

    node.wait("begun")
    stolen = []
    while not node.lines("ended"):
        stolen.append(rsmq.receive_message(QUEUE))
        time.sleep(0.02)  # the node needs a CPU, too
    node.wait_until(lambda: rsmq.get_queue_attributes(QUEUE).msgs == 0, "it is done")

    assert not any(stolen)
    assert len(node.lines("begun")) == 1


def test_a_queue_that_others_delete_while_we_hold_its_messages_is_made_again(
    start: StartNode, rsmq: RsmqClient
) -> None:
    node = start(Rsmq(vt=2))
    node.tasks.count.enqueue(1, 1.0)
    node.wait("begun")

    rsmq.delete_queue(QUEUE)
    node.wait("ended")
    node.tasks.count.enqueue(2, 0.0)

    node.wait("ended", 2)
    node.wait_until(lambda: rsmq.get_queue_attributes(QUEUE).msgs == 0, "nothing is left")


@pytest.mark.parametrize("kind", ["rsmq", "redis", "sqlite"])
def test_the_command_line_tells_what_the_queue_holds(
    kind: str, start: StartNode, server: RealServer, database_of: DatabaseOf
) -> None:
    node = start(Rsmq(vt=5) if kind == "rsmq" else Gq(url=database_of(kind)))
    node.tasks.count.enqueue_many([(number, 60.0) for number in range(5)])
    waiting, taken = ("visible", "hidden") if kind == "rsmq" else ("queued", "consumed")
    line = CommandLine(server)

    def counted(*words: str) -> bool:
        found = re.search(rf"(\d+) {waiting}, (\d+) {taken}", line.type(*words).output)
        return found is not None and int(found[2]) >= 2 and int(found[1]) + int(found[2]) == 5

    node.wait_until(lambda: counted("queue", "show", QUEUE), "it was counted")
    assert counted("queue", "list")
    line.store.close()
    node.kill_all()  # its tasks would take a while to end


@pytest.mark.parametrize("kind", ["redis", "sqlite", "postgres", "mariadb"])
def test_tasks_on_gq_run_and_end_in_its_statuses(
    kind: str, start: StartNode, database_of: DatabaseOf
) -> None:
    node = start(Gq(url=database_of(kind)))
    job, failing, hanging = (
        node.tasks.tell.enqueue("hi"),
        node.tasks.fail.enqueue("x"),
        node.tasks.hang.enqueue(),
    )
    many = node.tasks.count.enqueue_many([(number, 0.0) for number in range(50)])
    soaring = node.tasks.soar.enqueue(99)

    node.wait_until(lambda: hanging.status() == failing.status() == JobStatus.FAILED, "both are given up")
    node.wait_until(lambda: soaring.status() is JobStatus.SUCCEEDED, "the async one is done")
    node.wait_until(lambda: {each.status() for each in many} == {JobStatus.SUCCEEDED}, "all are done")

    assert job.status() is JobStatus.SUCCEEDED
    assert node.lines("told") == [["hi", "1", "-", job.id, "False"]]
    assert node.lines("failed") == [["x", "1"], ["x", "2"]]
    assert len(node.lines("begun")) == 51
    assert job.progress() is not None


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_a_call_in_a_transaction_runs_when_it_commits(
    kind: str, start: StartNode, database_of: DatabaseOf
) -> None:
    url = database_of(kind)
    assert url is not None
    node = start(Gq(url=url))
    engine = create_engine(url)

    with engine.connect() as connection:
        node.tasks.count.using(connection=connection).enqueue(1, 0.0)
        connection.rollback()
        job = node.tasks.count.using(connection=connection).enqueue(2, 0.0)
        assert job.status() is JobStatus.UNKNOWN
        connection.commit()
    engine.dispose()

    node.wait_until(lambda: job.status() is JobStatus.SUCCEEDED, "it ran")
    assert node.lines("ended") == [["2"]]
