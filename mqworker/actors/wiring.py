"""Wiring: what the mains of the actors make out of their `ChildStart` before the loop begins."""

from __future__ import annotations

from mqworker.actors.actor import Actor, ActorLoop
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.node_notice import NodeNotice
from mqworker.log import Logger, get_logger
from mqworker.model.clock import SystemClock
from mqworker.model.quarantine import BadEntry, Quarantine
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.settings import Settings
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store

_ACTOR_READ_TIMEOUT_S = 2.0
"""Shorter than the supervisor's patience: while Redis hangs, an actor must still answer pings."""


def quarantine_of(start: ChildStart) -> Quarantine:
    """Where everything that this process reads and cannot use is noted; each is logged once."""
    log = logger_of(start)

    def tell(bad: BadEntry) -> None:
        log.error("entry_quarantined", kind=bad.kind, where=bad.where, entry=bad.entry, reason=bad.why)

    return Quarantine(on_new=tell)


def open_store(start: ChildStart, quarantine: Quarantine | None = None) -> Store:
    """The store of an actor. It repeats nothing: the actor's next turn does."""
    settings = start.settings
    connection = open_connection(
        parse_address(start.redis_url),
        connect_timeout_s=min(settings.connect_timeout_s, _ACTOR_READ_TIMEOUT_S),
        read_timeout_s=min(settings.read_timeout_s, _ACTOR_READ_TIMEOUT_S),
        client_name=f"mqworker-{start.name}".replace(":", "-"),
        leaves_hung=True,
    )
    return Store(connection, retry_for_ms=0, quarantine=quarantine)


def queue_options(settings: Settings) -> WorkQueueOptions:
    """What every call of a queue carries along, from the settings."""
    return WorkQueueOptions(
        namespace=settings.namespace,
        events_kept=settings.events_kept,
        dedup_window_ms=int(settings.dedup_window_s * 1000),
        permit_ms=int(settings.permit_s * 1000),
    )


def topic_options(settings: Settings) -> TopicOptions:
    """How topics behave on this node, from the settings."""
    ttl_s = settings.gomq_queue_ttl_s
    return TopicOptions(
        prefix=settings.gomq_prefix,
        silent_ms=int(settings.gomq_silent_s * 1000),
        grace_ms=int(settings.gomq_dispatch_grace_s * 1000),
        orphans=settings.gomq_orphans,
        queue_ttl_ms=None if ttl_s is None else int(ttl_s * 1000),
    )


def logger_of(start: ChildStart) -> Logger:
    """The logger of an actor, with its name and node bound once."""
    return get_logger(actor=start.name, node=start.node)


def run_actor(actor: Actor, control: Mailbox, start: ChildStart, *stores: Store) -> int:
    """Run the loop to its end; the exit code of the process.

    Between round trips of these stores it answers pings. They share one quarantine.
    """
    quarantine = stores[0].quarantine

    def open_for_notice() -> Store:
        store = open_store(start, quarantine)
        store.after_round_trip = loop.answer_pings
        return store

    notice = NodeNotice(open_for_notice, start.settings.namespace, quarantine)
    loop = ActorLoop(actor, control, SystemClock(), logger_of(start), quarantine, notice=notice)
    for store in stores:
        store.after_round_trip = loop.answer_pings
    loop.run()
    return 0
