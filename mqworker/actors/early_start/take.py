"""Early starts, the worker's side: an idle worker hears of messages directly, and may begin them.

Each comes with a ticket (tickets.py). The dispatcher hears of it at the same time, and hands it out if it is
not begun here: whatever is missed, refused or heard too late costs a millisecond and no message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from mqworker.actors.actor import Watched
from mqworker.actors.early_start.tickets import HandedOver, Tickets, note_unreadable, read_handed_over
from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.quarantine import Quarantine
from mqworker.store.link.subscription import ADDED, Subscription
from mqworker.store.store import Store

LISTEN_AFTER_MS = 200
"""A worker that has just started has waiting messages to run first."""
TRY_AGAIN_MS = 5_000
_LOOK_MS = 20


class EarlyStart:
    """Listens for one worker."""

    def __init__(
        self,
        worker: int,
        tickets: Tickets,
        open_store: Callable[[], Store],
        log: Logger,
        quarantine: Quarantine,
    ) -> None:
        self._worker = worker
        self._log = log
        self._quarantine = quarantine
        self._tickets = tickets
        self._open_store = open_store
        self._queue_by_channel: Mapping[str, str] = {}
        self._connecting: _Connecting | None = None
        self._subscription: Subscription | None = None
        self._listen_at_ms = 0
        self.count = 0
        """How many were begun this way."""

    def stand_ready(self, queue_by_channel: Mapping[str, str], now_ms: int) -> None:
        """Listen there from now on; nowhere when there are no channels."""
        self.close()
        self._queue_by_channel = queue_by_channel
        self._listen_at_ms = now_ms + LISTEN_AFTER_MS

    def watched(self) -> tuple[Watched, ...]:
        """What to wait for."""
        return () if self._subscription is None else (self._subscription,)

    def next_turn_in_ms(self, now_ms: int) -> int | None:
        """When to look for more than what is watched."""
        if self._subscription is not None or not self._queue_by_channel:
            return None
        return _LOOK_MS if self._connecting is not None else max(0, self._listen_at_ms - now_ms)

    def take(self, is_wanted: Callable[[bytes], bool], now_ms: int) -> tuple[str, HandedOver] | None:
        """Read what came; at most one delivery, with its queue, is ours to begin."""
        redeemed: tuple[str, HandedOver] | None = None
        if self._subscription is None:
            self._listen(now_ms)
        try:
            while self._subscription is not None and (call := self._subscription.take(0)) is not None:
                channel, text = call
                if text == ADDED:
                    continue
                queue, handed_over = self._queue_by_channel[channel], read_handed_over(text)
                if handed_over is None:
                    note_unreadable(self._quarantine, channel, text)
                elif redeemed is None:
                    redeemed = self._redeem(queue, handed_over, is_wanted)
        except StoreUnavailable:
            self.close()
            self._listen_at_ms = now_ms + LISTEN_AFTER_MS
        return redeemed

    def close(self) -> None:
        """Stop listening."""
        if self._connecting is not None:
            self._connecting.give_up()
            self._connecting = None
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _redeem(
        self, queue: str, handed_over: HandedOver, is_wanted: Callable[[bytes], bool]
    ) -> tuple[str, HandedOver] | None:
        if not is_wanted(handed_over.record):
            # Whoever heard it on the channel knows the ticket now, and could come with something else.
            self._tickets.refuse(self._worker, handed_over.ticket)
            return None
        if not self._tickets.redeem(self._worker, handed_over.ticket, queue, handed_over.fence):
            return None
        self.count += 1
        return queue, handed_over

    def _listen(self, now_ms: int) -> None:
        if self._connecting is not None:
            if self._connecting.is_over:
                self._subscription, self._connecting = self._connecting.subscription, None
                self._listen_at_ms = now_ms + TRY_AGAIN_MS
        elif self._queue_by_channel and now_ms >= self._listen_at_ms:
            self._connecting = _Connecting(self._open_store, sorted(self._queue_by_channel), self._log)


class _Connecting:
    """Subscribes in a thread: a server that hangs must not keep the worker from its work."""

    def __init__(self, open_store: Callable[[], Store], channels: list[str], log: Logger) -> None:
        self._log = log
        self.subscription: Subscription | None = None
        self.is_over = False
        """Whether the attempt has ended; the thread may live a moment longer."""
        self._open_store = open_store
        self._channels = channels
        self._is_wanted = True
        self._lock = threading.Lock()
        threading.Thread(target=self._connect, name="early-start", daemon=True).start()

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            self._is_wanted = False
            if self.subscription is not None:
                self.subscription.close()

    def _connect(self) -> None:
        try:
            self._subscribe()
        finally:
            self.is_over = True

    def _subscribe(self) -> None:
        try:
            subscription = self._open_store().connection.subscribe(self._channels)
        except MqworkerError as error:  # whoever waits for it tries again, later
            self._log.debug("early_start_unavailable", reason=str(error))
            return
        with self._lock:
            if self._is_wanted:
                self.subscription = subscription
            else:
                subscription.close()
