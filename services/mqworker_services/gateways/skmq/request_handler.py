"""Carries out the requests of all connections; what is to be stored goes to the broker."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never

from mqworker.gateway import CONSUME, PUBLISH, UNKNOWN, GatewayOptions, GatewayUser, NodeClient
from mqworker.queues.skmq.names import app_of_queue
from mqworker_services.gateways.skmq import replies
from mqworker_services.gateways.skmq.connection import Answering, Connection
from mqworker_services.gateways.skmq.deliveries import Deliveries
from mqworker_services.gateways.skmq.options import SkmqOptions
from mqworker_services.gateways.skmq.recipient_rules import RecipientRules
from mqworker_services.gateways.skmq.requests import Login, MessageFeedback, Refused, Register, Request, Send

_AROUND_A_CONTENT = 150


class RequestHandler:
    """Implements `Handler` of connection.py."""

    def __init__(
        self,
        node: NodeClient,
        batches: GatewayOptions,
        options: SkmqOptions,
        deliveries: Deliveries,
        on_use: Callable[[str], None],
    ) -> None:
        self.connections: set[Connection] = set()
        self.frames = self.stored = self.refused = 0
        self._node = node
        self._batches_to = batches
        self._deliveries = deliveries
        self._on_use = on_use
        self._loop = asyncio.get_running_loop()
        self._throttle = Throttle(options.rate, self._loop.time())
        self._throttles_frames = options.rate_scope == "frame"
        self._source = secrets.token_hex(4)
        self._numbers = itertools.count()
        self._rules = RecipientRules(options.recipients, batches.own_ports)

    # Connections

    def joined(self, connection: Connection) -> float | None:
        """Connections that we opened ourselves are not counted or throttled."""
        if connection.push is None:
            if len(self.connections) >= self._batches_to.max_connections:
                self.refused += 1
                return None
            self.connections.add(connection)
            return self._throttle.take(1, self._loop.time())
        return 0.0

    def left(self, connection: Connection) -> None:
        """Forget the connection."""
        self.connections.discard(connection)

    def throttle(self, frames: int) -> float:
        """How long to wait before more is read."""
        self.frames += frames
        return self._throttle.take(frames, self._loop.time()) if self._throttles_frames else 0.0

    def newcomer(self, common_names: Sequence[str]) -> GatewayUser | None:
        """Who it is that has said nothing yet; None: it has to log in."""
        return self._batches_to.newcomer(common_names)

    def user_of(self, token: bytes) -> GatewayUser | None:
        """Whose token this is."""
        return self._batches_to.users.by_token(token)

    # Requests

    def serve(self, request: Request, connection: Connection, answering: Answering) -> None:
        """Carry out one request, if whoever asks may."""
        denial = self._denial(request, connection)
        if denial is not None:
            self.refused += 1
            answering(denial)
            return
        match request:
            case Send():
                self._send(request, answering)
            case MessageFeedback():
                self._deliveries.hear(request, connection, answering)
            case Register():
                self._register(request, connection, answering)
            case Refused(answer):
                self.refused += 1
                answering(answer)
            case Login():
                answering(replies.ACK)  # there is no token to be shown
            case _:
                assert_never(request)

    def _denial(self, request: Request, connection: Connection) -> replies.Answer | None:
        """What to answer to somebody who may not do that; feedback is judged where its queue is known."""
        if connection.push is not None and self._batches_to.asks_who:
            # It has shown nothing: it may speak of what we came to push.
            return None if _is_about(connection.push.msgid, request) else replies.LOGIN_NEEDED
        user = connection.user
        if user is None or user.is_unlimited:
            return None
        match request:
            case Send(queue=queue):
                verb, app = PUBLISH, app_of_queue(queue)
            case Register(recipient):
                verb, app = CONSUME, recipient.app_id
            case _:
                return None
        return None if user.may(verb, app) else replies.not_permitted(user.name, verb, app)

    def _send(self, request: Send, answering: Answering) -> None:
        self._on_use(request.queue)
        # Short, but unlike any other: the source is drawn at random once for this process.
        message = f"{request.stem}{self._source}{next(self._numbers):x}"
        call = ["skmq_send", request.queue, request.msgid, message, request.task, request.content]
        size = len(request.content) + _AROUND_A_CONTENT
        self._node.submit_call(call, partial(self._on_sent, request.msgid, answering), size)

    def _on_sent(self, msgid: str, answering: Answering, reply: list[Any]) -> None:
        if reply[0]:
            self.stored += 1
            answering(replies.STORED if reply[1] == "stored" else replies.already_exists(msgid))
        elif reply[1] == UNKNOWN:
            answering(None)  # it may be stored or not: no answer is right
        else:
            self.refused += 1
            answering(replies.NOT_STORED)

    def _register(self, request: Register, connection: Connection, answering: Answering) -> None:
        recipient = request.recipient
        refusal = self._rules.refusal(recipient.host, recipient.port, connection.host)
        if refusal is not None:
            self.refused += 1
            answering(replies.Answer("reject", refusal))
            return
        self._on_use(recipient.queue)
        entry = f"{recipient.weight} {recipient.host} {recipient.port} {recipient.id}"
        # Whoever may not consume everything does not take a recipient away from another app.
        is_limited = connection.user is not None and not connection.user.is_unlimited
        call = ["skmq_register", recipient.queue, recipient.key, entry, is_limited]
        self._node.submit_call(
            call, lambda reply: answering(replies.REGISTERED if reply[0] else replies.NOT_REGISTERED), 300
        )


def _is_about(msgid: str, request: Request) -> bool:
    return isinstance(request, MessageFeedback) and request.msgid in {"", msgid} and not request.key


class Throttle:
    """A token bucket as the SKMQ document has it: permits per second, at most one second's worth saved.

    It starts empty, and the first request never waits; taking many at once makes the next request wait.
    It says how long to wait; the caller waits. Times are seconds of any monotonic clock.
    """

    def __init__(self, rate: int, now_s: float) -> None:
        self._rate = rate
        self._stored = 0.0
        self._next_free_s = now_s

    def take(self, permits: int, now_s: float) -> float:
        """Take permits; the seconds to wait before they may be used."""
        if now_s > self._next_free_s:
            self._stored = min(self._rate, self._stored + (now_s - self._next_free_s) * self._rate)
            self._next_free_s = now_s
        wait_s = self._next_free_s - now_s
        from_stored = min(permits, self._stored)
        self._stored -= from_stored
        self._next_free_s += (permits - from_stored) / self._rate
        return wait_s
