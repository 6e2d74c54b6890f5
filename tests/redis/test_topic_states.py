"""Random histories of topics: after every step the keys say what a reference in plain Python says."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import cast

import pytest
import redis

from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.client import Topics
from mqworker.store.link.connection import Connection
from mqworker.store.store import Store
from tests.support.real_server import RealServer
from tests.support.topic_reference import TopicReference

AT_ONCE = 2
STEPS_EACH = 250
WEIGHT_BY_VERB = {
    "publish": 8,
    "subscribe": 5,
    "unsubscribe": 1,
    "observe": 5,
    "fall_silent": 1,
    "dispatch": 5,
    "sweep": 1,
}


def a_step(chance: random.Random) -> tuple[str, ...]:
    """Few names, so that histories come across one another."""
    [verb] = chance.choices(list(WEIGHT_BY_VERB), list(WEIGHT_BY_VERB.values()))
    key, consumer, peer = chance.choice("FG"), chance.choice("XY"), chance.choice("12")
    match verb:
        case "publish":
            return verb, key
        case "subscribe":
            return verb, key, consumer, peer
        case "unsubscribe":
            return verb, key, consumer
        case "observe" | "fall_silent":
            return verb, consumer, peer
        case _:
            return (verb,)


class Both:
    """The real topics and the reference, side by side."""

    def __init__(self, store: Store, raw: redis.Redis) -> None:
        self.real = Topics(store, TopicOptions(grace_ms=0, observed_at_once=AT_ONCE))
        self.reference = TopicReference()
        self.raw = raw

    def do(self, step: tuple[str, ...]) -> None:
        """One step in both; what they answer is the same."""
        match step:
            case ("publish", key):
                self.reference.publish(key, self.real.publish(key, b"x"))
            case ("subscribe", key, consumer, peer):
                self.real.subscribe(key, consumer, peer)
                self.reference.subscribe(key, consumer, peer)
            case ("unsubscribe", key, consumer):
                self.real.unsubscribe(key, consumer)
                self.reference.unsubscribe(key, consumer)
            case ("observe", consumer, peer):
                found: dict[str, list[str]] = {}
                for record in self.real.observe(consumer, peer):
                    found.setdefault(record.key, []).append(record.id)
                assert found == self.reference.observe(consumer, peer, AT_ONCE)
            case ("fall_silent", consumer, peer):
                self.raw.delete(f"LASTACTION_{consumer}_{peer}")
                self.reference.heard.discard((consumer, peer))
            case ("dispatch",):
                assert self.real.dispatch() == self.reference.dispatch()
            case ("sweep",):
                assert self.real.sweep() == self.reference.sweep()
            case _:
                raise AssertionError(step)

    def compare(self) -> None:
        """Every documented key, and nothing else."""
        wanted: dict[str, object] = {}
        for key, records in self.reference.main.items():
            wanted[f"QUEUE_{key}"] = records
        for key, consumers in self.reference.consumers.items():
            wanted[f"CONSUMERS_{key}"] = set(consumers)
        for consumer, peers in self.reference.peers.items():
            wanted[f"PEERS_{consumer}"] = set(peers)
            wanted[f"SUBSCRIPTIONS_{consumer}"] = set(self.reference.topics_of(consumer))
        for place, records in self.reference.unread.items():
            wanted[f"MESSAGES_{'_'.join(place)}"] = records
        wanted["SUBSCRIBED_KEYS"] = {f"QUEUE_{key}" for key, who in self.reference.consumers.items() if who}
        wanted |= {f"LASTACTION_{consumer}_{peer}": "told" for consumer, peer in self.reference.heard}
        assert dict(self.stored()) == {name: value for name, value in wanted.items() if value}

    def stored(self) -> Iterator[tuple[str, object]]:
        """What the server holds, side keys apart."""
        for name in self.raw.scan_iter():
            match self.raw.type(name):
                case _ if name.startswith(b"mqw:"):
                    continue
                case b"set":
                    yield (
                        name.decode(),
                        {member.decode() for member in cast("set[bytes]", self.raw.smembers(name))},
                    )
                case b"list":
                    yield name.decode(), [json.loads(text)["id"] for text in self.raw.lrange(name, 0, -1)]
                case _:
                    yield name.decode(), "told"


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


@pytest.mark.parametrize("seed", range(4))
def test_topics_do_what_the_reference_does(connection: Connection, raw: redis.Redis, seed: int) -> None:
    both, chance = Both(Store(connection), raw), random.Random(seed)  # noqa: S311 - the same each time
    seen: Counter[str] = Counter()

    for _ in range(STEPS_EACH):
        both.do(a_step(chance))
        both.compare()
        seen.update(name.partition("_")[0] for name, _ in both.stored())

    assert seen["MESSAGES"] > 100  # the history was not an empty one
