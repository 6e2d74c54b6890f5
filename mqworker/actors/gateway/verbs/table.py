"""All verbs that gateways can call: a literal table, one line for each family of verbs."""

from __future__ import annotations

from mqworker.actors.gateway.queues import GatewayQueues
from mqworker.actors.gateway.verbs import redismq, skmq, work
from mqworker.actors.gateway.verbs.verb import Verbs


def broker_verbs(queues: GatewayQueues) -> Verbs:
    """What takes in."""
    return {
        **redismq.verbs_of_intake(queues),
        **skmq.verbs_of_intake(queues),
        **work.verbs_of_intake(queues),
    }


def dispatcher_verbs(queues: GatewayQueues) -> Verbs:
    """What hands out."""
    return {
        **redismq.verbs_of_output(queues),
        **work.verbs_of_output(queues),
    }
