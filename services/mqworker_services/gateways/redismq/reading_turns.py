"""Reading turns: who looks at much, or is given it again, takes turns with all others of the gateway.

A look at a queue, or a recovery, is answered with mebibytes and asked for with thirty bytes, as often as a
client likes. Sent on as they come, one client's looks would keep the server busy for seconds, with everybody
behind them. So few are under way at once, and clients that have more to ask take turns.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial
from typing import Any

from mqworker.gateway import UNAVAILABLE, UNKNOWN, NodeClient, OnReply

MOST_AT_ONCE = 2
"""While one answer of 8 MiB is on its way to the gateway, the server has the next one ready."""
VERBS = frozenset({"inspect", "inspect_pending", "recover"})

_Line = deque[tuple[list[Any], OnReply]]


class ReadingTurns:
    """Passes reading calls on to the node, a few at once; of each client one after the other."""

    def __init__(self, node: NodeClient) -> None:
        self._node = node
        self._line_by_client: OrderedDict[object, _Line] = OrderedDict()
        self._under_way = 0

    def submit(self, client: object, call: list[Any], on_reply: OnReply) -> None:
        """Carry out a call when it is this client's turn; `on_reply` is called once, unless it leaves."""
        self._line_by_client.setdefault(client, deque()).append((call, on_reply))
        self._go_on()

    def leave(self, client: object) -> None:
        """The client is gone; what it still waits for is not asked."""
        self._line_by_client.pop(client, None)

    def _go_on(self) -> None:
        while self._line_by_client and self._under_way < MOST_AT_ONCE:
            client, line = self._line_by_client.popitem(last=False)
            call, on_reply = line.popleft()
            if line:
                self._line_by_client[client] = line
            self._under_way += 1
            self._node.submit_call(call, partial(self._take, on_reply))

    def _take(self, on_reply: OnReply, reply: list[Any]) -> None:
        self._under_way -= 1
        on_reply(reply)
        if not reply[0] and reply[1] in {UNAVAILABLE, UNKNOWN}:
            self._refuse_all(reply[2])
        self._go_on()

    def _refuse_all(self, why: str) -> None:
        """Nobody answers: those in line would otherwise wait for it one after the other."""
        waiting = [each for line in self._line_by_client.values() for each in line]
        self._line_by_client.clear()
        for _, on_reply in waiting:
            on_reply([False, UNAVAILABLE, f"{why}; it was not sent"])
