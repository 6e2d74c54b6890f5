"""The strikes that are in force, for this node's workers: read once a second, told when they change."""

from __future__ import annotations

from collections.abc import Iterable

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.queue import STORE_TROUBLE
from mqworker.actors.mail import StrikesSet
from mqworker.model.strike import Strike, strikes_in
from mqworker.queues.work.keys import strikes_key
from mqworker.store.script import RawReply
from mqworker.store.store import Store

LOOK_EVERY_MS = 1_000


class StrikeWatch:
    """Knows the strikes of a namespace."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._key = strikes_key(namespace)
        self._strikes: list[Strike] | None = None
        """None until they were read."""
        self._look_at_ms = 0

    def told_to(self, workers: Iterable[str]) -> list[Post]:
        """What these workers are told; nothing while it is not known, so that they keep what they know."""
        if self._strikes is None:
            return []
        mail = StrikesSet([strike.as_fields() for strike in self._strikes])
        return [Post(worker, mail) for worker in workers]

    def has_changed(self, now_ms: int) -> bool:
        """Look, if it is time; whether other strikes are in force than before.

        While the server does not answer, those that were in force stay so.
        """
        if now_ms < self._look_at_ms:
            return False
        self._look_at_ms = now_ms + LOOK_EVERY_MS
        try:
            replies: RawReply = self._store.send([("TIME",), ("HGETALL", self._key)], self._key)
        except STORE_TROUBLE:
            return False  # whoever claims and settles tells of it
        (seconds, _), fields = replies
        known, self._strikes = self._strikes, strikes_in(fields[1::2], int(seconds) * 1000)
        return known != self._strikes
