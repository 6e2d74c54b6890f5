"""The commit half of the gateways' link: the broker, and in the same way the dispatcher, serves the gateways.

All calls that arrived since the last turn, from all gateways and their clients, go to Redis in one round
trip; then everybody gets an answer. While Redis is away calls wait, and are answered as unavailable or as
unknown before their callers lose patience. The broker has the verbs that take in, the dispatcher those that
hand out: `verbs/table.py` lists them.

The calls of one mail are grouped by verb and queue. Which lane each step has follows from the mail alone: the
same mail, read by another process after this one was killed, makes the same steps under the same numbering,
and the server recognises them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mqworker.actors.actor import Actor, Post, Watched
from mqworker.actors.gateway.errors import APART, FAILED, kind_of
from mqworker.actors.gateway.size import LARGEST_ANSWER_BYTES, size_of
from mqworker.actors.gateway.verbs.verb import LARGEST_GROUP, Arguments, Verb, Verbs
from mqworker.actors.gateway.watch import GatewayWatch
from mqworker.actors.mail import GatewayCalls, GatewayReplies, Mail, PeerLost, WatchQueues
from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable
from mqworker.store.exchange import Entry
from mqworker.store.outage import OUTAGE_PAUSE_MS
from mqworker.store.procedure import Procedure, Step
from mqworker.store.script import Call
from mqworker.store.store import Store

GATEWAY = "gateway:"
"""How the names of gateways begin."""
PATIENCE_MS = 4_000
"""How long a call may wait for Redis before it is answered as unavailable."""

Answer = tuple[int, list[Any]]
"""The number of a call and its reply."""


class GatewayCommits:
    """Gathers calls, commits them together, answers."""

    def __init__(
        self, store: Store, verbs: Verbs, watch: GatewayWatch, patience_ms: int = PATIENCE_MS
    ) -> None:
        self._store = store
        self._verbs = verbs
        self._watch = watch
        self._patience_ms = patience_ms
        self._open_calls: list[OpenCall] = []
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
        self._commit([open_call for open_call in self._open_calls if not open_call.is_in_trouble])
        if now_ms >= self._resume_at_ms:
            self._commit([open_call for open_call in self._open_calls if open_call.is_in_trouble])
            self._resume_at_ms = now_ms + OUTAGE_PAUSE_MS
        for open_call in self._open_calls:
            if now_ms >= open_call.deadline_ms:
                self._answer(open_call.sender, open_call.give_up())
        self._drop_finished()
        return [*self._posts(), *self._watch.posts(now_ms)]

    def next_turn_in_ms(self, now_ms: int) -> int:
        """At once while steps are open; a little later while Redis is away."""
        wait_ms = self._watch.next_turn_in_ms(now_ms)
        if any(not open_call.is_in_trouble for open_call in self._open_calls):
            return 0
        return min(wait_ms, max(0, self._resume_at_ms - now_ms)) if self._open_calls else wait_ms

    def watched(self) -> Iterable[Watched]:
        """The subscription for those who wait."""
        return self._watch.watched()

    def _take(self, mail: GatewayCalls, sender: str, now_ms: int) -> None:
        self.calls += len(mail.calls)
        for open_call in calls_of(mail, sender, self._verbs, now_ms + self._patience_ms):
            self._answer(sender, open_call.begin())
            if open_call.entry is not None:
                self._open_calls.append(open_call)

    def _commit(self, open_calls: Sequence[OpenCall]) -> None:
        if not open_calls:
            return
        self._store.commit([open_call.entry for open_call in open_calls if open_call.entry is not None])
        for open_call in open_calls:
            self._answer(open_call.sender, open_call.go_on())
        self._drop_finished()

    def _drop_finished(self) -> None:
        self._open_calls = [open_call for open_call in self._open_calls if open_call.entry is not None]

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
        self._open_calls = [open_call for open_call in self._open_calls if open_call.sender != gateway]
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


class ActorServingGateways:
    """An actor that serves gateways beside its own work; neither knows of the other."""

    def __init__(self, actor: Actor, commits: GatewayCommits) -> None:
        self._actor = actor
        self._commits = commits
        self.name = actor.name
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        """What comes from gateways is committed; the actor gets everything else."""
        if sender.startswith(GATEWAY) or (isinstance(mail, PeerLost) and mail.peer.startswith(GATEWAY)):
            self._commits.handle(mail, sender, now_ms)
            return ()
        return self._actor.handle(mail, sender, now_ms)

    def turn(self, now_ms: int) -> Iterator[Post]:
        """Gateways first: somebody waits for the answers."""
        yield from self._commits.turn(now_ms)
        yield from self._actor.turn(now_ms)
        self.is_done = self._actor.is_done  # gateways are stopped before it

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Whichever is sooner."""
        return min(self._actor.next_turn_in_ms(now_ms), self._commits.next_turn_in_ms(now_ms))

    def watched(self) -> Iterable[Watched]:
        """What either waits for."""
        return [*self._actor.watched(), *self._commits.watched()]

    def facts(self) -> dict[str, Any]:
        """The actor's, and how much was done for gateways."""
        return self._actor.facts() | {
            "gateway_calls": self._commits.calls,
            "gateway_refused": self._commits.refused,
        }


class OpenCall:
    """One procedure under way, on behalf of one call or of several. Pure: others send its steps."""

    __slots__ = (
        "_has_changed",
        "_is_group",
        "_lane",
        "_maybe_executed",
        "_numbers",
        "_procedure",
        "_steps",
        "_turn",
        "deadline_ms",
        "entry",
        "sender",
    )

    def __init__(
        self,
        sender: str,
        numbers: Sequence[int],
        procedure: Procedure[Any],
        *,
        lane: str,
        turn: int,
        is_group: bool,
        deadline_ms: int,
    ) -> None:
        self.sender = sender
        self.deadline_ms = deadline_ms
        self.entry: Entry | None = None
        """The step that is to be sent next; None when it is done."""
        self._numbers = numbers
        self._procedure = procedure
        self._lane = lane
        self._turn = turn
        self._is_group = is_group
        self._steps = 0
        self._has_changed = False
        self._maybe_executed = False

    @property
    def is_in_trouble(self) -> bool:
        """Whether its step was sent before and got no answer."""
        return self._maybe_executed or (self.entry is not None and self.entry.outcome is not None)

    def begin(self) -> list[Answer]:
        """Go to the first step; answers if there is none to go to."""
        return self._follow(lambda: next(self._procedure))

    def go_on(self) -> list[Answer]:
        """Take the outcome of the step; the answers when that was the last one."""
        entry = self.entry
        if entry is None or not entry.is_answered:
            return []
        outcome = entry.outcome
        if isinstance(outcome, StoreUnavailable):
            self._maybe_executed = self._maybe_executed or outcome.maybe_executed
            entry.is_answered = False
            return []
        if isinstance(outcome, MqworkerError):
            return self._follow(lambda: self._procedure.throw(outcome))
        self._has_changed = self._has_changed or (isinstance(entry.step, Call) and entry.step.is_numbered)
        return self._follow(lambda: self._procedure.send(outcome))

    def give_up(self) -> list[Answer]:
        """Its time is over: whether it happened is not known, if it was ever sent."""
        trouble = self.entry.outcome if self.entry is not None else None
        text = str(trouble) if isinstance(trouble, StoreUnavailable) else "Redis did not answer in time"
        return self._refused(StoreUnavailable(text, maybe_executed=self._maybe_executed))

    def _follow(self, advance: Callable[[], Step]) -> list[Answer]:
        try:
            step = advance()
        except StopIteration as end:
            return self._done(end.value)
        except MqworkerError as error:
            return self._refused(error)
        except Exception as error:  # noqa: BLE001 - a call that a verb chokes on must not end the others
            return self._failed(error)
        # Only calls that are numbered count: what else a procedure asks may depend on what this process knows
        # already, and then the one that takes over would number its calls otherwise.
        self._steps += isinstance(step, Call) and step.is_numbered
        self.entry = Entry(step, f"{self._lane}.{self._steps}", self._turn)
        return []

    def _done(self, result: Any) -> list[Answer]:  # noqa: ANN401 - plain values
        self.entry = None
        results = result if self._is_group else (result,)
        return [(number, [True, value]) for number, value in zip(self._numbers, results, strict=True)]

    def _refused(self, error: MqworkerError) -> list[Answer]:
        self.entry = None
        kind = APART if self._may_go_apart and not isinstance(error, StoreUnavailable) else kind_of(error)
        return [(number, [False, kind, str(error)]) for number in self._numbers]

    def _failed(self, error: Exception) -> list[Answer]:
        self.entry = None
        kind, text = APART if self._may_go_apart else FAILED, f"{type(error).__name__}: {error}"[:300]
        return [(number, [False, kind, text]) for number in self._numbers]

    @property
    def _may_go_apart(self) -> bool:
        return self._is_group and len(self._numbers) > 1 and not self._has_changed


def calls_of(mail: GatewayCalls, sender: str, verbs: Verbs, deadline_ms: int) -> Iterator[OpenCall]:
    """What a mail comes to, in the order in which its calls were made."""
    for index, (verb, numbers, calls) in enumerate(_groups(mail, verbs)):
        is_group = verb.together is not None and not mail.is_apart
        yield OpenCall(
            sender,
            numbers,
            _procedure(verb, calls, is_group=is_group),
            lane=f"{mail.lane}.{index}",
            turn=mail.turn,
            is_group=is_group,
            deadline_ms=deadline_ms,
        )


def _procedure(verb: Verb, calls: Sequence[Arguments], *, is_group: bool) -> Procedure[Any]:
    if is_group and verb.together is not None:
        return verb.together(calls)
    try:
        return verb.begin(*calls[0])
    except TypeError as error:  # too few or too many arguments; nothing has run yet
        return _refusal(InvalidArgument(str(error)))


def _groups(mail: GatewayCalls, verbs: Verbs) -> Iterator[tuple[Verb, list[int], list[Arguments]]]:
    groups: list[tuple[Verb, list[int], list[Arguments]]] = []
    place_by_key: dict[tuple[str, Any], tuple[int, int]] = {}
    for number, (name, *arguments) in zip(mail.numbers, mail.calls, strict=True):
        verb = verbs.get(name) or _unknown_verb(name)
        if verb.together is None or mail.is_apart:
            groups.append((verb, [number], [arguments]))
            continue
        key, weight = (name, arguments[0]), verb.weigh(arguments)
        place, weighed = place_by_key.get(key, (-1, LARGEST_GROUP))
        if weighed + weight > LARGEST_GROUP:
            place, weighed = len(groups), 0
            groups.append((verb, [], []))
        groups[place][1].append(number)
        groups[place][2].append(arguments)
        place_by_key[key] = (place, weighed + weight)
    return iter(groups)


def _unknown_verb(name: object) -> Verb:
    error = InvalidArgument(f"verb is {name!r}; accepted are those of this actor")
    return Verb(lambda *_arguments: _refusal(error))


def _refusal(error: MqworkerError) -> Procedure[Any]:
    yield from ()
    raise error
