"""Results of tasks as bytes, and what becomes of one that cannot be kept."""

from __future__ import annotations

from mqworker.model.value_codec import PACKED_NONE, NotAccepted, Value, pack
from mqworker.model.value_problem import problem_with


class ResultRefused(Exception):
    """What a task returned cannot be kept. Tells the reason as it stands in the dead letter."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


def encode_result(value: Value, max_bytes: int) -> bytes:
    """The bytes that are kept of a result. Raises `ResultRefused`: a result is never silently dropped."""
    if value is None:  # of most tasks it is only asked whether they are done
        return PACKED_NONE
    try:
        result = pack(value)
    except NotAccepted as refused:
        problem = problem_with("the result", value) or f"the result cannot be kept: {refused}"
        raise ResultRefused("result_not_accepted", problem) from refused
    if len(result) > max_bytes:
        problem = f"the result is {len(result):,} bytes; accepted are up to {max_bytes:,}"
        raise ResultRefused("result_too_large", problem)
    return result
