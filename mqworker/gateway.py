"""Gateways: what a service needs that speaks a foreign protocol outwards and mqworker's verbs inwards.

A service implements `Gateway` and is given a `NodeClient`; it opens no connection to Redis. `listen` and
`GatewayOptions` are the same for all, so that what may come in and what not is decided in one place.
"""

from mqworker.actors.gateway.client import NodeClient, OnReply, outcome_of
from mqworker.actors.gateway.deliveries import OnDelivery, OnSettled, WorkSource
from mqworker.actors.gateway.errors import (
    UNAVAILABLE,
    UNKNOWN,
    WRONG_TYPE,
    GatewayCallFailed,
    error_of,
    kind_of,
)
from mqworker.actors.gateway.listening import cannot_listen, listen, peer_host, tls_of
from mqworker.actors.gateway.loop import Gateway, WorkingGateway
from mqworker.actors.gateway.strangers import (
    STRANGER_ARGUMENTS,
    STRANGER_BYTES,
    Stranger,
    network_of,
)
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.gateway_options import GatewayOptions, Place, TcpPlace, UnixPlace, parse_place
from mqworker.model.gateway_users import (
    CONSUME,
    INSPECT,
    PUBLISH,
    TRUSTED,
    GatewayUser,
    common_names,
    matches,
)
from mqworker.model.instant import After, At
from mqworker.model.names import queue_name
from mqworker.model.settlement import Ack, Bury, Failure, Park, Release, RetryAt, Run, Settlement

__all__ = [
    "CONSUME",
    "INSPECT",
    "PUBLISH",
    "STRANGER_ARGUMENTS",
    "STRANGER_BYTES",
    "TRUSTED",
    "UNAVAILABLE",
    "UNKNOWN",
    "WRONG_TYPE",
    "Ack",
    "After",
    "At",
    "Bury",
    "Clock",
    "Delivery",
    "Failure",
    "Gateway",
    "GatewayCallFailed",
    "GatewayOptions",
    "GatewayUser",
    "NodeClient",
    "OnDelivery",
    "OnReply",
    "OnSettled",
    "Park",
    "Place",
    "Release",
    "RetryAt",
    "Run",
    "Settlement",
    "Stranger",
    "SystemClock",
    "TcpPlace",
    "UnixPlace",
    "WorkSource",
    "WorkingGateway",
    "cannot_listen",
    "common_names",
    "error_of",
    "kind_of",
    "listen",
    "matches",
    "network_of",
    "outcome_of",
    "parse_place",
    "peer_host",
    "queue_name",
    "tls_of",
]
