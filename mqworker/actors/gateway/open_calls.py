"""Errands: calls of gateways under way at a desk. Pure: a desk sends the steps and brings the outcomes.

The calls of one mail are lumped by verb and queue. What lane each step has follows from the mail alone: the
same mail, read by the desk of another process after this one was killed, makes the same steps under the same
numbering, and the server knows them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mqworker.actors.gateway.errors import APART, FAILED, kind_of
from mqworker.actors.gateway.verbs.verb import LARGEST_LUMP, Arguments, Verb, Verbs
from mqworker.actors.mail import GatewayCalls
from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable
from mqworker.store.group_commit import Entry
from mqworker.store.procedure import Procedure, Step
from mqworker.store.script import Call

Answer = tuple[int, list[Any]]
"""The number of a call and its reply."""


class Errand:
    """One procedure, on behalf of one call or of several."""

    __slots__ = (
        "_has_changed",
        "_is_lump",
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
        is_lump: bool,
        deadline_ms: int,
    ) -> None:
        self.sender = sender
        self.deadline_ms = deadline_ms
        self.entry: Entry | None = None
        """The step that is to be sent next; None when the errand is done."""
        self._numbers = numbers
        self._procedure = procedure
        self._lane = lane
        self._turn = turn
        self._is_lump = is_lump
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
        results = result if self._is_lump else (result,)
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
        return self._is_lump and len(self._numbers) > 1 and not self._has_changed


def errands_of(mail: GatewayCalls, sender: str, verbs: Verbs, deadline_ms: int) -> Iterator[Errand]:
    """What a mail comes to, in the order in which its calls were made."""
    for index, (verb, numbers, calls) in enumerate(_lumps(mail, verbs)):
        is_lump = verb.together is not None and not mail.is_apart
        yield Errand(
            sender,
            numbers,
            _procedure(verb, calls, is_lump=is_lump),
            lane=f"{mail.lane}.{index}",
            turn=mail.turn,
            is_lump=is_lump,
            deadline_ms=deadline_ms,
        )


def _procedure(verb: Verb, calls: Sequence[Arguments], *, is_lump: bool) -> Procedure[Any]:
    if is_lump and verb.together is not None:
        return verb.together(calls)
    try:
        return verb.begin(*calls[0])
    except TypeError as error:  # too few or too many arguments; nothing has run yet
        return _refusal(InvalidArgument(str(error)))


def _lumps(mail: GatewayCalls, verbs: Verbs) -> Iterator[tuple[Verb, list[int], list[Arguments]]]:
    lumps: list[tuple[Verb, list[int], list[Arguments]]] = []
    place_by_key: dict[tuple[str, Any], tuple[int, int]] = {}
    for number, (name, *arguments) in zip(mail.numbers, mail.calls, strict=True):
        verb = verbs.get(name) or _unknown_verb(name)
        if verb.together is None or mail.is_apart:
            lumps.append((verb, [number], [arguments]))
            continue
        key, weight = (name, arguments[0]), verb.weigh(arguments)
        place, weighed = place_by_key.get(key, (-1, LARGEST_LUMP))
        if weighed + weight > LARGEST_LUMP:
            place, weighed = len(lumps), 0
            lumps.append((verb, [], []))
        lumps[place][1].append(number)
        lumps[place][2].append(arguments)
        place_by_key[key] = (place, weighed + weight)
    return iter(lumps)


def _unknown_verb(name: object) -> Verb:
    error = InvalidArgument(f"verb is {name!r}; accepted are those of this desk")
    return Verb(lambda *_arguments: _refusal(error))


def _refusal(error: MqworkerError) -> Procedure[Any]:
    yield from ()
    raise error
