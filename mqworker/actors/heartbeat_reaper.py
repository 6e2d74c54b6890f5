"""Heartbeat reaper: beats for this node's consumers, and releases what silent ones anywhere held.

Owns:     the list of this node's consumers.
Receives: ConsumerStarted, ConsumerGone, NodeSnapshot (supervisor).
Sends:    nothing.
Never:    takes anything from a consumer that is heard; the script that releases looks at the beat itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import ConsumerGone, ConsumerStarted, Drain, Mail, NodeSnapshot
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.node_file import ended_nodes, forget_node
from mqworker.actors.queue_roster import QueueRoster
from mqworker.actors.rounds import Rounds
from mqworker.actors.wiring import logger_of, open_store, queue_options, run_actor, topic_options
from mqworker.errors import ConfigurationError, StoreUnavailable
from mqworker.log import Logger
from mqworker.queues.topics.client import Topics
from mqworker.queues.work.keys import node_key, nodes_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.samples import sample
from mqworker.store.store import Store

_SNAPSHOT_TTL_MS = 15_000


class HeartbeatReaper:
    """The actor; see the module's first lines."""

    name = "heartbeat_reaper"

    def __init__(
        self,
        store: Store,
        roster: QueueRoster,
        *,
        namespace: str,
        interval_ms: int,
        timeout_ms: int,
        log: Logger,
        node_file: Path,
        topics: TopicSweep | None = None,
    ) -> None:
        self._store = store
        self._roster = roster
        self._namespace = namespace
        self._timeout_ms = timeout_ms
        self._topics = topics
        self._node_file = node_file
        self._rounds = Rounds(interval_ms, log)
        self._log = log
        self._consumers: set[str] = set()
        self._gone: set[str] = set()
        self._snapshot: NodeSnapshot | None = None
        self._released = 0
        self._round_at_ms: int | None = None
        self._reap_from_ms = 0
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002
        """Note whom to beat for."""
        match mail:
            case ConsumerStarted(consumer):
                self._consumers.add(consumer)
            case ConsumerGone(consumer):
                self._consumers.discard(consumer)
                self._gone.add(consumer)
                self._rounds.hurry(0, now_ms)
            case NodeSnapshot():
                self._snapshot = mail
            case Drain():
                self._hide_node()
                self.is_done = True
            case _:
                pass
        return ()

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Beat, reap, and show the node, once per interval."""
        if self._was_cut_off(now_ms):
            # So were others, as a rule: they get the time to be heard again.
            self._reap_from_ms = now_ms + self._timeout_ms
        rounds_before = self._rounds.count
        self._rounds.hold(now_ms, self._steps(now_ms))
        if self._rounds.count > rounds_before:
            self._round_at_ms = now_ms
        return ()

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until the next beat."""
        return self._rounds.due_in_ms(now_ms)

    def watched(self) -> Iterable[Watched]:
        """Nothing but mail."""
        return ()

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "rounds": self._rounds.count,
            "released": self._released,
            "consumers": sorted(self._consumers),
            "peers_dropped": 0 if self._topics is None else self._topics.dropped,
        }

    def _steps(self, now_ms: int) -> Iterator[Callable[[], object]]:
        # Whoever is gone may hold something in a queue that was made a moment ago.
        yield partial(self._roster.refresh, now_ms, at_once=bool(self._gone))
        yield self._release_ended_nodes
        for queue in self._roster:
            yield partial(self._look_at, queue, now_ms)
        yield partial(self._sweep_topics, now_ms)
        yield self._show_node
        yield self._gone.clear

    def _was_cut_off(self, now_ms: int) -> bool:
        if self._round_at_ms is None:
            self._round_at_ms = now_ms
        return now_ms - self._round_at_ms > self._timeout_ms / 2

    def _look_at(self, queue: WorkQueue, now_ms: int) -> None:
        for consumer in self._consumers:
            queue.beat(consumer)
        self._store.run(sample(queue.calls.keys))
        for consumer in self._gone:
            self._note(queue, consumer, queue.reap(consumer, silent_ms=0))
        for consumer in queue.silent_consumers(self._timeout_ms) if now_ms >= self._reap_from_ms else ():
            self._note(queue, consumer, queue.reap(consumer, silent_ms=self._timeout_ms))

    def _release_ended_nodes(self) -> None:
        """Of a node beside this one whose last process is gone, nothing need wait for the time-out."""
        for boot in ended_nodes(self._node_file):
            for queue in self._roster:
                for consumer in queue.consumers():
                    if f".{boot}." in consumer:
                        self._note(queue, consumer, queue.reap(consumer, silent_ms=0))
            forget_node(self._node_file, boot)

    def _sweep_topics(self, now_ms: int) -> None:
        if self._topics is not None and now_ms >= self._reap_from_ms:
            self._topics.turn(now_ms)

    def _note(self, queue: WorkQueue, consumer: str, released: int) -> None:
        self._released += released
        if released:
            self._log.warning("consumer_reaped", queue=queue.name, consumer=consumer, released=released)

    def _hide_node(self) -> None:
        if self._snapshot is not None:
            key = node_key(self._namespace, self._snapshot.node)
            with suppress(StoreUnavailable):  # it ends by itself a little later
                self._store.read([("DEL", key)], key)

    def _show_node(self) -> None:
        if self._snapshot is None:
            return
        key, nodes = node_key(self._namespace, self._snapshot.node), nodes_key(self._namespace)
        self._store.read([("SET", key, json.dumps(self._snapshot.facts), "PX", _SNAPSHOT_TTL_MS)], key)
        self._store.read([("SADD", nodes, self._snapshot.node)], nodes)


def main(control: Mailbox, start: ChildStart) -> int:
    """The heartbeat reaper's process."""
    store, settings, log = open_store(start), start.settings, logger_of(start)
    reaper = HeartbeatReaper(
        store,
        QueueRoster(store, queue_options(settings)),
        namespace=settings.namespace,
        interval_ms=int(settings.heartbeat_interval_s * 1000),
        timeout_ms=int(settings.heartbeat_timeout_s * 1000),
        log=log,
        node_file=Path(start.slots_path),
        topics=TopicSweep(Topics(store, topic_options(settings)), log),
    )
    return run_actor(reaper, control, start)


SWEEP_EVERY_MS = 5_000
"""One SMEMBERS while nobody listens to anything."""


class TopicSweep:
    """Calls `sweep` every few seconds."""

    def __init__(self, topics: Topics, log: Logger) -> None:
        self._topics = topics
        self._log = log
        self._next_ms = 0
        self.dropped = 0

    def turn(self, now_ms: int) -> None:
        """Drop silent peers, if it is time."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + SWEEP_EVERY_MS
        try:
            dropped = self._topics.sweep()
        except ConfigurationError:
            return  # a cluster, where nobody can have subscribed
        self.dropped += dropped
        if dropped:
            self._log.info("topic_peers_dropped", count=dropped)
