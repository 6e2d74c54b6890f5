"""The dispatcher's book of figures: by the server's clock, written as a whole, nothing lost in an outage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgpack

from mqworker.actors.dispatcher.figures import MOST_STRETCHES, WRITE_EVERY_MS, FiguresBook
from mqworker.errors import StoreUnavailable
from mqworker.model.delivery import Delivery
from mqworker.model.figures import Figures
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Crash, Release
from mqworker.store.script import Call

AHEAD_MS = 1_700_000_000_000


@dataclass
class Server:
    """Takes what is written, as note_figures.lua does; its clock is far ahead of ours."""

    now_ms: int = 0
    is_away: bool = False
    hashes: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: int = 0

    def ask(self, call: Call[int]) -> int:
        self.calls += 1
        if self.is_away:
            raise StoreUnavailable("away")
        arguments = list(call.arguments)
        for key in call.keys:
            _, count = arguments.pop(0), int(arguments.pop(0))
            for _ in range(count):
                name, packed = arguments.pop(0), arguments.pop(0)
                self.hashes.setdefault(key, {})[str(name)] = msgpack.unpackb(packed)  # type: ignore[arg-type]
        return AHEAD_MS + self.now_ms

    def counted(self, stretch_s: int) -> int:
        return sum(
            numbers[0]
            for key, fields in self.hashes.items()
            if f":{stretch_s}:" in key
            for numbers in fields.values()
        )


def one_run() -> list[list[Any]]:
    figures = Figures()
    figures.note("shop.charge", "default", 5.0, 2.0, "succeeded")
    return figures.take()


def test_figures_are_written_for_the_minute_and_the_quarter_by_the_servers_clock() -> None:
    server = Server()
    book = FiguresBook("mqw", "n.1.1", server.ask)

    book.add(one_run(), 0)
    book.turn(0)

    minute, quarter = AHEAD_MS // 60_000, AHEAD_MS // 900_000
    assert set(server.hashes) == {f"mqw:{{figures}}:60:{minute}", f"mqw:{{figures}}:900:{quarter}"}
    assert all(list(fields) == ["default shop.charge n.1.1"] for fields in server.hashes.values())


def test_figures_are_written_every_ten_seconds_and_not_when_nothing_ran() -> None:
    server = Server()
    book = FiguresBook("mqw", "n.1.1", server.ask)
    book.add(one_run(), 0)
    book.turn(0)
    asked = server.calls

    book.turn(WRITE_EVERY_MS)
    book.add(one_run(), WRITE_EVERY_MS + 1)
    server.now_ms = WRITE_EVERY_MS + 1
    book.turn(WRITE_EVERY_MS + 1)

    assert server.calls == asked + 2  # one for each resolution, none for nothing
    assert server.counted(60) == server.counted(900) == 2


def test_what_was_counted_while_the_server_was_away_is_written_when_it_is_back() -> None:
    server = Server()
    book = FiguresBook("mqw", "n.1.1", server.ask)
    book.turn(0)
    server.is_away = True
    for at_ms in range(1, 200_000, 1_000):
        book.add(one_run(), at_ms)
        server.now_ms = at_ms
        book.turn(at_ms)
    server.is_away = False

    book.turn(220_000)

    assert server.counted(60) == server.counted(900) == 200


def test_a_write_that_is_repeated_changes_nothing() -> None:
    server = Server()
    book = FiguresBook("mqw", "n.1.1", server.ask)
    book.add(one_run(), 0)

    book.write(0)
    book.add(one_run(), 1)
    book.write(1)
    book.write(2)

    assert server.counted(60) == 2


def test_what_was_counted_before_the_server_was_ever_heard_is_counted_once() -> None:
    server = Server(is_away=True)
    book = FiguresBook("mqw", "n.1.1", server.ask)
    book.add(one_run(), 0)
    book.turn(0)
    server.is_away = False

    book.turn(WRITE_EVERY_MS)

    assert server.counted(60) == 1
    assert book.total.by_task["default", "shop.charge"].succeeded == 1


def test_a_server_that_stays_away_does_not_fill_the_memory() -> None:
    server = Server()
    book = FiguresBook("mqw", "n.1.1", server.ask)
    book.turn(0)
    server.is_away = True

    for minute in range(1_000):
        book.add(one_run(), minute * 60_000)

    server.is_away = False
    server.now_ms = 1_000 * 60_000
    book.write(server.now_ms)
    assert len(server.hashes) <= MOST_STRETCHES
    assert book.total.by_task["default", "shop.charge"].succeeded == 1_000


def test_runs_that_ended_with_their_worker_are_counted_as_crashed_and_what_waited_is_not() -> None:
    server = Server()
    book = FiguresBook("mqw", "n.1.1", server.ask)
    delivery = Delivery(1, MessageId("a"), TaskName("shop.charge"), b"", enqueued_at_ms=0)

    book.note_crashes({"default": [Crash(delivery), Release(delivery)]}, 0)

    assert book.total.by_task["default", "shop.charge"].crashed == 1
