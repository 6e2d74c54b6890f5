"""The loop of a gateway's process: asyncio outwards, mailboxes inwards.

Owns:     the pipes to the broker and the dispatcher, and what was sent into them and not answered.
Receives: GatewayReplies (broker, dispatcher); QueuesWoken (dispatcher); Ping, Attach, Drain (supervisor).
Sends:    GatewayCalls (broker, dispatcher); WatchQueues (dispatcher); Hello, Pong, Drained (supervisor).
Never:    speaks to Redis, or blocks: pings are answered from this loop, between the bytes of clients.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

from mqworker.actors.child_start import ChildStart
from mqworker.actors.frame import BrokenFrame
from mqworker.actors.garbage import collect_seldom_at_gateway
from mqworker.actors.gateway.client import CallBatches, NodeClient
from mqworker.actors.gateway.deliveries import OnDelivery, WorkSource
from mqworker.actors.mail import (
    Attach,
    Drain,
    Drained,
    GatewayReplies,
    Hello,
    Mail,
    Ping,
    Pong,
    QueuesWoken,
    WatchQueues,
)
from mqworker.actors.mailbox import Mailbox, MailboxClosed, MailboxFull
from mqworker.actors.wiring import logger_of, queue_options
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.gateway_options import GatewayOptions

SUPERVISOR, BROKER, DISPATCHER = "supervisor", "broker", "dispatcher"
_GIVE_UP_EVERY_S = 0.5
_LONGEST_WITHOUT_PEER_MS = 90_000
"""Longer than a peer is ever parked: a broken pipe is mended by a new process."""


class Gateway(Protocol):
    """What a gateway offers to its process."""

    name: str

    async def open(self, node: NodeClient, options: GatewayOptions) -> None:
        """Listen. A place that is taken is a ConfigurationError which names it."""

    async def close(self, grace_ms: int) -> None:
        """Take nobody in any more, finish what was begun, close the connections."""

    def facts(self) -> dict[str, Any]:
        """Plain values for the status screen: `listens`, `connections`, totals `in`, `out` and `refused`.

        And more if there is more to tell; `waiting` are those who wait for something else than Redis.
        """


@runtime_checkable
class WorkingGateway(Protocol):
    """A gateway that also takes deliveries, as a worker does."""

    def take_work(self, work_source: Callable[[OnDelivery], WorkSource]) -> None:
        """Called before `open`, with the way to make a work source."""


class GatewayLoop:
    """Runs one gateway until the supervisor drains it or goes away."""

    def __init__(
        self,
        gateway: Gateway,
        control: Mailbox,
        start: ChildStart,
        clock: Clock,
        peers: Sequence[str] = (BROKER, DISPATCHER),
    ) -> None:
        self._peers = peers
        self._gateway = gateway
        self._start = start
        self._clock = clock
        self._log = logger_of(start)
        self._mailboxes: dict[str, Mailbox] = {SUPERVISOR: control}
        self._node = NodeClient(clock, self._flush, self._tell_watched)
        self._ending: asyncio.Future[int] | None = None
        self._turns = 0
        self._pace = GatewayPace()

    async def run(self, options: GatewayOptions) -> None:
        """From the first pipe to the last connection."""
        self._ending = asyncio.get_running_loop().create_future()
        self._listen_to(SUPERVISOR)
        if isinstance(self._gateway, WorkingGateway):
            self._gateway.take_work(self._work_source)
        await self._gateway.open(self._node, options)
        self._send(SUPERVISOR, Hello(self._start.name, os.getpid()))
        giving_up = asyncio.ensure_future(self._give_up_forever())
        grace_ms = await self._ending
        giving_up.cancel()
        if SUPERVISOR in self._mailboxes:
            await self._gateway.close(grace_ms)
            self._send(SUPERVISOR, Drained())

    def _work_source(self, on_delivery: OnDelivery) -> WorkSource:
        settings = self._start.settings
        result_ttl_ms = int(settings.result_ttl_s * 1000)
        return WorkSource(
            self._node, self._start.consumer, on_delivery, queue_options(settings), result_ttl_ms
        )

    # Mail in

    def _listen_to(self, peer: str) -> None:
        descriptor = self._mailboxes[peer].fileno()
        asyncio.get_running_loop().add_reader(descriptor, partial(self._read, peer, self._mailboxes[peer]))

    def _read(self, peer: str, mailbox: Mailbox) -> None:
        self._turns += 1
        try:
            mails = mailbox.receive()
        except (MailboxClosed, BrokenFrame) as error:
            if self._mailboxes.get(peer) is mailbox:
                self._lose(peer, str(error))
            return
        for mail in mails:
            self._take(mail, peer, mailbox)
        self._flush()

    def _take(self, mail: Mail, sender: str, mailbox: Mailbox) -> None:
        match mail:
            case GatewayReplies():
                self._batches_to(sender).take(mail)
            case QueuesWoken(queues):
                self._node.wake(queues)
            case Ping(number):
                self._send(sender, Pong(number, self._turns, self._facts()))
            case Attach(peer):
                self._attach(peer, Mailbox(mailbox.take_descriptor()))
            case Drain(grace_ms):
                self._end(grace_ms)
            case _:
                pass

    def _attach(self, peer: str, mailbox: Mailbox) -> None:
        old = self._mailboxes.get(peer)
        if old is not None:
            self._read(peer, old)  # its last mail counts
            self._lose(peer, "its next generation was attached")
        self._mailboxes[peer] = mailbox
        self._listen_to(peer)
        for mail in self._batches_to(peer).unanswered():
            self._send(peer, mail)
        if peer == DISPATCHER:
            self._tell_watched()

    def _lose(self, peer: str, reason: str) -> None:
        mailbox = self._mailboxes.pop(peer, None)
        if mailbox is None:
            return
        asyncio.get_running_loop().remove_reader(mailbox.fileno())
        asyncio.get_running_loop().remove_writer(mailbox.fileno())
        mailbox.close()
        if peer == SUPERVISOR:
            self._end(0)  # its pipe is the leash
        else:
            self._log.debug("peer_lost", peer=peer, reason=reason)

    # Mail out

    def _flush(self) -> None:
        for peer in (BROKER, DISPATCHER):
            if peer in self._mailboxes:
                for mail in self._batches_to(peer).mails():
                    self._send(peer, mail)

    def _tell_watched(self) -> None:
        self._send(DISPATCHER, WatchQueues(self._node.watched_queues()))

    def _send(self, peer: str, mail: Mail) -> None:
        mailbox = self._mailboxes.get(peer)
        if mailbox is None:
            return  # it will be sent what it needs once it is there
        try:
            mailbox.send(mail)
        except MailboxFull as error:
            self._lose(peer, str(error))
        except MailboxClosed:
            return  # the end of file comes after its last mail
        if mailbox.has_unsent:
            writer = partial(self._send_rest, peer, mailbox)
            asyncio.get_running_loop().add_writer(mailbox.fileno(), writer)

    def _send_rest(self, peer: str, mailbox: Mailbox) -> None:
        try:
            mailbox.flush()
        except MailboxClosed:
            asyncio.get_running_loop().remove_writer(mailbox.fileno())
            return
        if not mailbox.has_unsent and self._mailboxes.get(peer) is mailbox:
            asyncio.get_running_loop().remove_writer(mailbox.fileno())

    # Time

    async def _give_up_forever(self) -> None:
        seen_at_ms = dict.fromkeys((BROKER, DISPATCHER), self._clock.monotonic_ms())
        while True:
            await asyncio.sleep(_GIVE_UP_EVERY_S)
            now_ms = self._clock.monotonic_ms()
            for peer in self._peers:
                self._batches_to(peer).give_up(now_ms)
                if peer in self._mailboxes:
                    seen_at_ms[peer] = now_ms
                elif now_ms - seen_at_ms[peer] > _LONGEST_WITHOUT_PEER_MS:
                    self._log.error("peer_missing", peer=peer)
                    self._end(0)

    def _end(self, grace_ms: int) -> None:
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(grace_ms)

    def _facts(self) -> dict[str, Any]:
        facts = self._gateway.facts()
        rates = self._pace.rates(facts["in"], facts["out"], self._clock.monotonic_ms())
        waiting = {f"{peer}_waiting": len(self._batches_to(peer)) for peer in (BROKER, DISPATCHER)}
        return facts | rates | waiting

    def _batches_to(self, peer: str) -> CallBatches:
        return self._node.broker if peer == BROKER else self._node.dispatcher


def run_gateway(
    gateway: Gateway,
    options: GatewayOptions,
    control: Mailbox,
    start: ChildStart,
    *,
    peers: Sequence[str] = (BROKER, DISPATCHER),
) -> int:
    """Run a gateway to its end; the exit code of the process. The console has no peers."""
    collect_seldom_at_gateway()
    asyncio.run(GatewayLoop(gateway, control, start, SystemClock(), peers).run(options))
    return 0


class GatewayPace:
    """Asked now and then, it says how fast the totals grew since it was asked before."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def rates(self, taken_in: int, given_out: int, now_ms: int) -> dict[str, float]:
        """`in_per_s` and `out_per_s`, nothing the first time."""
        before, self._before = self._before, (now_ms, taken_in, given_out)
        if before is None or now_ms <= before[0]:
            return {"in_per_s": 0.0, "out_per_s": 0.0}
        seconds = (now_ms - before[0]) / 1000
        return {
            "in_per_s": round((taken_in - before[1]) / seconds, 1),
            "out_per_s": round((given_out - before[2]) / seconds, 1),
        }
