"""A session: one client's commands in, its replies out, in order. Knows no sockets.

A run of commands that mean the same travels together, as fast as they come. Before a command of another kind
is carried out, the replies to those before it must be there: so a client sees its own effects in its own
order, though broker and dispatcher are two processes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, assert_never

from mqworker.gateway import CONSUME, INSPECT, PUBLISH, NodeClient, OnReply
from mqworker_services.gateways.redismq.blocked_pops import BlockedPop, BlockedPops
from mqworker_services.gateways.redismq.commands import (
    Ask,
    Order,
    Pop,
    Probe,
    Push,
    Refused,
    key_of,
    order_of,
    refusal_of,
    value_of,
)
from mqworker_services.gateways.redismq.connection_commands import ConnectionState, answer, is_known
from mqworker_services.gateways.redismq.reading_turns import VERBS, ReadingTurns
from mqworker_services.gateways.redismq.replies import Refusal, Value, encode, encode_elements, encode_runs

MOST_IN_FLIGHT = 2_000
"""Commands of one client that may be under way; what it sends beyond that waits in its socket."""
_WAIT = "wait"
"""A pop that waits: nothing joins it."""
_VERB_BY_COMMAND = {
    b"MQ.PUSH": PUBLISH,
    b"MQ.POP": CONSUME,
    b"MQ.ACK": CONSUME,
    b"MQ.RECOVER": CONSUME,
    b"MQ.INSPECT": INSPECT,
}
_PUSH = frozenset({b"MQ.PUSH", b"mq.push"})
_SHORTEST_PUSH = 3
_LARGEST_RUN = 1_000
_LARGEST_RUN_BYTES = 1_048_576


@dataclass(slots=True)
class Tally:
    """What a gateway counts, over all its sessions."""

    commands: int = 0
    replies: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sessions of a gateway have in common."""

    node: NodeClient
    pops: BlockedPops
    reading: ReadingTurns
    tally: Tally


class _Slot:
    """The place of one reply in the line of replies."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: bytes | None = None


@dataclass(slots=True)
class _Run:
    """Pushes to one queue, one after the other, that become one call and have one place in the line."""

    key: bytes
    slot: _Slot
    counts: list[int] = field(default_factory=list)
    elements: list[bytes] = field(default_factory=list)
    size: int = 0
    reply_by_place: dict[int, bytes] = field(default_factory=dict)
    """Those to single pushes, when together they were refused; they come in any order."""


class Session:
    """One client. `take` its commands; `send` is called with the replies that are due."""

    def __init__(
        self,
        known: ConnectionState,
        shared: Shared,
        send: Callable[[bytes], None],
    ) -> None:
        self.known = known
        self._node = shared.node
        self._pops = shared.pops
        self._reading = shared.reading
        self._tally = shared.tally
        self._send = send
        self._commands: deque[list[bytes]] = deque()
        self._slots: deque[_Slot] = deque()
        self._kind: str | None = None
        """What is under way; only more of the same may join it."""
        self._in_flight = 0
        self._waiters: set[BlockedPop] = set()
        self._is_closed = False
        self._is_landing = False
        self.has_problem = False
        """Whether it sent something after which nothing more is listened to."""

    @property
    def is_busy(self) -> bool:
        """Whether it has enough under way, so that nothing more should be read from its socket."""
        return len(self._commands) + self._in_flight > MOST_IN_FLIGHT

    @property
    def is_idle(self) -> bool:
        """Whether it waits for nothing from us."""
        return not self._slots and (not self._commands or self.known.is_leaving)

    @property
    def is_over(self) -> bool:
        """Whether everything was said, and nothing more is to come."""
        return self.known.is_leaving and not self._slots

    def take(self, commands: Sequence[list[bytes]], problem: str | None) -> None:
        """Carry out commands, as far as their order allows; a problem of the protocol ends the session."""
        self._tally.commands += len(commands)
        self._commands.extend(commands)
        if problem is not None and not self.has_problem:
            self.has_problem = True
            self._commands.append([b"", b"", problem.encode()])  # in its place, after what came before it
        self.go_on()

    def go_on(self) -> None:
        """Carry out what may be carried out now."""
        while self._commands and not self.known.is_leaving and self._in_flight <= MOST_IN_FLIGHT:
            order = self._next_order()
            if order is not None and not self._carry_out(order):
                break
        self._flush()

    def close(self) -> None:
        """The client is gone."""
        self._is_closed = True
        self._commands.clear()
        self._reading.leave(self)
        for waiter in self._waiters:
            self._pops.leave(waiter)

    # What is to be done

    def _next_order(self) -> Order | None:
        """The order of the first command; None when it was answered on the spot, and is gone."""
        words = self._commands[0]
        is_inline = not words[0]
        name = words[1].upper() if is_inline else words[0].upper()
        words = [name, *words[2 if is_inline else 1 :]]
        try:
            if is_inline:
                self._check_inline(words)
            value: Value = self.known.refusal(name)
            if value is None:
                order = order_of(words)
                if order is None:
                    value = answer(words, self.known)
                else:
                    value = self._denial(name, order)
                    if value is None:
                        return order
        except Refused as error:
            value = Refusal(str(error))
        self._reply_now(value)
        return None

    def _denial(self, name: bytes, order: Order) -> Refusal | None:
        """Why this user may not do that, None when it may."""
        user = self.known.user
        if user is None or user.is_unlimited:
            return None
        verb, keys = _VERB_BY_COMMAND[name], order.keys if isinstance(order, Pop) else [_key_of(order)]
        denied = next((key for key in keys if not user.may(verb, key)), None)
        if denied is None:
            return None
        return Refusal(
            f"NOPERM user {user.name} may not {verb} on queue '{denied[:128]}'; see the users of this gateway"
        )

    def _check_inline(self, words: list[bytes]) -> None:
        if not words[0]:
            self.known.is_leaving = True
            raise Refused(f"ERR Protocol error: {words[1].decode('utf-8', 'replace')}")
        if not is_known(words[0]):  # whoever speaks HTTP here is not a client of ours
            self.known.is_leaving = True
            raise Refused("ERR unknown command in an inline request")

    def _reply_now(self, value: Value) -> None:
        self._commands.popleft()
        if isinstance(value, Refusal):
            self._tally.refused += 1
        self._new_slot(is_counted=False).data = encode(value, self.known.version)

    def _carry_out(self, order: Order) -> bool:
        """Begin it, unless it must wait for others; whether it was begun."""
        kind = _kind_of(order)
        if self._kind is not None and (kind != self._kind or kind == _WAIT):
            return False
        self._kind = kind
        if isinstance(order, Push):
            self._push_run()
            return True
        self._commands.popleft()
        slot, version = self._new_slot(), self.known.version
        match order:
            case Ask(call) if kind in VERBS:
                self._reading.submit(self, call, lambda reply: self._fill(slot, value_of(reply), version))
            case Ask(call):
                size = 64 + sum(map(len, call[2])) if kind == "ack" else 64
                self._node.submit_call(call, lambda reply: self._fill(slot, value_of(reply), version), size)
            case Probe(key):
                call = ["inspect", key, 0, 1]
                self._node.submit_call(call, lambda reply: self._fill(slot, order.value_of(reply), version))
            case Pop():
                self._pop(order, slot, version)
            case _:
                assert_never(order)
        return True

    def _push_run(self) -> None:
        """All pushes to the same queue that stand first in line, in one loop: it is most of what is done."""
        commands = self._commands
        words = commands.popleft()
        if not words[0]:
            words = words[1:]  # typed into netcat
        run = _Run(words[1], self._new_slot(), [len(words) - 2], words[2:], sum(map(len, words[2:])))
        while commands and len(run.elements) < _LARGEST_RUN and run.size < _LARGEST_RUN_BYTES:
            words = commands[0]
            if words[0] not in _PUSH or len(words) < _SHORTEST_PUSH or words[1] != run.key:
                break
            elements = words[2:]
            if len(run.elements) + len(elements) > _LARGEST_RUN:
                break
            commands.popleft()
            run.counts.append(len(elements))
            run.elements += elements
            run.size += sum(map(len, elements))
        self._in_flight += len(run.counts) - 1
        self._submit(run.key, run.elements, run.size, partial(self._on_pushed, run))

    def _submit(self, key: bytes, elements: list[bytes], size: int, on_reply: OnReply) -> None:
        self._node.submit_call(["push", key_of(key), elements], on_reply, size + 64)

    def _pop(self, order: Pop, slot: _Slot, version: int) -> None:
        def on_popped(reply: list[Any]) -> None:
            self._waiters.discard(waiter)
            if reply[0] and reply[1]:
                slot.data = encode_elements(reply[1])
                self._land(1)
            else:
                self._fill(slot, value_of(reply), version)

        waiter = self._pops.pop(order, on_popped)
        self._waiters.add(waiter)

    # What came of it

    def _on_pushed(self, run: _Run, reply: list[Any]) -> None:
        if not reply[0] and len(run.counts) > 1 and reply[1] in {"invalid", "queue_full", "store_full"}:
            self._push_apart(run)
            return
        if reply[0]:
            run.slot.data = encode_runs(reply[1], run.counts)
        else:
            run.slot.data = encode(refusal_of(reply), self.known.version) * len(run.counts)
            self._tally.refused += len(run.counts)
        self._tally.replies += len(run.counts) - 1
        self._land(len(run.counts))

    def _push_apart(self, run: _Run) -> None:
        """Together they were refused, and nothing was stored: each on its own, in order."""
        elements = iter(run.elements)
        for place, count in enumerate(run.counts):
            on_reply = partial(self._on_pushed_alone, run, place)
            self._submit(run.key, list(islice(elements, count)), run.size, on_reply)

    def _on_pushed_alone(self, run: _Run, place: int, reply: list[Any]) -> None:
        self._tally.refused += not reply[0]
        run.reply_by_place[place] = encode(value_of(reply), self.known.version)
        if len(run.reply_by_place) == len(run.counts):
            run.slot.data = b"".join(run.reply_by_place[each] for each in range(len(run.counts)))
            self._tally.replies += len(run.counts) - 1
            self._land(len(run.counts))

    def _fill(self, slot: _Slot, value: Value, version: int) -> None:
        self._tally.refused += isinstance(value, Refusal)
        slot.data = encode(value, version)
        self._land(1)

    def _land(self, count: int) -> None:
        self._in_flight -= count
        if not self._in_flight:
            self._kind = None
        if not self._is_landing:  # one look for all replies of this turn
            self._is_landing = True
            asyncio.get_running_loop().call_soon(self._landed)

    def _landed(self) -> None:
        self._is_landing = False
        self.go_on()

    def _new_slot(self, *, is_counted: bool = True) -> _Slot:
        slot = _Slot()
        self._slots.append(slot)
        self._in_flight += is_counted
        return slot

    def _flush(self) -> None:
        due: list[bytes] = []
        while self._slots and self._slots[0].data is not None:
            due.append(self._slots.popleft().data or b"")
        if due and not self._is_closed:
            self._tally.replies += len(due)
            self._send(b"".join(due))


def _key_of(order: Push | Ask | Probe) -> str:
    return str(order.call[1]) if isinstance(order, Ask) else order.key


def _kind_of(order: Order) -> str:
    match order:
        case Push():
            return "push"
        case Ask(call):
            return str(call[0])
        case Probe():
            return "probe"
        case Pop(block_ms=block_ms):
            return "pop" if block_ms is None else _WAIT
        case _:
            assert_never(order)
