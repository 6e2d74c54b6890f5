"""How many run at once, against a model, after every step of a random story.

The slots that are occupied are those of what is held, no limit is passed, order is kept, and nobody waits
for a free slot. Nothing waits: leases, delays and deadlines are aged by writing into the past.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mqworker.model.delivery import Delivery
from mqworker.model.instant import After
from mqworker.model.message import Message
from mqworker.model.settlement import Ack, Bury, Crash, Failure, Park, Release, RetryAt, Settlement, Suspect
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.messages import AN_HOUR_MS, open_store
from tests.support.raw_queue import LONG_AGO_MS, RawQueue
from tests.support.real_server import RealServer

QUEUES = ("a", "b")
CONSUMERS = ("north", "south")
ONE, TWO, STACKED, OTHER = "t:one<=1", "t:two<=2", "t<=3|t:one<=1", "t<=3|t:two<=2"
TURNS = ("fair=1~x|t<=3", "fair=2~y|t<=3")
RATED = "t:two<=2|r=1000/1000/1000"
SHARED = ("$s<=2", "$s<=2|t<=3", "$s<=2|$s:k<=1")
LIMITS = (ONE, TWO, STACKED, OTHER, *TURNS, RATED, *SHARED)
ALL_SLOTS = re.compile(r"([^=|<]+)<=(\d+)")
PICK = st.integers(0, 1_000)
NEEDS_PERMIT = 8.9e15


class Slots(RuleBasedStateMachine):
    """Every verb that begins or ends a delivery, in two queues that share a limit."""

    store: ClassVar[Store]
    client: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        options = WorkQueueOptions(dedup_window_ms=AN_HOUR_MS, permit_ms=AN_HOUR_MS)
        self.queues = {name: WorkQueue(name, self.store, options) for name in QUEUES}
        self.raws = {name: RawQueue(self.client, queue.calls.keys) for name, queue in self.queues.items()}
        self.numbers = itertools.count(1)
        self.limits: dict[str, str] = {}
        """Of every message that was ever enqueued."""
        self.waiting: dict[tuple[str, str], list[str]] = {}
        """By queue and limits, in order."""
        self.held: dict[tuple[str, str], dict[int, Any]] = {}
        self.most: dict[str, int] = {}
        """What was set at run time."""
        self.passed: set[str] = set()
        """Whose deadlines have passed."""

    # In

    @rule(
        queue=st.sampled_from(QUEUES),
        limits=st.lists(st.sampled_from((*LIMITS, "")), min_size=1, max_size=5),
        has_deadline=st.booleans(),
        priority=st.sampled_from((0, 0, 5)),
        consumer=st.sampled_from((None, None, "", *CONSUMERS)),
    )
    def enqueue(
        self, queue: str, limits: list[str], *, has_deadline: bool, priority: int, consumer: str | None
    ) -> None:
        messages = [
            Message(
                f"m{next(self.numbers):04}",  # type: ignore[arg-type]
                b"x",
                priority=priority,
                limits=each or None,
                deadline=After(AN_HOUR_MS) if has_deadline else None,
            )
            for each in limits
        ]
        self.limits |= {message.id: message.limits or "" for message in messages}
        for message in messages:
            if message.limits:
                self.waiting.setdefault((queue, message.limits), []).append(message.id)
        self.queues[queue].enqueue(*messages)
        self.admit(queue, 100)
        if consumer is not None:
            self.claim(queue, 100, consumer)

    @rule(queue=st.sampled_from(QUEUES), room=st.sampled_from((1, 2)))
    def let_some_in(self, queue: str, room: int) -> None:
        self.admit(queue, room)

    def admit(self, queue: str, room: int) -> None:
        self.queues[queue].admit(room)
        self._note_admitted()

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 6), consumer=st.sampled_from(("", *CONSUMERS)))
    def take_some(self, queue: str, count: int, consumer: str) -> None:
        self.claim(queue, count, consumer)

    def claim(self, queue: str, count: int, consumer: str) -> None:
        deliveries = self.queues[queue].claim(count, consumer=consumer or None, lease_ms=AN_HOUR_MS)
        held = self.held.setdefault((queue, consumer), {})
        held |= {each.fence: each for each in deliveries}

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 3))
    def pop(self, queue: str, count: int) -> None:
        self.queues[queue].pop(count)

    # Ends

    @precondition(lambda self: self._held())
    @rule(
        picks=st.lists(PICK, min_size=1, max_size=4, unique=True),
        endings=st.lists(
            st.sampled_from(
                ("ack", "ack", "now", "delayed", "park", "release", "release", "crash", "suspect", "bury")
            ),
            min_size=4,
            max_size=4,
        ),
    )
    def settle(self, picks: list[int], endings: list[str]) -> None:
        all_held = self._held()
        queue, consumer, _ = all_held[picks[0] % len(all_held)]
        own = [fence for name, holder, fence in all_held if (name, holder) == (queue, consumer)]
        fences = sorted({own[pick % len(own)] for pick in picks})
        held = self.held[queue, consumer]
        deliveries = [held.pop(fence) for fence in fences]
        ended = list(zip(deliveries, endings, strict=False))
        settlements = [_settlement(each, ending) for each, ending in ended]
        back = [
            (each.id, ending)
            for each, ending in ended
            if self.limits[each.id] and not self._is_stopped(queue, each.id)
        ]
        for message, ending in back:
            if ending == "now":
                self.waiting.setdefault((queue, self.limits[message]), []).append(message)
        in_front = [each for each, ending in back if ending in {"release", "crash", "suspect"}]
        self._put_in_front(queue, in_front)

        assert self.queues[queue].settle(*settlements, consumer=consumer or None) == []
        self._note_admitted()

    @precondition(lambda self: self._held())
    @rule(pick=PICK)
    def ask_to_stop(self, pick: int) -> None:
        queue, consumer, fence = self._held()[pick % len(self._held())]
        message = self.held[queue, consumer][fence].id
        self.store.run(self.queues[queue].calls.request_cancel(message))

    @rule(
        queue=st.sampled_from(QUEUES),
        consumer=st.sampled_from(CONSUMERS),
        is_loss=st.booleans(),
        is_stopped=st.booleans(),
    )
    def reap(self, queue: str, consumer: str, *, is_loss: bool, is_stopped: bool) -> None:
        held = self.held.pop((queue, consumer), {})
        for fence in sorted(held)[: 2 * is_stopped]:
            self.store.run(self.queues[queue].calls.request_cancel(held[fence].id))
        self._return(queue, [held[fence] for fence in sorted(held)])
        if is_loss:
            self.queues[queue].reap_dead(consumer)
        else:
            self.queues[queue].reap(consumer, silent_ms=0)
        self._note_admitted()

    @rule(queue=st.sampled_from(QUEUES), picks=st.lists(PICK, max_size=3), is_stopped=st.booleans())
    def leases_end(self, queue: str, picks: list[int], *, is_stopped: bool) -> None:
        held = self.held.get((queue, ""), {})
        ended = sorted({sorted(held)[pick % len(held)] for pick in picks}) if held else []
        for fence in ended[: 2 * is_stopped]:
            self.store.run(self.queues[queue].calls.request_cancel(held[fence].id))
        for fence in ended:
            self.raws[queue].end_lease(fence)
        self._return(queue, [delivery for fence in ended if (delivery := held.pop(fence)).crashes < 2])
        self.queues[queue].reclaim()
        self._note_admitted()

    @rule(queue=st.sampled_from(QUEUES), is_acked=st.booleans())
    def end_what_was_popped(self, queue: str, *, is_acked: bool) -> None:
        ids = [each.decode() for each in self.client.zrange(self.raws[queue].key("delivered"), 0, -1)][:2]
        if not ids:
            return
        if is_acked:
            self.queues[queue].ack(*ids)
            return
        self._put_in_front(queue, [each for each in ids if self._needs_permit(each)])
        self.store.run(self.queues[queue].calls.put_back(ids))

    @rule(queue=st.sampled_from(QUEUES), pick=PICK)
    def cancel(self, queue: str, pick: int) -> None:
        ids = sorted(self.limits)
        if ids and self.queues[queue].cancel(ids[pick % len(ids)]):
            self._forget_waiting(ids[pick % len(ids)])

    @rule(queue=st.sampled_from(QUEUES), pick=PICK, is_seen=st.booleans())
    def deadline_passes(self, queue: str, pick: int, *, is_seen: bool) -> None:
        watched = sorted(self.client.zrange(self.raws[queue].key("deadlines"), 0, -1))
        if watched:
            message = watched[pick % len(watched)].decode()
            self.raws[queue].pass_deadline(message, next(self.numbers))
            self.passed.add(message)
            if is_seen:
                self.queues[queue].expire()
                for each in self.passed:
                    if self._is_over(queue, each):
                        self._forget_waiting(each)

    @precondition(lambda self: self.client.hlen(self.raws["a"].key("slots")) > 1)
    @rule()
    def purge(self) -> None:
        self.queues["a"].purge_waiting()
        for (queue, _), ids in self.waiting.items():
            if queue == "a":
                ids.clear()

    @rule(queue=st.sampled_from(QUEUES))
    def delays_end(self, queue: str) -> None:
        raw = self.raws[queue]
        order = 0
        for message, score in self.client.zrange(raw.key("delayed"), 0, -1, withscores=True):
            if score < NEEDS_PERMIT:
                order += 1
                raw.end_delay(message.decode(), order)
                if self.limits[message.decode()]:
                    place = (queue, self.limits[message.decode()])
                    self.waiting.setdefault(place, []).append(message.decode())
        self.queues[queue].promote()

    @rule(queue=st.sampled_from(QUEUES))
    def revive(self, queue: str) -> None:
        dead = [each.decode() for each in self.client.zrange(self.raws[queue].key("dead"), 0, -1)]
        for each in self.queues[queue].revive(*dead[:2]) if dead else ():
            if self.limits[each]:
                self.waiting.setdefault((queue, self.limits[each]), []).append(each)

    # Time and people

    @rule(queue=st.sampled_from(QUEUES))
    def permits_end(self, queue: str) -> None:
        """Whatever was let in and not claimed comes back when somebody claims."""
        raw = self.raws[queue]
        stale = b"%013d+1;" % LONG_AGO_MS
        records = self.client.lrange(raw.key("ready"), 0, -1)
        for position, record in enumerate(records):
            self.client.lset(raw.key("ready"), position, re.sub(rb"\d{13}\+\d+;", stale, record))
        for record, score in self.client.zrange(raw.key("urgent"), 0, -1, withscores=True):
            aged = re.sub(rb"\d{13}\+\d+;", stale, record)
            self.client.zrem(raw.key("urgent"), record)
            self.client.zadd(raw.key("urgent"), {aged: score})
        urgent = [record for record, _ in self.client.zrange(raw.key("urgent"), 0, -1, withscores=True)]
        returned = [record[25:].split(b" ")[0].decode() for record in (*urgent, *records) if record != b"-"]
        returned = [each for each in returned if self._needs_permit(each) and each not in self.passed]
        deliveries = self.queues[queue].claim(1_000, consumer="north", lease_ms=1)
        self.held.setdefault((queue, "north"), {}).update({each.fence: each for each in deliveries})
        taken = {each.id for each in deliveries}
        self._put_in_front(queue, [each for each in returned if each not in taken])

    @rule(name=st.sampled_from(("t", "t:one", "$s")), most=st.sampled_from((0, 1, 4)))
    def set_at_run_time(self, name: str, most: int) -> None:
        for queue in self.queues.values() if name[0] != "$" else (self.queues["a"],):
            self.store.run(queue.calls.set_limit(name, most or None))
        if most:
            self.most[name] = most
        else:
            self.most.pop(name, None)

    @rule(queue=st.sampled_from(QUEUES))
    def repair_finds_nothing(self, queue: str) -> None:
        self.queues[queue].repair()

        assert self.client.hget(self.raws[queue].key("meta"), "slots_repaired") is None

    # What must hold at any time

    @invariant()
    def slots_are_those_of_what_is_held(self) -> None:
        counts: Counter[str] = Counter()
        for name, raw in self.raws.items():
            occupied = self._let_in(name)
            slots = self.client.hgetall(raw.key("slots"))
            assert {each.decode() for each in slots} == occupied
            self._check_places(name, {each.decode(): text.split(b" ")[0] for each, text in slots.items()})
            own: Counter[str] = Counter()
            for message in occupied:
                own.update(limit for limit, _ in ALL_SLOTS.findall(self.limits[message]))
            local = {limit: count for limit, count in own.items() if limit[0] != "$"}
            assert _numbers(self.client.hgetall(raw.key("running"))) == local
            counts.update({limit: count for limit, count in own.items() if limit[0] == "$"})
        shared = _numbers(self.client.hgetall("mqw:{limit:s}:running"))
        assert {limit: count for limit, count in shared.items() if " " not in limit} == dict(counts)

    @invariant()
    def waiting_is_in_order(self) -> None:
        for (queue, limits), expected in self.waiting.items():
            raw = self.raws[queue]
            listed = [each.decode() for each in self.client.lrange(raw.key(f"limited:{limits}"), 0, -1)]
            assert [each for each in listed if self._waits(queue, each)] == expected

    @invariant()
    def who_waits_has_a_turn_or_waits_for_a_full_limit(self) -> None:
        for (queue, limits), ids in self.waiting.items():
            turn = self.client.zscore(self.raws[queue].key("limits"), limits)
            assert not ids or turn is not None
            if ids and turn >= 8e15:
                names = [name for name, _ in ALL_SLOTS.findall(limits)]
                entries = [
                    (name, entry)
                    for name in names
                    for entry in self.client.lrange(self._home(queue, name) + f"blocked:{name}", 0, -1)
                    if entry.decode().split(" ")[1] == limits
                ]
                assert any(
                    self._is_full(queue, name, limits) or self._is_carried_on(name) for name, _ in entries
                )

    @rule()
    def nobody_waits_for_a_free_slot(self) -> None:
        for _ in range(4):
            for queue in self.queues.values():
                queue.admit(1_000)
        self._note_admitted()
        for (queue, limits), ids in self.waiting.items():
            names = [name for name, _ in ALL_SLOTS.findall(limits)]
            assert not ids or any(self._is_full(queue, name, limits) for name in names), (queue, limits, ids)

    # Helpers

    def _home(self, queue: str, name: str) -> str:
        return "mqw:{limit:s}:" if name[0] == "$" else f"mqw:{{{queue}}}:"

    def _count(self, queue: str, name: str) -> int:
        return int(self.client.hget(self._home(queue, name) + "running", name) or 0)

    def _most(self, name: str, limits: str) -> int:
        return self.most.get(
            name, dict(ALL_SLOTS.findall(limits))[name] and int(dict(ALL_SLOTS.findall(limits))[name])
        )

    def _is_full(self, queue: str, name: str, limits: str) -> bool:
        return self._count(queue, name) >= self._most(name, limits)

    def _is_carried_on(self, name: str) -> bool:
        """Whether others that need the same limit have their turn: each visit wakes the next."""
        for queue in QUEUES:
            for limits, turn in self.client.zrange(self.raws[queue].key("limits"), 0, -1, withscores=True):
                if turn < 8e15 and name in dict(ALL_SLOTS.findall(limits.decode())):
                    return True
        return False

    def _needs_permit(self, message: str) -> bool:
        return bool(ALL_SLOTS.search(self.limits[message]))

    def _is_over(self, queue: str, message: str) -> bool:
        return self.client.hget(self.raws[queue].key("results"), message) == b"E"

    def _is_stopped(self, queue: str, message: str) -> bool:
        return self.client.hget(self.raws[queue].key("results"), message) == b"X"

    def _waits(self, queue: str, message: str) -> bool:
        score = self.client.zscore(self.raws[queue].key("delayed"), message)
        return score is not None and score > NEEDS_PERMIT

    def _let_in(self, queue: str) -> set[str]:
        """Messages with slots in the ready line, held or popped; but not those that are over."""
        raw = self.raws[queue].read(*CONSUMERS)
        records = [*raw.ready, *(record for record, _ in raw.urgent)]
        records += [record for held in raw.held for record in held.values()]
        records += [text.split(b" ", 2)[2] for text in raw.popped.values()]
        ids = [record[25:].split(b" ")[0].decode() for record in records if record != b"-"]
        return {each for each in ids if self._needs_permit(each) and not self._is_over(queue, each)}

    def _check_places(self, queue: str, place_by_id: dict[str, bytes]) -> None:
        for consumer in ("", *CONSUMERS):
            for fence, each in self.held.get((queue, consumer), {}).items():
                if self._needs_permit(each.id):
                    assert place_by_id.pop(each.id) == f"{fence}@{consumer}".encode()
        for each in self.client.zrange(self.raws[queue].key("delivered"), 0, -1):
            assert place_by_id.pop(each.decode(), b"popped") == b"popped"
        assert all(place.startswith(b"+") for place in place_by_id.values())

    def _note_admitted(self) -> None:
        """What was let in was in front of the others with its limits, and passed no limit."""
        for (queue, limits), ids in self.waiting.items():
            left = [each for each in ids if self._waits(queue, each)]
            assert ids[len(ids) - len(left) :] == left
            for name, _ in ALL_SLOTS.findall(limits):
                count = self._count(queue, name)
                if len(left) < len(ids):
                    assert count <= self._most(name, limits)
            ids[:] = left

    def _return(self, queue: str, deliveries: list[Any]) -> None:
        ids = [each.id for each in deliveries if not self._is_stopped(queue, each.id)]
        self._put_in_front(queue, [each for each in ids if self._needs_permit(each)])

    def _put_in_front(self, queue: str, ids: list[str]) -> None:
        for each in reversed(ids):
            if self._needs_permit(each):
                self.waiting.setdefault((queue, self.limits[each]), []).insert(0, each)

    def _forget_waiting(self, message: str) -> None:
        for ids in self.waiting.values():
            if message in ids:
                ids.remove(message)

    def _held(self) -> list[tuple[str, str, int]]:
        return [
            (queue, consumer, fence)
            for (queue, consumer), held in sorted(self.held.items())
            for fence in sorted(held)
        ]


def test_slots_are_exact_in_any_story(server: RealServer) -> None:
    store = open_store(server.url)
    Slots.store, Slots.client = store, server.client()
    try:
        run_state_machine_as_test(
            Slots,
            settings=settings(
                max_examples=150,
                stateful_step_count=40,
                deadline=None,
                print_blob=True,
                phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        Slots.client.close()
        store.close()


def _numbers(fields: dict[bytes, bytes]) -> dict[str, int]:
    return {name.decode(): int(value) for name, value in fields.items()}


def _settlement(delivery: Delivery, ending: str) -> Settlement:
    match ending:
        case "ack":
            return Ack(delivery)
        case "now" | "delayed":
            return RetryAt(delivery, After(0 if ending == "now" else AN_HOUR_MS), Failure("X"))
        case "park":
            return Park(delivery, After(AN_HOUR_MS), Failure("X"))
        case "release":
            return Release(delivery)
        case "crash":
            return Crash(delivery)
        case "suspect":
            return Suspect(delivery, "SIGKILL")
        case _:
            return Bury(delivery, "why")
