"""The five verbs of the RedisMQ document, case by case (ids as in the conformance cases), and at random."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from redis.crc import key_slot

from mqworker.errors import InvalidArgument, StoreRefused, UnknownQueue
from mqworker.model.names import ConsumerName
from mqworker.queues.work.queue import WorkQueue
from tests.support.deadline import wait_until
from tests.support.messages import a_message, bodies, open_store
from tests.support.raw_queue import LONG_AGO_MS, RawQueue
from tests.support.real_cluster import RealCluster

A_DAY_MS = 86_400_000


def elements(popped: list[tuple[str, bytes]] | None) -> list[bytes]:
    """What was delivered, without the ids."""
    assert popped is not None
    return [element for _, element in popped]


def deliver_earlier(raw: RawQueue, *messages: str, ms: int) -> None:
    """Let it be that long ago that elements were delivered."""
    for message in messages:
        at_ms, rest = raw.client.hget(raw.key("popped"), message).split(b" ", 1)
        raw.client.hset(raw.key("popped"), message, b"%d %b" % (int(at_ms) - ms, rest))


def test_push_gives_increasing_ids_of_one_millisecond(queue: WorkQueue) -> None:
    """R01."""
    ids = queue.push(b"a", b"b", b"c")

    assert [re.fullmatch(r"(\d{13})-([123])", item) is not None for item in ids] == [True] * 3
    assert [item.split("-")[1] for item in ids] == ["1", "2", "3"]
    assert len({item.split("-")[0] for item in ids}) == 1
    assert queue.inspect(0, 10) == list(zip(ids, [b"a", b"b", b"c"], strict=True))


def test_pop_delivers_the_oldest_and_leaves_the_rest(queue: WorkQueue) -> None:
    """R02."""
    ids = queue.push(b"a", b"b", b"c")

    popped = queue.pop(2)

    assert popped == [(ids[0], b"a"), (ids[1], b"b")]
    assert elements(queue.inspect(0, 10)) == [b"c"]
    pending = queue.inspect_pending(0, 10)
    assert [(item.id, item.element, item.deliveries) for item in pending] == [
        (ids[0], b"a", 1),
        (ids[1], b"b", 1),
    ]


def test_pop_gives_what_there_is_then_nothing_and_none_without_a_queue(queue: WorkQueue) -> None:
    """R03."""
    missing = queue.pop(10)
    queue.push(b"a")

    assert missing is None
    assert elements(queue.pop(10)) == [b"a"]
    assert queue.pop(10) == []


def test_ack_names_the_ids_it_removed_each_once(queue: WorkQueue) -> None:
    """R04."""
    first, _ = queue.push(b"a", b"b")
    queue.pop(2)

    acked = queue.ack(first, first, "9-9", "bogus", "with space", "")

    assert acked == [first]
    assert [item.element for item in queue.inspect_pending(0, 10)] == [b"b"]


def test_an_undelivered_element_cannot_be_acked(queue: WorkQueue) -> None:
    """R05."""
    (waiting,) = queue.push(b"c")

    acked = queue.ack(waiting)

    assert acked == []
    assert elements(queue.pop()) == [b"c"]


def test_recover_delivers_the_oldest_deliveries_again_and_puts_them_last(
    queue: WorkQueue, raw: RawQueue
) -> None:
    """R06."""
    ids = queue.push(b"a", b"b", b"c", b"d")
    queue.pop(3)
    deliver_earlier(raw, *ids[:3], ms=1_000)
    queue.pop()

    recovered = queue.recover(2, 1_000)

    assert elements(recovered) == [b"a", b"b"]
    pending = queue.inspect_pending(0, 10)
    assert [item.element for item in pending] == [b"c", b"d", b"a", b"b"]
    assert [item.deliveries for item in pending] == [1, 1, 2, 2]
    assert pending[2].elapsed_ms < 1_000


def test_recover_never_gives_an_element_twice_in_one_call(queue: WorkQueue) -> None:
    """The original returned seven elements out of three."""
    queue.push(b"a", b"b", b"c")
    queue.pop(3)

    recovered = queue.recover(7, 0)

    assert elements(recovered) == [b"a", b"b", b"c"]


def test_recover_of_nothing_changes_nothing(queue: WorkQueue, raw: RawQueue) -> None:
    """R08."""
    missing = queue.recover(5, 0)
    queue.push(b"a")
    queue.pop()
    before = raw.dump_without_calls()

    too_young, none_wanted, negative = queue.recover(5, A_DAY_MS), queue.recover(0, 0), queue.recover(-3, 0)

    assert missing is None
    assert (too_young, none_wanted, negative) == ([], [], [])
    assert raw.dump_without_calls() == before


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [
        (-2, 2, [b"3", b"4"]),
        (-6, 1, []),
        (5, 1, []),
        (-5, 1, [b"0"]),
        (4, 9, [b"4"]),
        (-1, 9, [b"4"]),
        (0, 2**53, [b"0", b"1", b"2", b"3", b"4"]),
    ],
)
def test_inspect_by_position(queue: WorkQueue, start: int, count: int, expected: list[bytes]) -> None:
    """R10."""
    queue.push(b"0", b"1", b"2", b"3", b"4")

    assert elements(queue.inspect(start, count)) == expected


@pytest.mark.parametrize(("start", "count"), [(0, 0), (0, -1), (0.0, 1), (0, True), ("0", 1), (0, 2**63)])
def test_inspect_refuses_a_count_or_start_that_is_none(queue: WorkQueue, start: int, count: int) -> None:
    """R10."""
    queue.push(b"0")

    with pytest.raises(InvalidArgument):
        queue.inspect(start, count)
    with pytest.raises(InvalidArgument):
        queue.inspect_pending(start, count)


def test_inspect_of_a_queue_that_never_was_is_an_error(queue: WorkQueue) -> None:
    with pytest.raises(UnknownQueue):
        queue.inspect(0, 1)
    with pytest.raises(UnknownQueue):
        queue.inspect_pending(0, 1)


def test_a_foreign_key_of_that_name_is_refused_and_unchanged(queue: WorkQueue, raw: RawQueue) -> None:
    """R11."""
    raw.client.set("q", "foreign")
    before = raw.dump()

    for verb in (
        lambda: queue.calls.push([b"a"]),
        lambda: queue.calls.pop(1),
        lambda: queue.calls.ack(["1-1"]),
        lambda: queue.calls.recover(1, 0),
        lambda: queue.calls.inspect(0, 1),
        lambda: queue.calls.inspect_pending(0, 1),
    ):
        with pytest.raises(StoreRefused, match="WRONGTYPE"):
            queue.store.run(verb())

    assert raw.dump() == before


def test_long_elements_are_looked_at_and_recovered_a_few_at_a_time(queue: WorkQueue) -> None:
    long = [b"%02d" % number + b"x" * 1_000_000 for number in range(20)]
    queue.push(*long[:10])
    queue.push(*long[10:])

    seen = elements(queue.inspect(0, 20))
    rest = elements(queue.inspect(len(seen), 20))
    while queue.pop(20):
        pass
    pending = [item.element for item in queue.inspect_pending(0, 20)]
    again = [elements(queue.recover(20, 0)) for _ in range(3)]

    assert seen == pending == again[0] == long[: len(seen)]
    assert len(seen) == 8
    assert rest == again[1] == long[8:16]
    assert again[2][:4] == long[16:]


def test_inspecting_an_empty_queue_beyond_its_end_is_harmless(queue: WorkQueue) -> None:
    """R12."""
    (item,) = queue.push(b"a")
    queue.pop()
    queue.ack(item)

    assert queue.inspect(1, 1) == []
    assert queue.inspect_pending(3, 1) == []


def test_ids_grow_after_everything_was_acked_and_when_the_clock_is_set_back(
    queue: WorkQueue, raw: RawQueue
) -> None:
    """R13."""
    first = queue.push(b"a")
    queue.pop()
    queue.ack(*first)
    ahead_ms = LONG_AGO_MS * 3
    raw.client.hset(raw.key("meta"), mapping={"newest_ms": ahead_ms, "newest_sequence": 41})

    second = queue.push(b"b", b"c")

    assert second == [f"{ahead_ms}-42", f"{ahead_ms}-43"]


@pytest.mark.parametrize("element", [b"", b"a\x00b\r\nc", b"\x00\xff" * 524_288, b"-", b" "])
def test_elements_come_out_as_they_went_in(queue: WorkQueue, element: bytes) -> None:
    """R14."""
    queue.push(element)

    inspected = elements(queue.inspect(0, 1))
    popped = elements(queue.pop())

    assert inspected == popped == [element]
    assert queue.inspect_pending(0, 1)[0].element == element
    assert elements(queue.recover(1, 0)) == [element]


def test_text_is_pushed_as_utf_8(queue: WorkQueue) -> None:
    queue.push("žluťoučký")

    assert elements(queue.pop()) == ["žluťoučký".encode()]


def test_pending_elements_tell_when_they_were_delivered(queue: WorkQueue, raw: RawQueue) -> None:
    """R16."""
    (item,) = queue.push(b"a")
    queue.pop()
    deliver_earlier(raw, item, ms=5_000)
    seconds, microseconds = raw.client.time()
    now_ms = seconds * 1_000 + microseconds // 1_000

    (pending,) = queue.inspect_pending(0, 1)

    assert [type(value) for value in (pending.id, pending.element)] == [str, bytes]
    assert abs(now_ms - pending.last_delivery_ms - pending.elapsed_ms) <= 50
    assert 5_000 <= pending.elapsed_ms < 6_000
    assert pending.deliveries == 1


def test_four_clients_popping_at_once_never_get_the_same(queue: WorkQueue) -> None:
    """R17."""
    ids = [item for _ in range(10) for item in queue.push(*[b"x"] * 1_000)]

    def pop_until_empty(_: int) -> list[str]:
        mine: list[str] = []
        while popped := queue.pop(13):
            mine += [item for item, _ in popped]
        return mine

    with ThreadPoolExecutor(4) as threads:
        shares = list(threads.map(pop_until_empty, range(4)))

    assert sorted(item for share in shares for item in share) == sorted(ids)


def test_delivered_elements_are_never_redelivered_by_themselves(queue: WorkQueue, raw: RawQueue) -> None:
    """R18."""
    (item,) = queue.push(b"a")
    queue.pop()
    deliver_earlier(raw, item, ms=A_DAY_MS)

    queue.reclaim()
    queue.promote()
    queue.expire()
    queue.forget()

    assert queue.pop() == []
    assert queue.claim() == []
    assert [pending.id for pending in queue.inspect_pending(0, 10)] == [item]


def test_claim_and_pop_share_the_line_and_leave_each_other_alone(queue: WorkQueue) -> None:
    queue.push(b"pushed")
    queue.enqueue(a_message(b"enqueued"))

    claimed = queue.claim()
    popped = queue.pop()

    assert bodies(claimed) == [b"pushed"]
    assert elements(popped) == [b"enqueued"]
    assert queue.ack(claimed[0].id) == []
    assert queue.counts().leased == 1
    assert queue.counts().delivered == 1


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "1", 2**63])
def test_pop_refuses_a_count_that_is_none(queue: WorkQueue, count: int) -> None:
    queue.push(b"a")

    with pytest.raises(InvalidArgument):
        queue.pop(count)


def test_push_and_ack_want_at_least_one(queue: WorkQueue) -> None:
    with pytest.raises(InvalidArgument):
        queue.push()
    with pytest.raises(InvalidArgument):
        queue.ack()


@dataclass
class ListQueue:
    """The reference: the document's two lists and nothing else."""

    undelivered: list[tuple[str, bytes]] = field(default_factory=list)
    delivered: list[list[object]] = field(default_factory=list)

    def pop(self, count: int) -> list[tuple[str, bytes]]:
        popped, self.undelivered = self.undelivered[:count], self.undelivered[count:]
        self.delivered += [[item, element, 1] for item, element in popped]
        return popped

    def ack(self, ids: list[str]) -> list[str]:
        acked = []
        for item in ids:
            if any(entry[0] == item for entry in self.delivered):
                self.delivered = [entry for entry in self.delivered if entry[0] != item]
                acked.append(item)
        return acked

    def recover(self, count: int) -> list[tuple[object, object]]:
        count = max(0, count)
        again, rest = self.delivered[:count], self.delivered[count:]
        self.delivered = rest + [[item, element, int(str(times)) + 1] for item, element, times in again]
        return [(item, element) for item, element, _ in again]


def _window(entries: list[object], start: int, count: int) -> list[object]:
    first = len(entries) + start if start < 0 else start
    return entries[first : first + count] if 0 <= first < len(entries) else []


def test_six_thousand_random_operations_answer_as_two_lists_would(queue: WorkQueue) -> None:
    """R15."""
    chance, model, operations = random.Random(15), ListQueue(), 0  # noqa: S311 - a story, no secret
    newest = ""
    queue.push(b"first")
    model.undelivered = list(queue.inspect(0, 1))

    while operations < 6_000:
        operations += 1
        match chance.choice(["push", "pop", "pop", "ack", "ack", "recover", "inspect", "pending"]):
            case "push":
                given = [chance.randbytes(chance.randrange(20)) for _ in range(chance.randint(1, 4))]
                ids = queue.push(*given)
                assert all(_order(item) > _order(newest or "0-0") for item in ids)
                newest = ids[-1]
                model.undelivered += zip(ids, given, strict=True)
            case "pop":
                count = chance.randint(1, 4)
                assert queue.pop(count) == model.pop(count)
            case "ack":
                known = [str(entry[0]) for entry in model.delivered] + ["1-1"]
                known += [item for item, _ in model.undelivered[:2]]
                ids = chance.choices(known, k=chance.randint(1, 4))
                assert queue.ack(*ids) == model.ack(ids)
            case "recover":
                count = chance.randint(-1, 4)
                assert queue.recover(count, 0) == model.recover(count)
            case "inspect":
                start, count = chance.randint(-8, 8), chance.randint(1, 6)
                assert queue.inspect(start, count) == _window(list(model.undelivered), start, count)
            case "pending":
                start, count = chance.randint(-8, 8), chance.randint(1, 6)
                pending = queue.inspect_pending(start, count)
                seen = [[item.id, item.element, item.deliveries] for item in pending]
                assert seen == _window(list(model.delivered), start, count)

    assert operations >= 5_000


def _order(item: str) -> tuple[int, int]:
    ms, sequence = item.split("-")
    return int(ms), int(sequence)


def test_script_flush_in_the_middle_is_not_noticed(queue: WorkQueue, raw: RawQueue) -> None:
    """X04."""
    queue.push(b"a", b"b")
    raw.client.script_flush()

    popped = queue.pop()
    raw.client.script_flush()

    assert popped is not None
    assert queue.ack(popped[0][0]) == [popped[0][0]]
    wait_until(lambda: queue.counts().delivered == 0, "the ack counted")


def test_all_keys_of_a_queue_lie_in_one_slot(queue: WorkQueue) -> None:
    """X02."""
    keys = queue.calls.keys

    slots = {key_slot(key.encode()) for key in (*keys.rqueue, keys.held(None), keys.held(ConsumerName("a")))}

    assert len(slots) == 1


def test_the_verbs_work_on_a_cluster() -> None:
    """X02."""
    with RealCluster() as cluster:
        store = open_store(cluster.url)
        for name in ("one", "two", "three", "four"):
            queue = WorkQueue(name, store)
            first, second = queue.push(b"a", b"b")
            assert elements(queue.pop(2)) == [b"a", b"b"]
            assert elements(queue.recover(1, 0)) == [b"a"]
            assert [item.id for item in queue.inspect_pending(0, 9)] == [second, first]
            assert queue.ack(first, second) == [first, second]
            assert queue.inspect(0, 9) == []
        store.close()
