"""Verbs: what gateways may ask broker and dispatcher for, each as a procedure; many run at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mqworker.store.procedure import Procedure

Arguments: TypeAlias = Sequence[Any]
"""Plain values as they came over the pipe: each verb checks its own."""

LARGEST_GROUP = 1_000
"""The most weight for one script: the same as a batch of a work queue."""


@dataclass(frozen=True, slots=True)
class Verb:
    """How a call is carried out; the result of its procedure is plain values again.

    `begin` takes the arguments of one call. Where `together` is given, calls that agree in their first
    argument (the queue) become one procedure with one result for each; `weigh` says how much a call adds.
    What is refused together is tried again one by one, so `together` must change nothing when it refuses.
    Which numbered calls a procedure makes, and in which order, must follow from the arguments and the replies
    alone: only then does a repeated turn make the same ones.
    """

    begin: Callable[..., Procedure[Any]]
    together: Callable[[Sequence[Arguments]], Procedure[Sequence[Any]]] | None = None
    weigh: Callable[[Arguments], int] = lambda _: 1


Verbs = Mapping[str, Verb]
