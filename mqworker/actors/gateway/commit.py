"""The desk: where the broker, and in the same way the dispatcher, serves the gateways.

All calls that arrived since the last turn, from all gateways and their clients, go to Redis in one round
trip; then everybody gets an answer. While Redis is away calls wait, and are answered as unavailable or as
unknown before their callers lose patience. The broker's desk has the verbs that take in, the dispatcher's
those that hand out; which, stands in `gateway_verbs.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mqworker.actors.actor import Actor, Post, Watched
from mqworker.actors.gateway.errors import FAILED
from mqworker.actors.gateway.open_calls import Answer, Errand, errands_of
from mqworker.actors.gateway.size import LARGEST_ANSWER_BYTES, size_of
from mqworker.actors.gateway.verbs.verb import Verbs
from mqworker.actors.gateway.watch import GatewayWatch
from mqworker.actors.mail import GatewayCalls, GatewayReplies, Mail, PeerLost, WatchQueues
from mqworker.store.store import Store

GATEWAY = "gateway:"
"""How the names of gateways begin."""
PATIENCE_MS = 4_000
"""So long a call may wait for Redis before it is answered as unavailable."""
_PAUSE_MS = 200


class GatewayDesk:
    """Gathers calls, commits them together, answers."""

    def __init__(
        self, store: Store, verbs: Verbs, watch: GatewayWatch, patience_ms: int = PATIENCE_MS
    ) -> None:
        self._store = store
        self._verbs = verbs
        self._watch = watch
        self._patience_ms = patience_ms
        self._errands: list[Errand] = []
        self._answers: dict[str, list[Answer]] = {}
        self._resume_at_ms = 0
        self.calls = 0
        self.refused = 0

    def handle(self, mail: Mail, sender: str, now_ms: int) -> None:
        """Take in what concerns gateways."""
        match mail:
            case GatewayCalls():
                self._take(mail, sender, now_ms)
            case WatchQueues(queues):
                self._watch.set(sender, queues)
            case PeerLost(peer):
                self._forget(peer)
            case _:
                pass

    def turn(self, now_ms: int) -> list[Post]:
        """One round trip for everybody; those in trouble apart, so that they hold up nobody else."""
        self._commit([errand for errand in self._errands if not errand.is_in_trouble])
        if now_ms >= self._resume_at_ms:
            self._commit([errand for errand in self._errands if errand.is_in_trouble])
            self._resume_at_ms = now_ms + _PAUSE_MS
        for errand in self._errands:
            if now_ms >= errand.deadline_ms:
                self._answer(errand.sender, errand.give_up())
        self._drop_finished()
        return [*self._posts(), *self._watch.posts(now_ms)]

    def next_turn_in_ms(self, now_ms: int) -> int:
        """At once while steps are open; a little later while Redis is away."""
        wait_ms = self._watch.next_turn_in_ms(now_ms)
        if any(not errand.is_in_trouble for errand in self._errands):
            return 0
        return min(wait_ms, max(0, self._resume_at_ms - now_ms)) if self._errands else wait_ms

    def watched(self) -> Iterable[Watched]:
        """The subscription for those who wait."""
        return self._watch.watched()

    def _take(self, mail: GatewayCalls, sender: str, now_ms: int) -> None:
        self.calls += len(mail.calls)
        for errand in errands_of(mail, sender, self._verbs, now_ms + self._patience_ms):
            self._answer(sender, errand.begin())
            if errand.entry is not None:
                self._errands.append(errand)

    def _commit(self, errands: Sequence[Errand]) -> None:
        if not errands:
            return
        self._store.commit([errand.entry for errand in errands if errand.entry is not None])
        for errand in errands:
            self._answer(errand.sender, errand.go_on())
        self._drop_finished()

    def _drop_finished(self) -> None:
        self._errands = [errand for errand in self._errands if errand.entry is not None]

    def _answer(self, sender: str, answers: list[Answer]) -> None:
        if answers:
            self._answers.setdefault(sender, []).extend(answers)
            self.refused += sum([not reply[0] for _, reply in answers])

    def _posts(self) -> list[Post]:
        answers, self._answers = self._answers, {}
        return [
            Post(sender, GatewayReplies([number for number, _ in part], [reply for _, reply in part]))
            for sender, some in answers.items()
            for part in _parts(some)
        ]

    def _forget(self, gateway: str) -> None:
        self._errands = [errand for errand in self._errands if errand.sender != gateway]
        self._answers.pop(gateway, None)
        self._watch.set(gateway, ())


def _parts(answers: list[Answer]) -> Iterator[list[Answer]]:
    """As many mails as it takes: each must fit into a frame, and so must each answer."""
    part: list[Answer] = []
    part_bytes = 0
    for number, reply in answers:
        size = size_of(reply)
        if size > 2 * LARGEST_ANSWER_BYTES:
            reply = [False, FAILED, f"the answer has {size:,} bytes; ask for less at a time"]  # noqa: PLW2901
            size = 0
        if part and part_bytes + size > LARGEST_ANSWER_BYTES:
            yield part
            part, part_bytes = [], 0
        part.append((number, reply))
        part_bytes += size
    yield part


class ActorWithDesk:
    """An actor that serves gateways beside its own work; neither knows of the other."""

    def __init__(self, actor: Actor, desk: GatewayDesk) -> None:
        self._actor = actor
        self._desk = desk
        self.name = actor.name
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        """To the desk what comes from gateways, to the actor everything else."""
        if sender.startswith(GATEWAY) or (isinstance(mail, PeerLost) and mail.peer.startswith(GATEWAY)):
            self._desk.handle(mail, sender, now_ms)
            return ()
        return self._actor.handle(mail, sender, now_ms)

    def turn(self, now_ms: int) -> Iterator[Post]:
        """The desk first: somebody waits for its answers."""
        yield from self._desk.turn(now_ms)
        yield from self._actor.turn(now_ms)
        self.is_done = self._actor.is_done  # gateways are stopped before it

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Whichever is sooner."""
        return min(self._actor.next_turn_in_ms(now_ms), self._desk.next_turn_in_ms(now_ms))

    def watched(self) -> Iterable[Watched]:
        """What either waits for."""
        return [*self._actor.watched(), *self._desk.watched()]

    def facts(self) -> dict[str, Any]:
        """The actor's, and how much the desk did."""
        return self._actor.facts() | {
            "gateway_calls": self._desk.calls,
            "gateway_refused": self._desk.refused,
        }
