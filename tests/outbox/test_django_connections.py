"""What is written by a cursor, as by Django, is moved alike; on SQLite: tests/system/test_django.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mqworker.model.message import Message
from mqworker.tasks.ids import next_id
from mqworker.tasks.outbox.writer import write
from tests.outbox.places import OutboxPlace


class LikeDjangos:
    """A connection of the driver with what Django's has."""

    in_atomic_block = True

    def __init__(self, connection: Any, vendor: str) -> None:  # noqa: ANN401 - of whichever driver
        self._connection, self.vendor = connection, vendor

    @contextmanager
    def cursor(self) -> Iterator[Any]:  # Any: as above
        cursor = self._connection.cursor()
        yield cursor
        cursor.close()


def test_rows_that_were_written_by_a_cursor_are_moved(server_place: OutboxPlace) -> None:
    place = server_place
    vendor = "postgresql" if place.url.startswith("postgresql") else "mysql"
    raw = place.engine.raw_connection()
    messages = [Message(next_id(), b"\x92\x90\x80\x00\xff%s'", "t") for _ in range(3)]

    write(LikeDjangos(raw.driver_connection, vendor), "q", messages)
    place.move_all(place.mover())
    before = place.queue().counts().ready
    raw.commit()
    raw.close()
    place.move_all(place.mover())

    deliveries = place.queue().claim(10)
    assert before == 0
    assert [(each.id, each.body) for each in deliveries] == [(each.id, each.body) for each in messages]
