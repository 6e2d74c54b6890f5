"""Streams of events: how far they reach, what is in them, and what is dropped when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker import App
from mqworker.errors import InvalidArgument
from mqworker.events import BEGINNING, EventStreams, StreamTail, decode_block, open_event_streams
from mqworker.queues.work.bulk import NamedCalls
from mqworker.settings import load_settings
from tests.support.real_server import RealServer


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    application = App("shop", settings=load_settings({"redis_url": server.url, "events_kept": 100}))
    yield application
    application.close()


@pytest.fixture
def streams(app: App) -> Iterator[EventStreams]:
    with open_event_streams(app.settings) as opened:
        yield opened


def test_a_queue_without_events_reaches_nowhere(streams: EventStreams) -> None:
    assert streams.queues() == []
    assert streams.tail("mail") == StreamTail(BEGINNING, 0, 0)
    assert list(streams.listed("mail", BEGINNING, BEGINNING)) == []


def test_blocks_are_listed_and_read_in_order(app: App, streams: EventStreams) -> None:
    for number in range(5):
        app.work_queue("mail").push(*[f"letter {number}"] * (number + 1))

    tail = streams.tail("mail")
    listed = list(streams.listed("mail", BEGINNING, tail.newest))
    blocks = [block for page in streams.blocks("mail", BEGINNING, tail.newest) for block in page]

    assert streams.queues() == ["mail"]
    assert (tail.appended, tail.kept, tail.dropped) == (5, 5, 0)
    assert [count for _, count in listed] == [1, 2, 3, 4, 5]
    assert [block.id for block in blocks] == [block_id for block_id, _ in listed]
    assert [len(decode_block(block.codec, block.data)) for block in blocks] == [1, 2, 3, 4, 5]


def test_reading_begins_after_a_block_and_ends_with_one(app: App, streams: EventStreams) -> None:
    for number in range(4):
        app.work_queue("mail").push(f"letter {number}")
    ids = [block_id for block_id, _ in streams.listed("mail", BEGINNING, streams.tail("mail").newest)]

    (page,) = streams.blocks("mail", ids[0], ids[2])

    assert [block.id for block in page] == ids[1:3]


def test_many_blocks_come_in_pages(app: App, streams: EventStreams) -> None:
    streams.hold("mail", 10_000)
    for number in range(4_100):
        app.work_queue("mail").push(f"letter {number}")
    newest = streams.tail("mail").newest

    assert len(list(streams.listed("mail", BEGINNING, newest))) == 4_100
    assert sum(len(page) for page in streams.blocks("mail", BEGINNING, newest)) == 4_100


def test_trimming_drops_up_to_a_block_and_is_counted(app: App, streams: EventStreams) -> None:
    for number in range(4):
        app.work_queue("mail").push(f"letter {number}")
    tail = streams.tail("mail")
    ids = [block_id for block_id, _ in streams.listed("mail", BEGINNING, tail.newest)]

    assert streams.trim("mail", ids[1]) == 2
    assert streams.trim("mail", ids[1]) == 0

    assert [block_id for block_id, _ in streams.listed("mail", BEGINNING, tail.newest)] == ids[2:]
    assert streams.tail("mail") == StreamTail(tail.newest, 4, 2)
    assert streams.trim("mail", tail.newest) == 2
    assert streams.tail("mail") == StreamTail(tail.newest, 4, 0)


def test_a_held_stream_outgrows_its_cap_until_it_is_released(app: App, streams: EventStreams) -> None:
    work = app.work_queue("mail")
    calls = NamedCalls(work, "send")  # enqueued by another script than pushed elements
    streams.hold("mail", 5_000)
    for number in range(400):
        work.push("letter")
        calls.enqueue([(f"m{number}", {})])
    held = streams.tail("mail")

    streams.hold("mail", None)
    work.push("letter")

    assert held.kept == held.appended == 800
    assert streams.tail("mail").kept < 800


def test_a_hold_is_a_number_of_blocks(streams: EventStreams) -> None:
    with pytest.raises(InvalidArgument, match="blocks is 0; accepted is a whole number"):
        streams.hold("mail", 0)


def test_what_a_foreign_hand_wrote_is_a_block_that_nobody_can_read(
    server: RealServer, streams: EventStreams
) -> None:
    with server.client() as client:
        client.xadd("mqw:{mail}:events", {"hello": "world"})

    newest = streams.tail("mail").newest
    ((block,),) = streams.blocks("mail", BEGINNING, newest)

    assert list(streams.listed("mail", BEGINNING, newest)) == [(newest, 1)]
    assert (block.codec, block.count) == ("?", 1)


def test_named_calls_are_stored_once_by_their_id(app: App) -> None:
    calls = NamedCalls(app.work_queue("mail"), "send")

    assert calls.enqueue([("a", {"to": "x"}), ("b", {"to": "y"})]) == 2
    assert calls.enqueue([("b", {"to": "y"}), ("c", {"to": "z"})]) == 1
    assert app.work_queue("mail").counts().ready == 3


@pytest.mark.parametrize(
    ("call_id", "arguments", "problem"),
    [
        (None, {}, "id is None"),
        ("a b", {}, "id"),
        ("a", {"to": object()}, "argument 'to' of send"),
        ("a", {"to": "x" * 300}, r"bytes; accepted are up to 200"),
    ],
)
def test_a_wrong_named_call_is_refused_and_none_is_stored(
    app: App, call_id: str, arguments: dict[str, object], problem: str
) -> None:
    calls = NamedCalls(app.work_queue("mail"), "send", max_message_bytes=200)

    with pytest.raises(InvalidArgument, match=problem):
        calls.enqueue([("fine", {}), (call_id, arguments)])

    assert app.work_queue("mail").counts().ready == 0
