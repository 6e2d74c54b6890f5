"""A fuzzer for a live node: rubbish of right and wrong types in every key family, channel and socket.

It adds to what is there and takes nothing away: who deletes or overwrites data has deleted it, and no reader
can mend that. On the queue of the well-behaved client it leaves whole keys alone; on queues of its own it
does what it likes. Every choice comes from one seed, which the drill prints.
"""

from __future__ import annotations

import json
import random
import re
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis

from mqworker.queues.work.keys import TYPE_BY_PART
from tests.support.raw_http2 import PREFACE, call_with_path
from tests.support.resp_client import packed

NAMESPACE = "mqw"
OWN_QUEUES = ("hostile-1", "hostile-2", "hostile-3")

NASTY: Sequence[bytes] = (
    b"",
    b"\xff",
    b"\x00",
    b"-1",
    b"1e400",
    b"nan",
    b"9" * 400,
    b"9" * 5_000,
    b"a b",
    b"}{",
    b"[" * 20_000,
    b'{"a":' * 5_000,
    b'{"version": 1, "schedules": [{}]}',
    b"null",
    "\u202e\u0000".encode(),
    b"1700000000000" + b"0-d300000000x echo " + b"9" * 5_000 + b" body",
    b"1700000000000" + b"0--300000000x \xff\xfe body",
    b"17000000000000--300000000hostile echo body",
)


@dataclass
class Fuzzer:
    """Strikes once per call; counts what it did by what it did it to."""

    raw: redis.Redis
    seed: int
    steady_queue: str
    places: dict[str, tuple[str, int]]
    """Where each gateway listens."""
    strikes: dict[str, int] = field(default_factory=dict)
    passing: dict[tuple[str, str], float] = field(default_factory=dict)
    """What is gone as soon as it is read, by kind and where: when it was struck there first."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - the same each time
        self._deeds: dict[str, Callable[[], object]] = {
            "registries": self._write_registries,
            "own queues": self._write_own_queue,
            "the steady queue": self._write_steady_queue,
            "workflows": self._write_workflow,
            "topics": self._write_topics,
            "other models": self._write_other_models,
            "nodes": self._write_nodes,
            "channels": self._publish,
            "redismq": self._harass_redismq,
            "skmq": self._harass_skmq,
            "gomq": self._harass_gomq,
        }

    def strike(self) -> None:
        """One piece of rubbish somewhere."""
        name = self._chance.choice(list(self._deeds))
        # What the server refuses (a wrong type) or a gateway cuts off was a strike all the same.
        with suppress(redis.ResponseError, OSError):
            self._deeds[name]()
        self.strikes[name] = self.strikes.get(name, 0) + 1

    def clean(self) -> None:
        """Take away what lies in keys of the fuzzer's own, so that only what is shared is left."""
        for queue in OWN_QUEUES:
            for key in self.raw.scan_iter(f"{NAMESPACE}:{{{queue}}}:*"):
                self.raw.delete(key)

    # Keys

    def _write_registries(self) -> None:
        key, member = self._chance.choice(["queues", "nodes", "topics"]), self._rubbish()
        self.raw.sadd(f"{NAMESPACE}:{key}", member)
        self.raw.hset(f"{NAMESPACE}:schedules", self._rubbish()[:50], self._rubbish())
        self.raw.hset(f"{NAMESPACE}:subscriptions", self._rubbish()[:50], self._rubbish())

    def _write_own_queue(self) -> None:
        queue = self._chance.choice(OWN_QUEUES)
        self.raw.sadd(f"{NAMESPACE}:queues", queue)
        part = self._chance.choice([*TYPE_BY_PART, "held:stranger", "bulk:x", "progress:x", "limited:x"])
        key = f"{NAMESPACE}:{{{queue}}}:{part}"
        if self._chance.random() < 0.2:  # another type, as long as nothing is there
            self.raw.setnx(key, self._rubbish())
            return
        self._add(key, TYPE_BY_PART.get(part, "hash"))

    def _write_steady_queue(self) -> None:
        parts = [part for part in TYPE_BY_PART if part not in {"meta", "events", "buckets", "ticks"}]
        self._add(f"{NAMESPACE}:{{{self.steady_queue}}}:{self._chance.choice(parts)}")

    def _write_workflow(self) -> None:
        flow = f"f{self._chance.randrange(5)}"
        names = (b"kept_ms", b"end", b"t0", b"i1", b"state", b"open")
        fields = {name: self._rubbish()[:200] for name in names}
        if self._chance.random() < 0.3:
            self.raw.setnx(f"{NAMESPACE}:{{flow:{flow}}}:state", self._rubbish())
        else:
            self.raw.hset(f"{NAMESPACE}:{{flow:{flow}}}:state", mapping=fields)
        queue = self._chance.choice([self.steady_queue, *OWN_QUEUES])
        member = self._chance.choice([f"{flow}~0".encode(), f"{flow}~start".encode(), self._rubbish()])
        self.raw.hset(f"{NAMESPACE}:{{{queue}}}:outbox", member, self._rubbish())

    def _write_topics(self) -> None:
        topic = self._chance.choice(["foreign.topic", "other"])
        prefix = f"{NAMESPACE}:{{topic:{topic}}}"
        for part in ("outbox", "subscribers", "kept"):
            self.raw.hset(f"{prefix}:{part}", self._rubbish(), self._rubbish())
        if topic == "foreign.topic":  # the other one is registered nowhere, so nobody reads it
            self.passing.setdefault(("event", f"{prefix}:outbox"), time.monotonic())
        key = self._chance.choice(["SUBSCRIBED", "QUEUE_x", "PEERS_x", "SUBSCRIBED_x"])
        self._add(key, self._chance.choice(["set", "list", "hash"]))

    def _write_other_models(self) -> None:
        families = {
            "rsmq:QUEUES": "set",
            "rsmq:line:Q": "hash",
            "rsmq:line": "zset",
            f"{NAMESPACE}:x:{{rsmq:line}}:held": "hash",
            f"{NAMESPACE}:gq:{{line}}:queued": "zset",
            f"{NAMESPACE}:gq:{{line}}:records": "hash",
            f"{NAMESPACE}:{{skmq}}:messages": "hash",
            f"{NAMESPACE}:{{skmq}}:queues": "set",
            f"{NAMESPACE}:{{skmq}}:homes": "hash",
            f"{NAMESPACE}:{{skmq.shop}}:recipients": "hash",
            f"{NAMESPACE}:{{skmq.shop}}:assigned": "hash",
            f"{NAMESPACE}:{{skmq.shop}}:copies": "hash",
        }
        key = self._chance.choice(list(families))
        self._add(key, families[key])

    def _write_nodes(self) -> None:
        self.raw.sadd(f"{NAMESPACE}:nodes", "stranger")
        facts = {
            "children": [{"name": "x", "facts": {"queues": 1, "quarantine": {"entries": [7]}}}],
            "pid": 1e300,
            "started_at_ms": "soon",
        }
        text = self._chance.choice([json.dumps(facts).encode(), self._rubbish()])
        self.raw.set(f"{NAMESPACE}:node:stranger", text, px=2_000)

    def _add(self, key: str, kind: str | None = None) -> None:
        member, text = self._rubbish(), self._rubbish()
        match kind or TYPE_BY_PART[key.rpartition("}:")[2]]:
            case "hash":
                self.raw.hset(key, member, text)
            case "list":
                self.raw.rpush(key, member)
            case "set":
                self.raw.sadd(key, member)
            case "zset":
                self.raw.zadd(key, {member: self._chance.choice([0, -1, 1e18, float("inf"), float("-inf")])})
            case _:
                self.raw.xadd(key, {b"n": member, b"z": text})

    # Channels

    def _publish(self) -> None:
        channels: list[bytes] = self.raw.execute_command("PUBSUB", "SHARDCHANNELS")
        if channels:
            prefix, channel = (
                self._chance.choice([b"", b"cancel ", b"1 0:1 "]),
                self._chance.choice(sorted(channels)),
            )
            text = prefix + self._rubbish()
            heard = self.raw.execute_command("SPUBLISH", channel, text)
            # `1 0:1 ` is well-formed, and an empty text means that something was added.
            is_bad = prefix == b"" and text and not re.match(rb"[0-9]{1,18} ", text)
            if heard and is_bad and (b":held:" in channel or b":begin:" in channel):
                self.passing.setdefault(("wake-up", channel.decode()), time.monotonic())

    # Sockets

    def _harass_redismq(self) -> None:
        words = self._chance.choice(
            [
                (b"MQ.POP", b"1", b"BLOCK", b"50", b"\xff", b"hostile-1"),
                (b"MQ.POP", b"1", b"BLOCK", b"50", b"a b"),
                (b"MQ.PUSH", self._rubbish(), self._rubbish()),
                (b"MQ.ACK", b"hostile-1", self._rubbish()),
                (b"MQ.INSPECT", b"hostile-1", self._rubbish(), self._rubbish()),
                (b"MQ.RECOVER", b"hostile-2", b"9" * 400, b"-1"),
                (self._rubbish(), self._rubbish()),
            ]
        )
        long = b"*1\r\n$" + b"9" * 400 + b"\r\n"
        self._shout("redismq", self._chance.choice([packed(*words), self._rubbish(), long, b"*-5\r\n"]))

    def _harass_skmq(self) -> None:
        frame = self._chance.choice(
            [
                b"type=push\r\nappid=shop\r\nmsgid=1\r\nlength=99999999999999999999\r\n\r\n",
                b"type=\xff\r\nlength=-1\r\n\r\n",
                b"length=3\r\n\r\nabc" * 10,
                b"type=register\r\nappid=\xff\xfe\r\nlength=2\r\n\r\n{}",
                self._rubbish(),
            ]
        )
        self._shout("skmq", frame)

    def _harass_gomq(self) -> None:
        place = self.places.get("gomq")
        if place is None:
            return
        if self._chance.random() < 0.1:
            call_with_path(place, b"/\xff\xfe", 0.5)
        else:
            self._shout("gomq", self._chance.choice([PREFACE, b""]) + self._rubbish())

    def _shout(self, gateway: str, data: bytes) -> None:
        place = self.places.get(gateway)
        if place is not None:
            with socket.create_connection(place, 0.5) as line:
                line.sendall(data)
                line.settimeout(0.05)
                line.recv(1_024)

    def _rubbish(self) -> bytes:
        if self._chance.random() < 0.7:
            return self._chance.choice(NASTY)
        return self._chance.randbytes(self._chance.randrange(1, 64))


_NAME = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_QUEUE = re.compile(rb"(?=.{1,128}\Z)(?:[A-Za-z0-9_]|%[0-9A-F]{2})(?:[A-Za-z0-9_.:-]|%[0-9A-F]{2})*")
_ID = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.:@/+=~-]{0,127}")
_FENCE = re.compile(rb"[0-9]{1,19}")

Place = tuple[str, str]
"""Kind and where."""


@dataclass
class Lying:
    """What lies on the server and is bad by rules of the drill's own: how many in each place."""

    raw: redis.Redis
    own_apps: Sequence[bytes]
    """Whose schedules are as they should be."""

    def count_by_place(self) -> dict[Place, int]:
        """Everything that somebody goes through, skips and must name."""
        found: dict[Place, int] = {}
        registered = self._note(
            found, "queue name", f"{NAMESPACE}:queues", self.raw.smembers(f"{NAMESPACE}:queues"), _QUEUE
        )
        self._note(found, "node name", f"{NAMESPACE}:nodes", self.raw.smembers(f"{NAMESPACE}:nodes"))
        self._note(found, "topic", f"{NAMESPACE}:topics", self.raw.smembers(f"{NAMESPACE}:topics"))
        schedules = self.raw.hkeys(f"{NAMESPACE}:schedules")
        foreign = [name for name in schedules if name.partition(b"/")[0] not in self.own_apps]
        found["schedule", f"{NAMESPACE}:schedules"] = len(foreign)
        for queue in registered:
            self._look_at_queue(found, queue.decode())
        return {place: count for place, count in found.items() if count}

    def _note(
        self,
        found: dict[Place, int],
        kind: str,
        where: str,
        members: Iterable[bytes],
        rule: re.Pattern[bytes] = _NAME,
    ) -> list[bytes]:
        """Count the bad ones; the good ones."""
        sorted_out = {member: rule.fullmatch(member) is not None for member in members}
        found[kind, where] = sum(not is_good for is_good in sorted_out.values())
        return [member for member, is_good in sorted_out.items() if is_good]

    def _look_at_queue(self, found: dict[Place, int], queue: str) -> None:
        prefix = f"{NAMESPACE}:{{{queue}}}:"
        types = {part: self.raw.type(prefix + part).decode() for part in TYPE_BY_PART}
        for part, kind in types.items():
            found["key", prefix + part] = int(kind not in {"none", TYPE_BY_PART[part]})
        if types["outbox"] == "hash":
            members = self.raw.hkeys(f"{prefix}outbox")
            rule = re.compile(rb"(?=[^~]*~.)" + _ID.pattern)
            self._note(found, "workflow member", f"{prefix}outbox", members, rule)
        if types["consumers"] == "zset":
            members = self.raw.zrange(f"{prefix}consumers", 0, -1)
            for consumer in self._note(found, "consumer", f"{prefix}consumers", members):
                held = f"{prefix}held:{consumer.decode()}"
                if self.raw.type(held) == b"hash":
                    self._note(found, "fence", held, self.raw.hkeys(held), _FENCE)


# Any: what JSON holds.
def named_by(status: dict[str, Any]) -> dict[Place, int]:
    """What a status document names as quarantined: kind and where, and how many entries."""
    assert {(each["kind"], each["where"]) for each in status["quarantined"]} == {
        (each["kind"], each["where"]) for each in status["quarantined_places"]
    }
    return {(each["kind"], each["where"]): each["entries"] for each in status["quarantined_places"]}


def named_in(doctor: str) -> dict[Place, int]:
    """What `mqworker doctor` names, from its lines."""
    found: dict[Place, int] = {}
    for line in doctor.splitlines():
        entry = re.match(r"  (\S.*?) (?:b['\"].* in )?(mqw:\S+): ", line)
        more = re.match(r"  (\S.*?) in (mqw:\S+): ([0-9,]+) more, not named here", line)
        if more:
            place, count = (more[1], more[2]), int(more[3].replace(",", ""))
            found[place] = found.get(place, 0) + count
        elif entry:
            found[entry[1], entry[2]] = found.get((entry[1], entry[2]), 0) + 1
    return found
