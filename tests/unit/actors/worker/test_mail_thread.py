"""The mail thread: who may read and send; whenever it comes in between, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker import App, Context
from mqworker.actors.actor import ActorLoop
from mqworker.actors.early_start.take import EarlyStart
from mqworker.actors.early_start.tickets import Tickets
from mqworker.actors.mail import (
    AbandonDelivery,
    DeliveriesFinished,
    DeliveriesListed,
    DeliveriesReturned,
    Drain,
    ListDeliveries,
    Mail,
    Ping,
    Pong,
    RunDeliveries,
)
from mqworker.actors.mailbox import Mailbox, open_pipe
from mqworker.actors.run_slot import RunSlots
from mqworker.actors.worker.lifetime import WorkerLimits
from mqworker.actors.worker.mail_thread import SLOW_AFTER_MS, MailThread
from mqworker.actors.worker.process import readiness
from mqworker.actors.worker.report import Report
from mqworker.actors.worker.worker import DISPATCHER, Worker
from mqworker.errors import StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.clock import SystemClock
from mqworker.model.envelope import encode_call
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.quarantine import Quarantine
from mqworker.model.record import plain_record_tail
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions
from mqworker.settings import Settings
from mqworker.store.store import Store
from mqworker.tasks.running.run import TaskRunner
from tests.support.deadline import wait_until

_CREDIT = 300
"""How many deliveries the worker has at a time."""
_INTERRUPTIONS = 3_000 if os.environ.get("DRILL_SIZE") == "full" else 500


def _no_store() -> Store:
    raise StoreUnavailable("there is none here")


class Peers:
    """A worker's loop in a thread of this test, which is its dispatcher and its supervisor."""

    def __init__(self, directory: Path, slow_after_s: float) -> None:
        self.go_on = threading.Event()
        self.ran: Counter[int] = Counter()
        path = str(directory / "slots")
        clock = SystemClock()
        app = App("shop")
        app.task(name="quick")(self._quick)
        app.task(name="stuck")(lambda: self.go_on.wait(60) and None)
        app.task(name="aside")(self._aside)
        app.task(name="endless")(self._endless)
        app.task(name="watchful")(self._watchful)
        self.worker = Worker(
            "worker:0",
            0,
            TaskRunner(app.registry, worker="worker:0", node="n", clock=clock),
            readiness(app, Settings()),
            slots=RunSlots(path),
            early_start=EarlyStart(0, Tickets(path), _no_store, get_logger(), Quarantine()),
            report=Report(lambda queue: WorkQueueCalls(queue, WorkQueueOptions()), {}, frozenset()),
            limits=WorkerLimits(None, None, lambda: 0),
            announcements=(),
            clock=clock,
            log=get_logger(),
        )
        control, control_far = open_pipe()
        dispatcher, dispatcher_far = open_pipe()
        self.control, self.dispatcher = Mailbox(control), Mailbox(dispatcher)
        self._far = Mailbox(control_far)
        self.mails: list[Mail] = []
        self.served = 0
        self._slow_after_s = slow_after_s
        self._loop = ActorLoop(self.worker, self._far, clock, get_logger())
        self._loop._mailboxes[DISPATCHER] = self._far_dispatcher = Mailbox(dispatcher_far)
        self.thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.worker.share_mail(self._loop, slow_after_s=self._slow_after_s)
        assert self.worker._mail_thread is not None
        self.worker._mail_thread._serve = self._serve
        self._loop.run()

    def _serve(self) -> None:
        self.served += 1
        self._loop.serve(self.worker.turn_beside_task)

    def _quick(self, number: int) -> None:
        self.ran[number] += 1
        for _ in range(number % 4_000):  # somewhere in here the mail thread comes in between
            pass

    async def _aside(self) -> None: ...

    async def _endless(self) -> None:
        await asyncio.Event().wait()

    def _watchful(self, ctx: Context) -> None:
        self.ran[0] += 1
        while not self.go_on.wait(0.001):
            ctx.stop_if_cancelled()

    def run(self, *fences: int, task: str = "quick") -> None:
        arguments = [(fence,) if task == "quick" else () for fence in fences]
        records = [a_record(task, each) for each in arguments]
        self.dispatcher.send(RunDeliveries("default", list(fences), records))

    def hear(self) -> list[Mail]:
        self.dispatcher.flush()
        self.mails += self.dispatcher.receive()
        return self.mails

    def heard(self, kind: type[Mail]) -> bool:
        return any(isinstance(mail, kind) for mail in self.hear())

    def close(self) -> None:
        self.go_on.set()
        self.control.send(Drain(0))
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.worker.close()
        for mailbox in (self.control, self.dispatcher, self._far, self._far_dispatcher):
            mailbox.close()


def a_record(task: str, arguments: tuple[int, ...]) -> bytes:
    message = Message(MessageId("m1"), encode_call(arguments, {}), TaskName(task))
    return b"1700000000000" + plain_record_tail(message)


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    peers = Peers(tmp_path, SLOW_AFTER_MS / 1000)
    yield peers
    peers.close()


def fences_of(mails: list[Mail], *kinds: type[DeliveriesFinished | DeliveriesReturned]) -> list[int]:
    return [fence for mail in mails if isinstance(mail, kinds) for fence in mail.fences]


def test_what_is_behind_a_task_that_takes_long_goes_back_and_what_is_finished_is_reported(
    peers: Peers,
) -> None:
    peers.dispatcher.send(
        RunDeliveries(
            "default",
            [1, 2, 3, 4],
            [
                a_record("quick", (1,)),
                a_record("stuck", ()),
                a_record("quick", (3,)),
                a_record("quick", (4,)),
            ],
        )
    )

    wait_until(lambda: peers.heard(DeliveriesReturned), "the rest is returned")

    assert fences_of(peers.mails, DeliveriesFinished) == [1]
    assert fences_of(peers.mails, DeliveriesReturned) == [3, 4]
    assert peers.ran == {1: 1}


def test_beside_a_task_that_takes_long_async_tasks_begin_and_are_reported(peers: Peers) -> None:
    peers.run(1, task="stuck")
    time.sleep(3 * SLOW_AFTER_MS / 1000)

    peers.run(2, task="aside")

    wait_until(lambda: fences_of(peers.hear(), DeliveriesFinished) == [2], "the async one is reported")


def test_a_worker_in_a_task_answers_its_supervisor_and_lists_what_it_has(peers: Peers) -> None:
    peers.run(7, task="stuck")
    time.sleep(3 * SLOW_AFTER_MS / 1000)

    peers.control.send(Ping(1))
    peers.dispatcher.send(ListDeliveries(5))

    wait_until(lambda: peers.heard(DeliveriesListed), "it answers the dispatcher")
    wait_until(lambda: any(isinstance(mail, Pong) for mail in peers.control.receive()), "and the supervisor")
    assert DeliveriesListed(5, {"default": [7]}) in peers.mails


@pytest.mark.parametrize("task", ["endless", "watchful"])
def test_a_run_whose_lease_was_lost_is_ended_where_that_is_possible(peers: Peers, task: str) -> None:
    peers.run(7, task=task)
    peers.dispatcher.send(ListDeliveries(1))
    wait_until(lambda: DeliveriesListed(1, {"default": [7]}) in peers.hear(), "it has begun")

    peers.dispatcher.send(AbandonDelivery("default", 8))  # another one
    peers.dispatcher.send(AbandonDelivery("default", 7))

    wait_until(lambda: fences_of(peers.hear(), DeliveriesFinished) == [7], "it is reported, as released")
    peers.dispatcher.send(ListDeliveries(2))
    wait_until(lambda: DeliveriesListed(2, {}) in peers.hear(), "nothing is left")


def test_what_was_lost_before_it_began_does_not_run(tmp_path: Path) -> None:
    peers = Peers(tmp_path, slow_after_s=60.0)  # what is behind the first one waits
    try:
        peers.run(1, task="stuck")
        peers.run(2, 3)
        peers.dispatcher.send(AbandonDelivery("default", 2))
        time.sleep(0.05)
        peers.go_on.set()
        wait_until(lambda: len(fences_of(peers.hear(), DeliveriesFinished)) == 3, "all are reported")
    finally:
        peers.close()

    assert dict(peers.ran) == {3: 1}


def test_what_it_does_not_have_is_not_listed(peers: Peers) -> None:
    peers.run(1, 2, 3)
    wait_until(lambda: len(fences_of(peers.hear(), DeliveriesFinished)) == 3, "all are reported")

    peers.dispatcher.send(ListDeliveries(1))

    wait_until(lambda: peers.heard(DeliveriesListed), "it answers")
    assert peers.mails[-1] == DeliveriesListed(1, {})


def test_it_wakes_up_for_a_long_task_after_a_long_rest(peers: Peers) -> None:
    peers.run(1)
    wait_until(lambda: peers.heard(DeliveriesFinished), "the first is reported")
    time.sleep(40 * SLOW_AFTER_MS / 1000)  # it rests by now
    peers.dispatcher.send(RunDeliveries("default", [2, 3], [a_record("stuck", ()), a_record("quick", (3,))]))

    wait_until(lambda: peers.heard(DeliveriesReturned), "what is behind comes back")


def test_hundreds_of_interruptions_at_random_bytecodes_lose_nothing_and_double_nothing(
    tmp_path: Path,
) -> None:
    """The mail thread comes in between as often as it can; nothing is run twice, or lost."""
    switch_s, chance = sys.getswitchinterval(), random.Random(13)  # noqa: S311 - no secret
    sys.setswitchinterval(1e-6)
    peers = Peers(tmp_path, slow_after_s=0.0)
    try:
        next_fence, listed, answered, ends_at_s = 1, 0, 0, time.monotonic() + 30
        while (peers.served < _INTERRUPTIONS or next_fence < 5_000) and time.monotonic() < ends_at_s:
            if next_fence - answered < _CREDIT:
                fences = list(range(next_fence, next_fence + chance.randrange(1, 30)))
                next_fence = fences[-1] + 1
                peers.run(*fences)
                if chance.random() < 0.1:
                    listed += 1
                    peers.dispatcher.send(ListDeliveries(listed))
            heard = len(peers.mails)
            answered += len(fences_of(peers.hear()[heard:], DeliveriesFinished, DeliveriesReturned))
        given = dict.fromkeys(range(1, next_fence), 1)
        wait_until(
            lambda: len(fences_of(peers.hear(), DeliveriesFinished, DeliveriesReturned)) >= len(given),
            "every delivery is reported or returned",
            deadline_s=30,
        )
        peers.dispatcher.send(ListDeliveries(listed + 1))
        wait_until(lambda: DeliveriesListed(listed + 1, {}) in peers.hear(), "it has nothing left")
    finally:
        sys.setswitchinterval(switch_s)
        peers.close()

    finished, returned = (
        fences_of(peers.mails, DeliveriesFinished),
        fences_of(peers.mails, DeliveriesReturned),
    )
    assert Counter(finished + returned) == given
    assert dict(peers.ran) == dict.fromkeys(finished, 1), "what ran was reported, what went back did not"
    assert [mail.number for mail in peers.mails if isinstance(mail, DeliveriesListed)] == [
        *range(1, listed + 2)
    ]
    assert peers.served >= _INTERRUPTIONS
    assert returned


def test_trouble_in_the_mail_thread_ends_the_main_thread_after_its_task() -> None:
    def fail() -> None:
        raise LookupError("a mistake of ours")

    thread = MailThread(fail, lambda: 0, slow_after_s=0.001)
    thread.begin_stint()
    thread.enter_task()
    wait_until(lambda: thread._trouble is not None, "it failed")
    thread.leave_task()

    with pytest.raises(LookupError, match="a mistake of ours"):
        thread.end_stint()


def test_no_mail_is_read_outside_a_task() -> None:
    served: list[int] = []
    finished = 0
    thread = MailThread(lambda: served.append(finished), lambda: finished, slow_after_s=0.001)
    thread.begin_stint()
    for _ in range(1_000):
        thread.enter_task()
        thread.leave_task()
        finished += 1
    time.sleep(0.05)  # the main thread holds the lock
    thread.end_stint()

    assert served == []


def test_a_task_that_has_just_begun_is_not_taken_for_a_long_one() -> None:
    served: list[int] = []
    thread = MailThread(lambda: served.append(1), lambda: 0, slow_after_s=0.2)
    thread.begin_stint()  # it looks for the first time: no task runs
    time.sleep(0.1)

    thread.enter_task()
    time.sleep(0.15)  # it looks for the second time
    thread.leave_task()
    thread.end_stint()

    assert served == []
