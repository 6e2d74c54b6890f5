"""Running an actor that serves gateways beside its own work: the broker, the dispatcher.

What that takes is imported here and not above: most nodes have no gateway, and none of them pays for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqworker.actors.actor import Actor
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.wiring import open_store, queue_options, run_actor, topic_options
from mqworker.store.store import Store

if TYPE_CHECKING:
    from mqworker.actors.gateway.queues import GatewayQueues
    from mqworker.actors.gateway.verbs.verb import Verbs


def run_broker(
    actor: Actor,
    control: Mailbox,
    start: ChildStart,
    store: Store,
    *,
    on_subscribe: Callable[[], None],
) -> int:
    """Run the broker with a node that takes in; `on_subscribe` is called when somebody listens to a topic."""
    if not start.settings.gateways:
        return run_actor(actor, control, start, store)
    from mqworker.actors.gateway.verbs.table import broker_verbs  # noqa: PLC0415
    from mqworker.actors.gateway.verbs.topics import topic_verbs  # noqa: PLC0415

    topics = topic_verbs(topic_options(start.settings), on_subscribe)
    return _run_with_gateways(actor, control, start, store, lambda queues: {**broker_verbs(queues), **topics})


def run_dispatcher(actor: Actor, control: Mailbox, start: ChildStart, store: Store) -> int:
    """Run the dispatcher with a node that hands out."""
    if not start.settings.gateways:
        return run_actor(actor, control, start, store)
    from mqworker.actors.gateway.verbs.table import dispatcher_verbs  # noqa: PLC0415

    return _run_with_gateways(actor, control, start, store, dispatcher_verbs)


def gateway_queues(start: ChildStart) -> GatewayQueues:
    """The queues of all gateways, as many as there may be."""
    from mqworker.actors.gateway.queues import GatewayQueues  # noqa: PLC0415 - see the module's first lines

    return GatewayQueues(queue_options(start.settings), start.settings.gateway_max_queues)


def _run_with_gateways(
    actor: Actor,
    control: Mailbox,
    start: ChildStart,
    store: Store,
    verbs: Callable[[GatewayQueues], Verbs],
) -> int:
    from mqworker.actors.garbage import collect_seldom_at_gateway  # noqa: PLC0415
    from mqworker.actors.gateway.commit import ActorServingGateways, GatewayCommits  # noqa: PLC0415
    from mqworker.actors.gateway.watch import GatewayWatch  # noqa: PLC0415

    # A store of its own: a client that makes Redis slow is not in the way of the actor's own work.
    own_store, queues = open_store(start, store.quarantine), gateway_queues(start)
    node = GatewayCommits(own_store, verbs(queues), GatewayWatch(own_store, queues.channel))
    collect_seldom_at_gateway()
    return run_actor(ActorServingGateways(actor, node), control, start, store, own_store)
