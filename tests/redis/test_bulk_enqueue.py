"""Bulk enqueueing: every row of a part is stored once, however its attempts fail, repeat and overlap."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pytest

from mqworker.errors import InvalidArgument, QueueFull, StoreFull, StoreRefused
from mqworker.events import decode_block
from mqworker.model.record import plain_record_tail
from mqworker.queues.work.bulk import (
    BulkPart,
    BulkRun,
    RowsChanged,
    end_run,
    named_call_body,
    plain_call_bodies,
    rows_stored,
)
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.fault_proxy import FaultProxy
from tests.support.messages import a_message, bodies, open_store
from tests.support.raw_queue import RawQueue
from tests.support.real_server import RealServer

ROWS = [b"row %d" % number for number in range(2_500)]


@pytest.fixture
def queue(store: Store) -> WorkQueue:
    return WorkQueue("bulk", store)


def attempt(queue: WorkQueue, part: int = 0, run: str = "run") -> BulkPart:
    return BulkPart(BulkRun(queue.calls.keys, run, "ship"), part)


def add(queue: WorkQueue, part: BulkPart, rows: Sequence[bytes], *, at_once: int = 1_000) -> None:
    for first in range(0, len(rows), at_once):
        queue.store.follow(part.add(rows[first : first + at_once]))


def stored(raw: RawQueue) -> list[bytes]:
    """The bodies in the line, in order."""
    return [record.split(b" ", 2)[2] for record in raw.client.lrange(raw.key("ready"), 0, -1)]


def test_rows_are_stored_as_plain_messages_with_their_events(queue: WorkQueue, raw: RawQueue) -> None:
    part = attempt(queue, 3)
    add(queue, part, ROWS)
    part.end()

    (first, *_) = queue.claim(1)
    records = raw.client.lrange(raw.key("ready"), 0, 0)
    blocks = [entry for _, entry in raw.client.xrange(raw.key("events"))]
    events = [event for block in blocks for event in decode_block("e", block[b"e"])]
    assert (first.id, first.task, first.body) == ("runp3r0", "ship", b"row 0")
    assert records[0][13:] == plain_record_tail(a_message(b"row 1", id="runp3r1", task="ship"))
    assert [int(block[b"n"]) for block in blocks] == [1_000, 1_000, 500]
    assert [event["task_id"] for event in events] == [f"runp3r{row}" for row in range(2_500)]
    assert queue.counts().totals["enqueued"] == part.rows == rows_stored(queue, "run") == 2_500
    assert raw.client.sismember("mqw:queues", "bulk")


@pytest.mark.parametrize("at_once", [1_000, 700, 1])
@pytest.mark.parametrize("done", [0, 1, 999, 1_000, 1_700, 2_500])
def test_an_attempt_goes_on_where_another_stopped(
    queue: WorkQueue, raw: RawQueue, done: int, at_once: int
) -> None:
    rows = ROWS if at_once > 1 else ROWS[:20]
    add(queue, attempt(queue), rows[:done])

    part = attempt(queue)
    add(queue, part, rows, at_once=at_once)
    part.end()

    assert stored(raw) == rows
    assert queue.counts().totals["enqueued"] == len(rows)


def test_two_attempts_side_by_side_store_each_row_once(queue: WorkQueue, raw: RawQueue) -> None:
    chance = random.Random(7)  # noqa: S311 - sizes of batches, nothing secret
    attempts = [(attempt(queue), list(ROWS)) for _ in range(3)]

    while any(rows for _, rows in attempts):
        part, rows = chance.choice([each for each in attempts if each[1]])
        some = chance.randrange(1, 400)
        queue.store.follow(part.add(rows[:some]))
        del rows[:some]

    for part, _ in attempts:
        part.end()
    assert stored(raw) == ROWS


def test_attempts_in_threads_with_lost_replies_store_each_row_once(
    server: RealServer, queue: WorkQueue, raw: RawQueue
) -> None:
    troubles: list[BaseException] = []

    def run(at_once: int, number: int) -> None:
        own = open_store(proxy.url)
        try:
            mine = WorkQueue("bulk", own)
            part = attempt(mine, number)
            add(mine, part, ROWS, at_once=at_once)
            part.end()
        except BaseException as error:  # noqa: BLE001 - told to the test
            troubles.append(error)
        finally:
            own.close()

    with FaultProxy(server.port, lose_every=7) as proxy:
        threads = [threading.Thread(target=run, args=(size, size % 2)) for size in (90, 91, 150, 151)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert troubles == []
        assert proxy.lost > 3
    assert sorted(stored(raw)) == sorted(ROWS * 2)
    assert raw.client.xlen(raw.key("events")) < 2 * 2_500 / 90 * 2
    assert queue.counts().totals["enqueued"] == rows_stored(queue, "run") == 5_000


def test_a_part_that_comes_out_otherwise_is_refused(queue: WorkQueue, raw: RawQueue) -> None:
    add(queue, attempt(queue), ROWS[:1_500])
    before = raw.dump()

    for others in (
        [*ROWS[1:], ROWS[0]],
        [*ROWS[:1_499], b"another", *ROWS[1_500:]],
    ):
        with pytest.raises(RowsChanged, match="part 0 of run run came out otherwise when tried again: among"):
            add(queue, attempt(queue), others)
    short = attempt(queue)
    add(queue, short, ROWS[:600])
    with pytest.raises(RowsChanged, match="ends after 600 rows, and 1,500 are stored"):
        short.end()

    assert raw.dump() == before


def test_an_attempt_that_falls_behind_one_with_other_rows_is_refused(queue: WorkQueue, raw: RawQueue) -> None:
    first, second = attempt(queue), attempt(queue)
    add(queue, first, ROWS[:100])
    add(queue, second, ROWS[:100])
    add(queue, second, [b"x", b"y"])

    with pytest.raises(RowsChanged, match="among the first 102 rows"):
        add(queue, first, ROWS[100:200])

    assert stored(raw) == [*ROWS[:100], b"x", b"y"]


def test_other_parts_runs_and_queues_are_others(queue: WorkQueue, store: Store, raw: RawQueue) -> None:
    elsewhere = WorkQueue("elsewhere", store)
    for where, number, run in ((queue, 0, "a"), (queue, 1, "a"), (queue, 0, "b"), (elsewhere, 0, "a")):
        add(where, attempt(where, number, run), ROWS[:10])

    assert (queue.counts().ready, elsewhere.counts().ready) == (30, 10)
    assert len({record.split(b" ")[0] for record in raw.client.lrange(raw.key("ready"), 0, -1)}) == 30


def test_a_server_that_forgot_the_part_is_told_and_the_next_attempt_begins_anew(
    queue: WorkQueue, raw: RawQueue
) -> None:
    part = attempt(queue)
    add(queue, part, ROWS[:1_000])
    raw.client.flushall()

    with pytest.raises(StoreRefused, match="1,000 rows were stored, and the server knows of 0"):
        add(queue, part, ROWS[1_000:])

    add(queue, attempt(queue), ROWS)
    assert stored(raw) == ROWS


def test_a_length_limit_holds_and_the_part_goes_on_when_there_is_room(
    queue: WorkQueue, raw: RawQueue
) -> None:
    queue.limit(1_500)
    with pytest.raises(QueueFull, match="1000 waiting, 1000 more would pass the limit of 1500"):
        add(queue, attempt(queue), ROWS)
    assert queue.counts().ready == 1_000

    queue.limit(None)
    add(queue, attempt(queue), ROWS)

    assert stored(raw) == ROWS


def test_a_paused_queue_takes_rows_and_hands_none_out(queue: WorkQueue) -> None:
    queue.pause()

    add(queue, attempt(queue), ROWS)

    assert queue.counts().ready == 2_500
    assert queue.claim(10) == []
    queue.resume()
    assert bodies(queue.claim(2)) == ROWS[:2]


def test_a_full_server_takes_nothing_and_the_part_goes_on_later() -> None:
    with RealServer("--maxmemory-policy", "noeviction") as full, full.client() as client:
        store = open_store(full.url)
        queue = WorkQueue("bulk", store)
        raw_full = RawQueue(client, queue.calls.keys)
        add(queue, attempt(queue), ROWS[:1_000])
        client.config_set("maxmemory", 1)
        before = raw_full.dump()

        with pytest.raises(StoreFull):
            add(queue, attempt(queue), ROWS)

        assert raw_full.dump() == before
        client.config_set("maxmemory", 0)
        add(queue, attempt(queue), ROWS)
        assert stored(raw_full) == ROWS
        store.close()


@pytest.mark.parametrize("name", ["meta", "ready", "events", "bulk:run"])
def test_a_foreign_type_changes_nothing(queue: WorkQueue, raw: RawQueue, name: str) -> None:
    kind = raw.client.set if name != "ready" else lambda key, value: raw.client.hset(key, value, value)
    kind(raw.key(name), "foreign")
    raw.client.sadd("mqw:queues", "bulk")
    before = raw.dump()

    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        add(queue, attempt(queue), ROWS)

    assert raw.dump() == before


def test_a_run_that_ended_is_forgotten_sooner_than_one_that_did_not(queue: WorkQueue, raw: RawQueue) -> None:
    add(queue, attempt(queue), ROWS[:10])
    add(queue, attempt(queue, run="other"), ROWS[:10])

    end_run(queue, "run", 600_000)

    assert 0 < raw.client.pttl(raw.key("bulk:run")) <= 600_000
    assert raw.client.pttl(raw.key("bulk:other")) > 6 * 24 * 3_600_000


def test_a_large_row_is_refused_by_its_place_and_large_batches_are_split(
    queue: WorkQueue, raw: RawQueue
) -> None:
    large = [b"x" * 900_000] * 12
    add(queue, attempt(queue), large)
    small = BulkPart(BulkRun(queue.calls.keys, "small", "ship", max_body_bytes=5), 2)

    with pytest.raises(InvalidArgument, match="ship in row 1 of part 2 are 6 bytes; accepted are up to 5"):
        add(queue, small, [b"12345", b"123456"])

    assert stored(raw) == large
    assert [int(entry[b"n"]) for _, entry in raw.client.xrange(raw.key("events"))] == [4, 4, 4]


@pytest.mark.parametrize("run", ["", "a b", "a-b", "x" * 65, "é"])
def test_an_impossible_name_of_a_run_is_refused(queue: WorkQueue, run: str) -> None:
    with pytest.raises(InvalidArgument, match="run is "):
        attempt(queue, run=run)


def test_plain_columns_make_the_bytes_of_the_rows() -> None:
    columns = {
        "number": [0, -1, 2**63 - 1, None],
        "100 %": ["", "ä" * 300, "%b", None],
        "is_new": [True, False, None, True],
        "ratio": [0.5, -1e300, None, 3.0],
        "raw": [b"", b"\x00" * 70_000, None, b"%%"],
        **{f"column {number}": [number] * 4 for number in range(30)},
    }

    quick = plain_call_bodies(list(columns), list(columns.values()))

    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert quick == [named_call_body("ship", row) for row in rows]
