"""The plan of a run: which measures of which peers, from what was typed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peer import OURS, PEER_BY_NAME, PEERS, Peer
from benchmarks.peer_run import PEER_MEASURES
from benchmarks.registry import OWN_MEASURES, OwnMeasure

EVERYONE = "all"
QUICK = ("enqueue", "drain", "latency", "startup", "idle")
"""What `make bench` measures of mqworker itself, beside the quick ones of the registry."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does."""

    own: tuple[OwnMeasure, ...]
    peers: tuple[Peer, ...]
    peer_measures: frozenset[str]


def measure_names() -> list[str]:
    """All that `--only` accepts."""
    return [*(measure.name for measure in OWN_MEASURES), *PEER_MEASURES]


def make_plan(only: Sequence[str], peer_names: Sequence[str]) -> Plan:
    """Named measures of named peers; peers alone: all their measures; neither: the quick ones of mqworker."""
    peers = _peers(peer_names)
    if only:
        own = tuple(measure for measure in OWN_MEASURES if measure.name in only)
        return Plan(own, peers, frozenset(only) & frozenset(PEER_MEASURES))
    if peer_names:
        return Plan((), peers, frozenset(PEER_MEASURES))
    return Plan(tuple(measure for measure in OWN_MEASURES if measure.is_quick), peers, frozenset(QUICK))


def _peers(names: Sequence[str]) -> tuple[Peer, ...]:
    if EVERYONE in names:
        return PEERS
    return tuple(PEER_BY_NAME[name] for name in dict.fromkeys(names or (OURS,)))
