"""A copy of a call that arrives late: after its repetition was answered, and after the lane went on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqworker.errors import QueueFull, StaleCall
from mqworker.model.names import ConsumerName
from mqworker.model.settlement import Ack
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.command import Command, ReplyError
from mqworker.store.exchange import decoded
from mqworker.store.script import Call
from mqworker.store.store import Store
from tests.architecture.source_tree import ROOT
from tests.support.messages import AN_HOUR_MS, a_message, open_store, some_messages
from tests.support.numbered_calls import ENDS_THE_QUEUE, LANE, PREPARE_BY_SCRIPT, RSMQ, work
from tests.support.raw_queue import RawQueue
from tests.support.real_server import RealServer

QUEUES = ROOT / "mqworker" / "queues"

NEIGHBOURS = [(1, 2), (9, 10), (99, 100), (1, 1_000), (2**53, 2**53 + 1), (2**64 - 1, 2**64)]
"""Numbers as texts (9 comes after 10) and as doubles (2**53 + 1 is 2**53) would be mistaken here."""


def send(store: Store, command: Command) -> Any:  # noqa: ANN401 - a raw reply
    return store.connection.execute([command], None)[0]


def _name_of(path: Path) -> str:
    """As in PREPARE_BY_SCRIPT: scripts of other models than the work queue carry its name."""
    prefix = {"work": "", "topics": "topic_"}.get(path.parts[-3], f"{path.parts[-3]}_")
    return f"{prefix}{path.stem}"


def test_every_script_that_judges_by_number_is_tried_here() -> None:
    judging = {
        _name_of(path)
        for path in QUEUES.glob("*/scripts/*.lua")
        if any(word in path.read_text() for word in ("earlier_reply(", "was_answered(", "judge("))
    }

    assert set(PREPARE_BY_SCRIPT) == judging


@pytest.mark.parametrize(("number", "next_number"), NEIGHBOURS)
@pytest.mark.parametrize("name", sorted(PREPARE_BY_SCRIPT))
def test_a_copy_that_comes_after_later_calls_of_its_lane_is_told_so_and_changes_nothing(
    store: Store, raw: RawQueue, name: str, number: int, next_number: int
) -> None:
    copy = PREPARE_BY_SCRIPT[name](store)
    call, command = copy(number)
    send(store, command)
    if name in ENDS_THE_QUEUE:
        later = RSMQ.create_queue("q", 30, 0, 65_536).command_with_source((LANE, next_number))
    else:
        _, later = copy(next_number)
    send(store, later)
    before = raw.dump()

    late = send(store, command)

    assert isinstance(late, ReplyError)
    assert (late.code, raw.dump()) == ("MQW_STALE", before)
    with pytest.raises(StaleCall, match=f"call {number} came after call {next_number} of its lane"):
        decoded(call, late)


@pytest.mark.parametrize("name", sorted(PREPARE_BY_SCRIPT))
def test_a_copy_that_comes_after_its_repetition_answers_the_same_and_changes_nothing(
    store: Store, raw: RawQueue, name: str
) -> None:
    _, command = PREPARE_BY_SCRIPT[name](store)(10)
    first = send(store, command)
    before = raw.dump()

    for _ in range(3):
        assert send(store, command) == first
        assert raw.dump() == before


@pytest.mark.parametrize("name", sorted(PREPARE_BY_SCRIPT))
def test_the_next_call_of_a_lane_is_carried_out(store: Store, raw: RawQueue, name: str) -> None:
    copy = PREPARE_BY_SCRIPT[name](store)
    send(store, copy(9)[1])
    before = raw.dump()

    send(store, copy(10)[1])

    if name not in ENDS_THE_QUEUE:
        assert raw.dump() != before


# Calls that found nothing to do, or were refused, were answered too.


def test_a_late_copy_of_a_claim_that_found_nothing_takes_nothing(queue: WorkQueue, raw: RawQueue) -> None:
    for consumer in (None, ConsumerName("c")):
        queue.enqueue(a_message())
        queue.settle(*map(Ack, queue.claim()))
        call = queue.calls.claim(5, consumer, AN_HOUR_MS)
        command = call.command_with_source((f"lane {consumer}", 1))
        assert decoded(call, send(queue.store, command)) == []
        queue.enqueue(*some_messages(3))
        before = raw.dump()

        late = decoded(call, send(queue.store, command))

        assert (late, raw.dump()) == ([], before)
        queue.purge_waiting()


def test_a_late_copy_of_a_claim_takes_nothing_when_the_queue_goes_on_after_a_pause(
    queue: WorkQueue, raw: RawQueue
) -> None:
    queue.enqueue(a_message())
    queue.pause()
    call = queue.calls.claim(5, ConsumerName("c"), AN_HOUR_MS)
    command = call.command_with_source((LANE, 1))
    send(queue.store, command)
    queue.resume()
    before = raw.dump()

    late = decoded(call, send(queue.store, command))

    assert (late, raw.dump()) == ([], before)


def test_a_late_copy_of_a_pop_that_found_nothing_takes_nothing(queue: WorkQueue, raw: RawQueue) -> None:
    queue.push(b"a")
    queue.pop(1)
    command = queue.calls.pop(1).command_with_source((LANE, 1))
    send(queue.store, command)
    queue.push(b"b")
    before = raw.dump()

    assert send(queue.store, command) == []
    assert raw.dump() == before


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_late_copy_of_an_enqueue_that_was_refused_stores_nothing(
    queue: WorkQueue, raw: RawQueue, *, is_plain: bool
) -> None:
    queue.limit(1)
    queue.enqueue(a_message())
    call = queue.calls.enqueue([a_message() if is_plain else a_message(priority=3)])
    command = call.command_with_source((LANE, 1))
    with pytest.raises(QueueFull):
        decoded(call, send(queue.store, command))
    queue.limit(None)
    before = raw.dump()

    with pytest.raises(QueueFull, match="1 waiting, 1 more would pass the limit of 1"):
        decoded(call, send(queue.store, command))

    assert raw.dump() == before


# What late copies of calls without a number did, when they had none.


def test_a_late_pause_does_not_stop_a_queue_that_goes_on(queue: WorkQueue) -> None:
    pause = queue.calls.configure(paused="1").command_with_source((LANE, 1))
    send(queue.store, pause)
    queue.resume()

    send(queue.store, pause)

    queue.enqueue(a_message())
    assert len(queue.claim()) == 1


def test_a_late_purge_throws_away_nothing_that_came_since(queue: WorkQueue) -> None:
    purge = queue.calls.purge("waiting", 100).command_with_source((LANE, 1))
    queue.enqueue(a_message())
    send(queue.store, purge)
    queue.enqueue(a_message())

    send(queue.store, purge)

    assert queue.counts().ready == 1


def test_a_late_put_back_takes_nothing_from_who_popped_it_since(queue: WorkQueue) -> None:
    pushed = queue.push(b"a")
    queue.pop(1)
    put_back = queue.calls.put_back(pushed).command_with_source((LANE, 1))
    send(queue.store, put_back)
    queue.pop(1)

    send(queue.store, put_back)

    assert queue.pop(1) == []


# Any order


@dataclasses.dataclass
class Sent:
    """A call of a lane that was answered."""

    call: Call[Any]
    command: Command
    answer: object


class Lanes:
    """Several lanes on one queue, and what has to be true of them."""

    def __init__(self, store: Store, raw: RawQueue, plain: bool) -> None:  # noqa: FBT001 - drawn
        self.queue = work(store)
        self.raw = raw
        self.plain = plain
        self.sent: dict[int, list[Sent]] = {0: [], 1: [], 2: []}
        self.held: list[Any] = []
        self.enqueued, self.acked, self.claimed = 0, 0, 0

    def call(self, lane: int, what: str) -> None:
        """The next call of a lane, carried out at its first copy."""
        calls = self.queue.calls
        if what == "enqueue":
            call: Call[Any] = calls.enqueue([a_message(priority=0 if self.plain else 5)])
            self.enqueued += 1
        elif what == "ack" and self.held:
            call = calls.settle([Ack(self.held.pop())], None)
            self.acked += 1
        else:
            call = calls.claim(1, None, AN_HOUR_MS)
        command = call.command_with_source((f"lane {lane}", len(self.sent[lane]) + 8))
        answer = decoded(call, send(self.queue.store, command))
        if call.script.name == "claim":
            self.held += answer
            self.claimed += len(answer)
        self.sent[lane].append(Sent(call, command, answer))

    def copy_arrives(self, lane: int, back: int) -> None:
        """One more copy of the newest call of a lane, or of one so far back."""
        calls = self.sent[lane]
        if not calls:
            return
        at = max(0, len(calls) - 1 - back)
        sent, before = calls[at], self.raw.dump()
        reply = send(self.queue.store, sent.command)
        assert self.raw.dump() == before
        if at < len(calls) - 1:
            assert isinstance(reply, ReplyError)
            assert reply.code == "MQW_STALE"
        elif sent.call.script.name == "claim":  # what was settled since is left out
            assert decoded(sent.call, reply) == [each for each in sent.answer if each in self.held]  # type: ignore[attr-defined]
        else:
            assert decoded(sent.call, reply) == sent.answer

    def check(self) -> None:
        """Each call had its effect once."""
        counts = self.queue.counts()
        assert counts.totals["enqueued"] == self.enqueued
        assert counts.totals.get("succeeded", 0) == self.acked
        assert counts.leased == self.claimed - self.acked == len(self.held)
        assert counts.ready == self.enqueued - self.claimed


STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.sampled_from(["enqueue", "claim", "ack"])),
        st.tuples(st.integers(0, 2), st.integers(0, 5)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, plain=st.booleans())
def test_each_call_has_its_effect_once_in_whatever_order_copies_arrive(
    server: RealServer,
    steps: list[tuple[int, Any]],
    plain: bool,  # noqa: FBT001 - drawn
) -> None:
    store = open_store(server.url)
    with server.client() as client:
        client.flushall()
        queue = work(store)
        queue.enqueue(a_message())
        queue.settle(*map(Ack, queue.claim()))
        lanes = Lanes(store, RawQueue(client, queue.calls.keys), plain)
        lanes.enqueued = lanes.acked = lanes.claimed = 1
        for lane, step in steps:
            if isinstance(step, str):
                lanes.call(lane, step)
            else:
                lanes.copy_arrives(lane, step)
        lanes.check()
    store.close()
