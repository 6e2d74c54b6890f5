"""A store whose messages have other numbers than they should, as after a loss of all data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mqworker.queues.gq.rules import GqMessage, GqResult


class ForgetfulStore:
    """Passes everything on; what is popped has the numbers that a test gives it."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401
        self._store = store
        self.number_by_number: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._store, name)

    def pop(self, *arguments: Any) -> list[GqMessage]:  # noqa: ANN401
        popped: list[GqMessage] = self._store.pop(*arguments)
        return [replace(each, id=self.number_by_number.get(each.id, each.id)) for each in popped]

    def settle(self, results: Sequence[GqResult], *arguments: Any) -> Any:  # noqa: ANN401
        """Under the true numbers; each claim of these tests holds one message."""
        return self._store.settle([self._true(each) for each in results], *arguments)

    def _true(self, result: GqResult) -> GqResult:
        true_by_claim = {other: number for number, other in self.number_by_number.items()}
        is_renamed = result.message.claim.number > 1 or result.message.id >= 2**53
        number = true_by_claim.get(result.message.id, result.message.id) if is_renamed else result.message.id
        return replace(result, message=replace(result.message, id=number))
