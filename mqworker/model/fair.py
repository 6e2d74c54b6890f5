"""Fair shares: calls of different tenants take turns, however many one of them has waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown, whole_number
from mqworker.model.rate import argument_names

HEAVIEST = 1_000


@dataclass(frozen=True, slots=True)
class Fair:
    """Whose call it is, and how many calls each may start in a turn.

    `key` is a template of the task's arguments: `Fair("{tenant}")`. Tenants of a queue take turns, one call
    each; `weights={"gold": 3}` lets a tenant have three. One whose line is empty is passed over.
    """

    key: str
    weights: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        argument_names(self.key)
        if not isinstance(self.weights, Mapping):
            raise InvalidArgument(f"weights is {shown(self.weights)}; accepted is a dict of tenant to weight")
        for tenant, weight in self.weights.items():
            whole_number(f"the weight of {shown(tenant)}", weight, least=1, most=HEAVIEST)

    def tenant(self, arguments: Mapping[str, object]) -> tuple[str, int]:
        """Whose call this is, and the weight of that tenant."""
        name = self.key.format_map(arguments)
        return name, self.weights.get(name, 1)
