"""The server in memory: what its clock moves, and how it answers where fakeredis alone would not."""

from __future__ import annotations

import fakeredis
import pytest

from mqworker.errors import StoreRefused
from mqworker.model.clock import ManualClock, SystemClock
from mqworker.store.command import ReplyError
from mqworker.store.script import scripts_of
from mqworker.testing.memory_connection import MemoryConnection

NOW_MS = 1_700_000_000_001  # one that a product of doubles would cut down to the millisecond before


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still."""
    return ManualClock(NOW_MS)


@pytest.fixture
def connection(clock: ManualClock) -> MemoryConnection:
    """A server of its own."""
    return MemoryConnection(clock)


def test_everything_that_knows_the_time_goes_by_the_clock(
    connection: MemoryConnection, clock: ManualClock
) -> None:
    in_lua = "local t = redis.call('TIME') return {t[1], t[2], redis.call('XADD', 's', '*', 'a', 'b')}"

    assert connection.execute([("TIME",)], None) == [[b"1700000000", b"1500"]]
    assert connection.execute([("EVAL", in_lua, 0)], None) == [[b"1700000000", b"1500", b"%d-0" % NOW_MS]]
    connection.execute([("SET", "k", "v", "PX", 1_000)], None)
    clock.advance(ms=999)
    assert connection.execute([("GET", "k"), ("PTTL", "k")], None)[0] == b"v"
    clock.advance(ms=2)
    assert connection.execute([("GET", "k")], None) == [None]


def test_a_fakeredis_of_the_users_own_goes_by_the_real_time(connection: MemoryConnection) -> None:
    own = fakeredis.FakeRedis(server=fakeredis.FakeServer())

    told_s, _ = own.time()

    assert abs(told_s - SystemClock().now_ms() / 1000) < 60
    assert connection.execute([("TIME",)], None)[0] == [b"1700000000", b"1500"]


def test_a_script_is_known_by_its_own_hash_after_it_was_sent_once(connection: MemoryConnection) -> None:
    beat = scripts_of("mqworker.queues.work")("beat")
    keys = [f"k{number}" for number in range(15)]

    unknown = connection.execute([("EVALSHA", beat.sha, 15, *keys, "me")], None)
    sent = connection.execute([("EVAL", beat.source, 15, *keys, "me")], None)
    known = connection.execute([("EVALSHA", beat.sha, 15, *keys, "me")], None)

    assert beat.source.startswith("#!lua")
    assert isinstance(unknown[0], ReplyError)
    assert unknown[0].code == "NOSCRIPT"
    assert sent == known == [b"OK"]


def test_errors_are_those_of_a_real_connection(connection: MemoryConnection) -> None:
    refusal = "return redis.error_reply('MQW_FULL 3 waiting')"

    assert connection.execute([("EVAL", refusal, 0)], None) == [ReplyError("MQW_FULL", "3 waiting")]
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        connection.execute([("SET", "a", 1), ("LPUSH", "a", 1)], None)
    with pytest.raises(StoreRefused, match="unknown command"):
        connection.execute([("NONSENSE",)], None)
    assert connection.each_primary([("PING",)]) == {"memory": [b"PONG"]}
