"""All verbs of the two desks: a literal table, one line for each family of verbs."""

from __future__ import annotations

from mqworker.actors import gateway_verbs_redismq, gateway_verbs_skmq, gateway_verbs_work
from mqworker.actors.gateway_queues import GatewayQueues
from mqworker.actors.gateway_verb import Verbs


def broker_verbs(queues: GatewayQueues) -> Verbs:
    """What takes in."""
    return {
        **gateway_verbs_redismq.verbs_of_intake(queues),
        **gateway_verbs_skmq.verbs_of_intake(queues),
        **gateway_verbs_work.verbs_of_intake(queues),
    }


def dispatcher_verbs(queues: GatewayQueues) -> Verbs:
    """What hands out."""
    return {
        **gateway_verbs_redismq.verbs_of_output(queues),
        **gateway_verbs_work.verbs_of_output(queues),
    }
