"""Signature: a call that was not made yet, as a value. Workflows are put together from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mqworker.model.names import TaskName
from mqworker.tasks.options import CallPlan

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Signature(Generic[R_co]):
    """A task with its arguments, and where and when it is to run."""

    task: TaskName
    # Any: the user's own values, which were checked against the task where the signature was made.
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    plan: CallPlan
