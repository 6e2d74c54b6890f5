"""How deliveries ended, as the arguments of settle.lua. Pure; the order is in that script's contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from mqworker.model.crash_limit import CRASHED, after_crash
from mqworker.model.dead_letter import encode_letter
from mqworker.model.event import settled_block
from mqworker.model.instant import as_argument
from mqworker.model.record import suspicion_mark
from mqworker.model.settlement import Ack, Bury, Crash, Park, Release, RetryAt, Settlement, Suspect

Argument = str | bytes | int
Unfinished = RetryAt | Release | Park | Crash | Suspect | Bury


def settle_arguments(
    settlements: Sequence[Settlement], *, kept: int, window_ms: int, results_ms: Argument
) -> tuple[tuple[Argument, ...], list[Settlement]]:
    """The arguments, and the settlements in the order in which the reply speaks of them."""
    done = [settlement for settlement in settlements if type(settlement) is Ack]
    others = [settlement for settlement in settlements if not isinstance(settlement, Ack)]
    carried_out = [after_crash(each.delivery) if isinstance(each, Crash) else each for each in others]
    block = settled_block([*done, *carried_out])
    runs = _runs([ack.delivery.fence for ack in done])
    results = _results([ack.result for ack in done])
    arguments: list[Argument] = [kept, window_ms, block.codec, block.data, results_ms]
    arguments += [len(done), len(runs) // 2, len(results), *runs, *results]
    for settlement in carried_out:
        arguments += _other_arguments(settlement)
    return tuple(arguments), [*done, *others]


def _runs(fences: list[int]) -> list[int]:
    """Fences as runs, first and length: what was claimed together is settled together, as a rule."""
    if set(map(type, fences)) - {int}:  # forged: nobody was ever given such a thing, nor the number 0
        fences = [fence if type(fence) is int else 0 for fence in fences]
    count = len(fences)
    if count and fences == list(range(fences[0], fences[0] + count)):
        return [fences[0], count]
    runs: list[int] = []
    for fence in fences:
        if runs and fence == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += [fence, 1]
    return runs


def _results(results: list[bytes]) -> list[bytes]:
    """None when there are none to keep, one when all are equal (most tasks return None), or all of them."""
    if not any(results):
        return []
    return results[:1] if results.count(results[0]) == len(results) else results


def _other_arguments(settlement: Unfinished) -> tuple[Argument, ...]:
    match settlement:
        case RetryAt(delivery, due):
            return ("again", delivery.fence, as_argument(due), 1, 0)
        case Park(delivery, due, mark=mark) if mark:
            return ("park", delivery.fence, as_argument(due), mark, 0)
        case Park(delivery, due):
            return ("again", delivery.fence, as_argument(due), 0, 0)
        case Release(delivery):
            return ("again", delivery.fence, "", 0, 0)
        case Crash(delivery):
            return ("again", delivery.fence, "", 0, 1)
        case Suspect(delivery, most=most):
            return ("again", delivery.fence, "", 0, suspicion_mark(most))
        case Bury(delivery):
            has_crashed = settlement.reason == CRASHED
            has_failed = settlement.failure is not None and not has_crashed
            return ("bury", delivery.fence, encode_letter(settlement), int(has_failed), int(has_crashed))
        case _:
            assert_never(settlement)
