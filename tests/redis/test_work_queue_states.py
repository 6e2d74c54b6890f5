"""The work queue against lists and dicts: after every step of a random story, each message is in one place.

Nothing waits: leases, delays, deadlines and guards are aged by writing into the past. The invariant reads all
keys raw, so that a message in two places, a counter that is off or a guard that stayed behind shows at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mqworker.model.delivery import Delivery
from mqworker.model.guard import Guard, GuardMode, chosen_id_guard, unique_guard
from mqworker.model.instant import After, At
from mqworker.model.message import Message
from mqworker.model.record import decode_record, is_on_probation
from mqworker.model.settlement import Ack, Bury, Crash, Release, RetryAt, Settlement, Suspect
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.script import Call
from mqworker.store.store import Store
from tests.support.messages import AN_HOUR_MS, open_store
from tests.support.queue_reference import Item, QueueReference
from tests.support.raw_queue import RawQueue, RawState
from tests.support.real_server import RealServer

CONSUMERS = ("north", "south")
HOLDERS = st.sampled_from(["", *CONSUMERS])
PICK = st.integers(0, 1_000)
COUNT = st.integers(1, 5)
IS_REPEATED = st.booleans()
SETTLED_ONCE = {"enqueue", "enqueue_rich", "settle", "push", "ack"}

Wishes: TypeAlias = Any
"""What a message wants, by the name of the parameter of `_message`."""
Reply: TypeAlias = Any
"""What a call answered: its type depends on the call."""


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """What a message may want, plain ones more often than not."""
    if draw(st.booleans()):
        return {}
    return {
        "priority": draw(st.sampled_from([0, 0, 1, 5, 9])),
        "is_delayed": draw(st.booleans()),
        "has_deadline": draw(st.booleans()),
        "guard": draw(st.sampled_from(["-", "i", "r", "w", "t"])),
        "guard_key": draw(st.sampled_from(["0", "1"])),
        "max_crashes": draw(st.sampled_from([None, 1, 2, 3])),
    }


class WorkQueueStates(RuleBasedStateMachine):
    """Every verb of the queue in any order, some of them sent twice."""

    store: ClassVar[Store]
    client: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.queue = WorkQueue("states", self.store, WorkQueueOptions(dedup_window_ms=AN_HOUR_MS))
        self.raw = RawQueue(self.client, self.queue.calls.keys)
        self.model = QueueReference()
        self.numbers = itertools.count(1)
        self.calls: list[tuple[Call[Any], tuple[str, int], Any]] = []

    @initialize()
    def begin(self) -> None:
        self.model.enqueue([(Item("first", b"0"), False)])
        self.queue.enqueue(Message("first", b"0"))

    # In

    @rule(wanted=st.lists(messages(), min_size=1, max_size=3), is_repeated=IS_REPEATED)
    def enqueue(self, wanted: list[dict[str, Any]], *, is_repeated: bool) -> None:
        pairs = [self._message(**wishes) for wishes in wanted]
        if any(item.id in self.model.dead for _, item, _ in pairs):
            return  # a chosen id may be used again while its dead letter is kept: it is in two states then
        expected = self.model.enqueue([(item, is_delayed) for _, item, is_delayed in pairs])

        stored = self._run(
            self.queue.calls.enqueue([message for message, _, _ in pairs]), is_repeated=is_repeated
        )

        assert [(enqueued.id, enqueued.is_new) for enqueued in stored] == expected

    @rule(count=st.integers(1, 3), is_repeated=IS_REPEATED)
    def push(self, count: int, *, is_repeated: bool) -> None:
        elements = [b"pushed %d" % next(self.numbers) for _ in range(count)]

        ids = self._run(self.queue.calls.push(elements), is_repeated=is_repeated)

        items = [
            Item(message, element, max_crashes=None) for message, element in zip(ids, elements, strict=True)
        ]
        self.model.enqueue([(item, False) for item in items])

    # Out

    @rule(count=COUNT, consumer=HOLDERS, is_repeated=IS_REPEATED)
    def claim(self, count: int, consumer: str, *, is_repeated: bool) -> None:
        newest_before = self.model.fence
        expected = self.model.claim(count, consumer)
        is_repeated = is_repeated and bool(expected)  # an empty claim is not remembered: nobody gains by it

        deliveries = self._run(
            self.queue.calls.claim(count, consumer or None, AN_HOUR_MS), is_repeated=is_repeated
        )

        # Fences follow the server's clock; the model only knows that each is greater than all before it.
        fences = sorted(_by_fence(deliveries))
        assert len(fences) == len(expected)
        assert all(fence > newest_before for fence in fences)
        self.model.fence = max(fences, default=newest_before)
        # Urgent messages that were given back share one place: among them any order is right.
        given = dict(zip(fences, expected.values(), strict=True))
        for known_as in expected:
            del self.model.held[consumer][known_as]
        self.model.held[consumer].update(_as_delivered(given, deliveries))

    @rule(count=COUNT, is_repeated=IS_REPEATED)
    def pop(self, count: int, *, is_repeated: bool) -> None:
        expected = self.model.pop(count)

        popped = self._run(self.queue.calls.pop(count), is_repeated=is_repeated and bool(expected))

        order = [message for message, _ in popped]
        assert sorted(order) == sorted(item.id for item in expected)
        start = len(self.model.popped) - len(expected)
        self.model.popped[start:] = sorted(expected, key=lambda item: order.index(item.id))

    @rule(pick=PICK, count=st.integers(1, 2), is_repeated=IS_REPEATED)
    def ack_popped(self, pick: int, count: int, *, is_repeated: bool) -> None:
        ids = [item.id for item in self.model.popped]
        wanted = [*ids[pick % (len(ids) + 1) :][:count], "unknown"]
        expected = self.model.ack_popped([*wanted, wanted[0]])

        acked = self._run(self.queue.calls.ack([*wanted, wanted[0]]), is_repeated=is_repeated)

        assert acked == expected

    @rule(count=st.integers(0, 3), is_repeated=IS_REPEATED)
    def recover(self, count: int, *, is_repeated: bool) -> None:
        expected = self.model.recover(count)

        recovered = self._run(self.queue.calls.recover(count, 0), is_repeated=is_repeated and bool(expected))

        assert [message for message, _ in recovered] == [item.id for item in expected]

    # Settling

    @precondition(lambda self: self._held())
    @rule(
        pick=PICK,
        ending=st.sampled_from(
            ["ack", "ack", "result", "back", "delayed", "past", "front", "crash", "suspect", "bury"]
        ),
        is_repeated=IS_REPEATED,
    )
    def settle(self, pick: int, ending: str, *, is_repeated: bool) -> None:
        consumer, fence, item = self._held()[pick % len(self._held())]
        settlement = _settlement(_delivery(fence, item), ending)
        if ending in {"ack", "result"}:
            self.model.ack(consumer, fence, "done" if ending == "result" else "")
        elif ending == "bury":
            self.model.bury(consumer, fence)
        else:
            self.model.again(consumer, fence, "back" if ending == "past" else ending)

        lost = self._run(self.queue.calls.settle([settlement], consumer or None), is_repeated=is_repeated)

        assert lost == []

    @precondition(lambda self: self._held())
    @rule(
        pick=PICK,
        kind=st.sampled_from(["other holder", "future", "zero", "negative"]),
        ending=st.sampled_from(["ack", "back", "delayed", "front", "bury"]),
    )
    def settle_what_is_not_held(self, pick: int, kind: str, ending: str) -> None:
        consumer, fence, item = self._held()[pick % len(self._held())]
        others = [other for other in ("", *CONSUMERS) if other != consumer]
        fence = {"future": self.model.fence + 1, "zero": 0, "negative": -fence}.get(kind, fence)
        settlement = _settlement(_delivery(fence, item), ending)

        with self._nothing_changes_but_calls():
            lost = self._run(
                self.queue.calls.settle(
                    [settlement], (others[pick % 2] if kind == "other holder" else consumer) or None
                )
            )

        assert lost == [settlement]

    @precondition(lambda self: self._held())
    @rule(pick=PICK)
    def extend(self, pick: int) -> None:
        consumer, fence, item = self._held()[pick % len(self._held())]
        delivery = _delivery(fence, item)

        lost = self.queue.extend(delivery, lease_ms=AN_HOUR_MS)

        assert lost == ([delivery] if consumer else [])
        if not consumer:
            self.model.ended.discard(fence)

    # Time passes

    @precondition(lambda self: self.model.held.get(""))
    @rule(pick=PICK)
    def lease_ends(self, pick: int) -> None:
        fences = sorted(self.model.held[""])
        fence = fences[pick % len(fences)]
        self.raw.end_lease(fence)
        self.model.ended.add(fence)

    @precondition(lambda self: self.model.delayed)
    @rule(pick=PICK)
    def delay_ends(self, pick: int) -> None:
        ids = sorted(self.model.delayed)
        message, order = ids[pick % len(ids)], next(self.numbers)
        self.raw.end_delay(message, order)
        self.model.due_order[message] = order

    @precondition(lambda self: self._with_deadline())
    @rule(pick=PICK)
    def deadline_passes(self, pick: int) -> None:
        item = self._with_deadline()[pick % len(self._with_deadline())]
        self.raw.pass_deadline(item.id, next(self.numbers))
        item.has_passed = True

    @precondition(lambda self: any(state == "timed" for _, state in self.model.guards.values()))
    @rule(pick=PICK)
    def guard_ends(self, pick: int) -> None:
        timed = sorted(key for key, (_, state) in self.model.guards.items() if state == "timed")
        key = timed[pick % len(timed)]
        self.raw.end_guard(key)
        self.model.guards[key] = (self.model.guards[key][0], "over")

    # Upkeep

    @rule()
    def reclaim(self) -> None:
        assert self.queue.reclaim() == self.model.reclaim()

    @rule(consumer=st.sampled_from(CONSUMERS))
    def beat(self, consumer: str) -> None:
        self.queue.beat(consumer)  # makes nobody a consumer who claimed nothing here

    @rule(consumer=st.sampled_from(CONSUMERS))
    def reap(self, consumer: str) -> None:
        assert self.queue.reap(consumer, silent_ms=0) == self.model.reap(consumer)

    @rule(consumer=st.sampled_from(CONSUMERS))
    def reap_who_vanished(self, consumer: str) -> None:
        assert self.queue.reap_dead(consumer) == self.model.reap(consumer, losses=1)

    @precondition(lambda self: any(consumer for consumer, _, _ in self._held()))
    @rule(pick=PICK)
    def begin_probation(self, pick: int) -> None:
        held = [each for each in self._held() if each[0]]
        consumer, fence, item = held[pick % len(held)]

        record = self.queue.store.run(self.queue.calls.begin_probation(fence, consumer))

        item.is_on_probation = True
        assert record is not None
        _check_record(record, item)

    @rule(consumer=st.sampled_from(CONSUMERS))
    def reap_who_is_alive(self, consumer: str) -> None:
        assert self.queue.reap(consumer, silent_ms=AN_HOUR_MS) == 0

    @rule()
    def promote(self) -> None:
        until_next_ms = self.queue.promote()

        self.model.promote()
        assert (until_next_ms == -1) == (not self.model.delayed)

    @rule()
    def expire(self) -> None:
        assert self.queue.expire() == self.model.expire()

    @rule()
    def forget(self) -> None:
        self.queue.forget()
        self.model.guards = {k: guard for k, guard in self.model.guards.items() if guard[1] != "over"}

    # Operators

    @rule(pick=PICK, is_waiting=st.booleans())
    def cancel(self, pick: int, *, is_waiting: bool) -> None:
        items = self.model.waiting() if is_waiting else [item for _, _, item in self._held()]
        message = items[pick % len(items)].id if items else "unknown"

        assert self.queue.cancel(message) == self.model.cancel(message)

    @rule(pick=PICK)
    def revive(self, pick: int) -> None:
        ids = sorted(self.model.dead)[pick % (len(self.model.dead) + 1) :]

        assert self.queue.revive(*ids, "unknown") == self.model.revive(ids)

    @rule(is_paused=st.booleans())
    def pause_or_resume(self, *, is_paused: bool) -> None:
        if is_paused:
            self.queue.pause()
        else:
            self.queue.resume()
        self.model.is_paused = is_paused

    @precondition(lambda self: len(self.model.waiting()) > 8)
    @rule()
    def purge_waiting(self) -> None:
        assert self.queue.purge_waiting() == self.model.purge_waiting()

    @precondition(lambda self: len(self.model.dead) > 2)
    @rule()
    def purge_dead(self) -> None:
        assert self.queue.purge_dead() == self.model.purge_dead()

    @precondition(lambda self: self.calls)
    @rule(pick=PICK)
    def a_call_is_repeated_late(self, pick: int) -> None:
        call, numbering, reply = self.calls[-1 - pick % min(5, len(self.calls))]

        with self._nothing_changes():
            again = self._send(call, numbering)

        if call.script.name in SETTLED_ONCE:
            assert again == reply

    @rule(pick=PICK)
    def find(self, pick: int) -> None:
        states = self._states()
        message = sorted(states)[pick % len(states)] if states else "unknown"

        assert self.queue.find(message).state == states.get(message, "absent")

    # What must hold at any time

    @invariant()
    def each_message_is_where_the_model_says(self) -> None:
        raw = self.raw.read(*CONSUMERS)
        model = self.model

        assert [_id(record) for record in raw.ready] == [item.id if item else "-" for item in model.line]
        _check_records(raw.ready, model.line)
        _check_urgent(raw.urgent, model.urgent)
        assert {_id(record) for record in raw.parcels.values()} == set(model.delayed)
        assert {name.decode() for name, _ in raw.delayed} == set(model.delayed)
        for name, record in raw.parcels.items():
            _check_record(record, model.delayed[name.decode()])
        for consumer, fields in zip(("", *CONSUMERS), raw.held, strict=True):
            held = model.held.get(consumer, {})
            assert {int(fence) for fence in fields} == set(held)
            for fence, record in fields.items():
                _check_record(record, held[int(fence)])
        assert {int(fence) for fence in raw.leases} == set(model.held.get("", {}))
        _check_popped(raw, model)
        assert (
            {name.decode() for name in raw.dead} == set(model.dead) == {name.decode() for name in raw.letters}
        )
        for name, stored in raw.letters.items():
            _check_record(
                stored[stored.index(b" ") + 1 + int(stored.split(b" ")[0]) :], model.dead[name.decode()]
            )

    @invariant()
    def what_is_remembered_is_what_the_model_says(self) -> None:
        raw = self.raw.read(*CONSUMERS)
        model = self.model

        assert {name.decode() for name in raw.deadlines} == set(model.watched)
        assert {name.decode(): _guard(value) for name, value in raw.guards.items()} == {
            key: (holder, state if state == "live" else "timed" if state == "timed" else "over")
            for key, (holder, state) in model.guards.items()
        }
        assert {name.decode(): value.decode() for name, value in raw.results.items()} == model.results
        assert {name.decode() for name in raw.consumers} == model.consumers

    @invariant()
    def counts_agree(self) -> None:
        counts = self.queue.counts()
        model = self.model

        assert (counts.ready, counts.delayed) == (model.ready_count, len(model.delayed))
        assert counts.leased == sum(map(len, model.held.values()))
        assert (counts.delivered, counts.dead) == (len(model.popped), len(model.dead))
        assert counts.is_paused == model.is_paused
        assert counts.totals.get("fence", 0) == model.fence
        assert {name: counts.totals.get(name, 0) for name in model.totals} == dict(model.totals)

    # Helpers

    def _message(
        self,
        *,
        priority: int = 0,
        is_delayed: bool = False,
        has_deadline: bool = False,
        guard: str = "-",
        guard_key: str = "0",
        max_crashes: int | None = 3,
    ) -> tuple[Message, Item, bool]:
        name = f"chosen-{guard_key}" if guard == "i" else f"m-{next(self.numbers)}"
        body = b"body %d" % next(self.numbers)
        key = _guard_of(guard, guard_key, name)
        message = Message(
            id=name,  # type: ignore[arg-type]
            body=body,
            priority=priority,
            due=After(AN_HOUR_MS) if is_delayed else None,
            deadline=After(AN_HOUR_MS) if has_deadline else None,
            guard=key,
            max_crashes=max_crashes,
        )
        item = Item(name, body, priority, guard, key.key if key else "", has_deadline, max_crashes)
        return message, item, is_delayed

    def _run(self, call: Call[Any], *, is_repeated: bool = False) -> Reply:
        """Runs a numbered call on a lane of its own; repeated as after a lost reply, it must do no more."""
        numbering = (f"lane-{next(self.numbers)}", 1)
        reply = self._send(call, numbering)
        if is_repeated:
            with self._nothing_changes():
                assert self._send(call, numbering) == reply
        decoded = call.decode(reply)
        if decoded or call.script.name in SETTLED_ONCE:  # who got nothing may well get something later
            self.calls.append((call, numbering, reply))
        return decoded

    def _send(self, call: Call[Any], numbering: tuple[str, int]) -> Reply:
        return self.store.connection.execute([call.command_with_source(numbering)], call.keys[0])[0]

    @contextmanager
    def _nothing_changes(self) -> Iterator[None]:
        before = self.raw.dump()
        yield
        assert self.raw.dump() == before

    @contextmanager
    def _nothing_changes_but_calls(self) -> Iterator[None]:
        before = self.raw.dump_without_calls()
        yield
        assert self.raw.dump_without_calls() == before

    def _held(self) -> list[tuple[str, int, Item]]:
        return [
            (consumer, fence, item)
            for consumer, held in sorted(self.model.held.items())
            for fence, item in sorted(held.items())
        ]

    def _with_deadline(self) -> list[Item]:
        return [item for item in self.model.watched.values() if not item.has_passed]

    def _states(self) -> dict[str, str]:
        model = self.model
        states = {item.id: "expired" for item in model.waiting() if item.has_passed}
        states |= {item.id: "ready" for item in model.waiting() if not item.has_passed}
        states |= dict.fromkeys(model.dead, "dead")
        kinds = {"S": "succeeded", "C": "cancelled", "E": "expired"}
        states |= {message: kinds[result[0]] for message, result in model.results.items()}
        states |= dict.fromkeys(model.delayed, "delayed")
        states |= {item.id: "leased" for _, _, item in self._held()}
        return states | {item.id: "delivered" for item in model.popped}


def test_any_story_leaves_each_message_in_exactly_one_place(server: RealServer) -> None:
    store = open_store(server.url)
    WorkQueueStates.store, WorkQueueStates.client = store, server.client()

    try:
        run_state_machine_as_test(
            WorkQueueStates,
            settings=settings(
                max_examples=300,
                stateful_step_count=40,
                deadline=None,
                print_blob=True,
                phases=[
                    Phase.explicit,
                    Phase.reuse,
                    Phase.generate,
                    Phase.shrink,
                ],  # explaining takes minutes
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        WorkQueueStates.client.close()
        store.close()


def _guard_of(mode: str, key: str, name: str) -> Guard | None:
    if mode == "-":
        return None
    if mode == "i":
        return chosen_id_guard(name)  # type: ignore[arg-type]
    return unique_guard(f"{mode}{key}", GuardMode(mode), ttl_ms=AN_HOUR_MS if mode == "t" else 0)


def _delivery(fence: int, item: Item) -> Delivery:
    return Delivery(
        fence,
        item.id,  # type: ignore[arg-type]
        "-",  # type: ignore[arg-type]
        item.body,
        0,
        crashes=item.crashes,
        max_crashes=item.max_crashes,
    )


def _settlement(delivery: Delivery, ending: str) -> Settlement:
    match ending:
        case "ack" | "result":
            return Ack(delivery, b"done" if ending == "result" else b"")
        case "back" | "delayed" | "past":
            due = {"back": After(0), "delayed": After(AN_HOUR_MS), "past": At(1)}[ending]
            return RetryAt(delivery, due)
        case "front":
            return Release(delivery)
        case "crash":
            return Crash(delivery)
        case "suspect":
            return Suspect(delivery, "SIGKILL")
        case _:
            return Bury(delivery, "why")


def _by_fence(deliveries: Sequence[Delivery]) -> dict[int, Delivery]:
    return {delivery.fence: delivery for delivery in deliveries}


def _as_delivered(expected: dict[int, Item], deliveries: Sequence[Delivery]) -> dict[int, Item]:
    """The items under the fences they really got; only equals among urgent ones may have changed places."""
    item_by_id = {item.id: item for item in expected.values()}
    given = {delivery.fence: item_by_id[delivery.id] for delivery in deliveries}
    for fence, item in expected.items():
        assert given[fence] is item or (given[fence].priority, given[fence].sequence) == (item.priority, 0)
    return given


def _id(record: bytes) -> str:
    return "-" if record == b"-" else record[25:].split(b" ")[0].decode()


def _check_records(records: Sequence[bytes], items: Sequence[Item | None]) -> None:
    for record, item in zip(records, items, strict=True):
        if item is not None:
            _check_record(record, item)


def _check_record(record: bytes, item: Item) -> None:
    found = decode_record(record, 0)
    assert (found.id, found.body, found.priority) == (item.id, item.body, item.priority)
    assert (found.deliveries, found.failures, found.crashes) == (item.deliveries, item.failures, item.crashes)
    assert (found.losses, found.is_suspect) == (item.losses, item.is_suspect)
    assert is_on_probation(record) == item.is_on_probation
    assert (found.max_crashes, found.deadline_at_ms is not None) == (item.max_crashes, item.has_deadline)


def _check_urgent(raw: Sequence[tuple[bytes, float]], items: Sequence[Item]) -> None:
    scores = {_id(record): score for record, score in raw}
    assert len(scores) == len(raw)
    assert scores == {item.id: (9 - item.priority) * 1e14 + item.sequence for item in items}
    item_by_id = {item.id: item for item in items}
    for record, _ in raw:
        _check_record(record, item_by_id[_id(record)])


def _check_popped(raw: RawState, model: QueueReference) -> None:
    assert [name.decode() for name in raw.delivered] == [item.id for item in model.popped]
    deliveries = {name.decode(): int(text.split(b" ")[1]) for name, text in raw.popped.items()}
    assert deliveries == {item.id: item.deliveries for item in model.popped}


def _guard(value: bytes) -> tuple[str, str]:
    holder, expires_at_ms = value.decode().split(" ")
    if expires_at_ms == "0":
        return holder, "live"
    return holder, "timed" if int(expires_at_ms) > 1_500_000_000_000 else "over"
