"""`mqworker doctor` as it is typed: it names what is foreign, and removes exactly that."""

from __future__ import annotations

import json

import pytest

from mqworker.model.quarantine import Quarantine
from mqworker.queues.work.diagnosis import find_bad_entries, remove
from tests.support.command_line import CommandLine, a_child


def test_on_clean_data_nothing_is_wrong(line: CommandLine) -> None:
    shown = line.type("doctor")

    assert "quarantined  nothing" in shown.output
    assert shown.exit_code == 0


def test_what_is_foreign_is_named_with_the_command_that_removes_it(line: CommandLine) -> None:
    with line.server.client() as client:
        client.sadd("mqw:queues", b"\xff bad", "orders")
        client.set("mqw:{orders}:ready", "text")
        client.zadd("mqw:{orders}:consumers", {b"\xfe": 1})

    shown = line.type("doctor")

    assert shown.exit_code == 1
    assert 'redis-cli SREM "mqw:queues" "\\xff\\x20bad"' in shown.output
    assert 'redis-cli DEL "mqw:{orders}:ready"' in shown.output
    assert "is a string; a list is expected" in shown.output
    assert 'redis-cli ZREM "mqw:{orders}:consumers" "\\xfe"' in shown.output


def test_it_asks_before_it_removes_and_removes_nothing_else(line: CommandLine) -> None:
    with line.server.client() as client:
        client.sadd("mqw:queues", b"\xff", b"\xfe", "orders")
        client.hset("mqw:{orders}:results", "a", "S")

        refused = line.type("doctor", "--remove-quarantined", answer="n\nn\n")
        left = client.smembers("mqw:queues")
        done = line.type("doctor", "--remove-quarantined", answer="y\ny\n")

        assert refused.exit_code == 1
        assert left == {b"\xff", b"\xfe", b"orders"}
        assert done.exit_code == 0
        assert client.smembers("mqw:queues") == {b"orders"}
        assert client.hgetall("mqw:{orders}:results") == {b"a": b"S"}
        assert "nothing" in line.type("doctor").output


def test_a_key_that_was_mended_meanwhile_is_left_alone(line: CommandLine) -> None:
    with line.server.client() as client:
        client.sadd("mqw:queues", "orders")
        client.set("mqw:{orders}:ready", "text")
        (bad,) = find_bad_entries(line.store, "mqw")
        client.delete("mqw:{orders}:ready")
        client.rpush("mqw:{orders}:ready", "mended")

        assert not remove(line.store, bad)
        assert client.llen("mqw:{orders}:ready") == 1


def test_what_nodes_skip_is_named_by_status_and_doctor(line: CommandLine) -> None:
    quarantine = Quarantine()
    quarantine.note("schedule", "mqw:schedules", "not a JSON text", b"shop\xff", remove_by="HDEL")
    line.add_node(children=[a_child("broker", facts=quarantine.facts())])
    with line.server.client() as client:
        client.hset("mqw:schedules", b"shop\xff", "rubbish")

        status, document = line.type("status"), json.loads(line.type("status", "--json").output)
        shown = line.type("doctor", "--remove-quarantined", "--yes")

        assert status.exit_code == 1
        assert "1 thing is quarantined" in status.output
        assert "schedule b'shop\\xff' in mqw:schedules" in " ".join(status.output.split())
        assert document["quarantined"][0]["where"] == "mqw:schedules"
        assert "removed schedule" in shown.output
        assert client.hlen("mqw:schedules") == 0


@pytest.mark.parametrize("key", ["mqw:queues", "mqw:nodes", "mqw:node:web-1", "mqw:schedules"])
def test_a_registry_of_another_type_is_named_and_status_goes_on(line: CommandLine, key: str) -> None:
    line.add_node("orders")
    with line.server.client() as client:
        client.delete(key)
        client.lpush(key, "rubbish")

    status, shown = line.type("status"), line.type("doctor")

    assert "no Redis" not in status.output
    assert status.exit_code in {0, 1, 2}
    assert status.exception is None or isinstance(status.exception, SystemExit)
    assert key in shown.output or key == "mqw:node:web-1"


def test_of_thousands_in_one_place_all_are_counted_and_no_other_place_is_hidden(line: CommandLine) -> None:
    quarantine = Quarantine()
    for number in range(3_000):
        quarantine.note("schedule", "mqw:schedules", "not a JSON text", b"%d" % number, remove_by="HDEL")
    quarantine.note("topic", "mqw:topics", "no name", b"\xff", remove_by="SREM")
    line.add_node(children=[a_child("broker", facts=quarantine.facts())])

    status, document = line.type("status"), json.loads(line.type("status", "--json").output)
    shown = line.type("doctor")

    assert "3,001 things are quarantined" in status.output
    assert "schedule in mqw:schedules, 3,000 entries" in " ".join(status.output.split())
    assert "topic b'\\xff' in mqw:topics" in status.output
    assert [(each["where"], each["entries"]) for each in document["quarantined_places"]] == [
        ("mqw:schedules", 3_000),
        ("mqw:topics", 1),
    ]
    assert "quarantined  3,001 things" in shown.output
    assert "2,968 more, not named here" in shown.output
    assert "topic b'\\xff' in mqw:topics" in shown.output


def test_the_name_of_a_node_and_a_fence_that_are_none_are_named(line: CommandLine) -> None:
    with line.server.client() as client:
        client.sadd("mqw:nodes", b"\xff")
        client.sadd("mqw:queues", "orders")
        client.zadd("mqw:{orders}:consumers", {"alice": 1})
        client.hset("mqw:{orders}:held:alice", b"\xfe", "rubbish")

    shown = line.type("doctor")

    assert 'redis-cli SREM "mqw:nodes" "\\xff"' in shown.output
    assert 'redis-cli HDEL "mqw:{orders}:held:alice" "\\xfe"' in shown.output
