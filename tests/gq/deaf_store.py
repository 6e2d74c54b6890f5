"""A store whose answers are lost, for tests of what is repeated."""

from __future__ import annotations

from typing import Any

from mqworker.errors import StoreUnavailable


class DeafStore:
    """A store that carries out a statement and does not hear the answer, as often as told."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401
        self._store = store
        self.deaf_to: list[str] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        statement = getattr(self._store, name)

        def carry_out(*arguments: object) -> object:
            answer = statement(*arguments)
            if name in self.deaf_to:
                self.deaf_to.remove(name)
                raise StoreUnavailable("the answer was lost")
            return answer

        return carry_out
