"""How large values are on a pipe, about; and how much of a list fits into one answer. Pure.

A frame has a limit, and elements may have a mebibyte each: what is handed out in one answer is bounded here,
so that no client can ask for more than the pipes between processes carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

LARGEST_ANSWER_BYTES = 8 * 1024 * 1024
"""What one call is given at the most; whoever wants more asks again."""
_OVERHEAD = 8
_TEXTS = {str, bytes}
_ROWS = {list, tuple}


def size_of(value: Any) -> int:  # noqa: ANN401 - plain values
    """About how many bytes a plain value has."""
    kind = type(value)
    if kind in _TEXTS:
        return len(value) + _OVERHEAD
    if kind in _ROWS:
        return sum(map(size_of, value)) + _OVERHEAD
    if kind is dict:
        return sum(size_of(each) for pair in value.items() for each in pair) + _OVERHEAD
    return _OVERHEAD


def count_that_fits(rows: Sequence[Any]) -> int:
    """How many of the first rows fit into one answer; at least one."""
    totals = accumulate(map(size_of, rows))
    return max(1, sum(total <= LARGEST_ANSWER_BYTES for total in totals))
