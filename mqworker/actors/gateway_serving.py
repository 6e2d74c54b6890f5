"""Running an actor that serves gateways beside its own work: the broker, the dispatcher."""

from __future__ import annotations

from collections.abc import Callable

from mqworker.actors.actor import Actor
from mqworker.actors.child_start import ChildStart
from mqworker.actors.gateway_desk import ActorWithDesk, GatewayDesk
from mqworker.actors.gateway_queues import GatewayQueues
from mqworker.actors.gateway_verb import Verbs
from mqworker.actors.gateway_verbs import broker_verbs, dispatcher_verbs
from mqworker.actors.gateway_verbs_topics import topic_verbs
from mqworker.actors.gateway_watch import GatewayWatch
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.wiring import open_store, queue_options, run_actor, topic_options


def run_broker(actor: Actor, control: Mailbox, start: ChildStart, *, on_subscribe: Callable[[], None]) -> int:
    """Run the broker with a desk that takes in; `on_subscribe` is called when somebody listens to a topic."""
    topics = topic_verbs(topic_options(start.settings), on_subscribe)
    return _run_with_desk(actor, control, start, lambda queues: {**broker_verbs(queues), **topics})


def run_dispatcher(actor: Actor, control: Mailbox, start: ChildStart) -> int:
    """Run the dispatcher with a desk that hands out."""
    return _run_with_desk(actor, control, start, dispatcher_verbs)


def _run_with_desk(
    actor: Actor, control: Mailbox, start: ChildStart, verbs: Callable[[GatewayQueues], Verbs]
) -> int:
    # A store of its own: its links are opened at the first call, so a node without gateways has none of them.
    store, queues = open_store(start), GatewayQueues(queue_options(start.settings))
    desk = GatewayDesk(store, verbs(queues), GatewayWatch(store, queues.channel))
    return run_actor(ActorWithDesk(actor, desk), control, start)
