"""What comes in through the gateways, each beside the plainest thing that could be measured in its place."""

from __future__ import annotations

from benchmarks.gateway_gomq import run_gomq
from benchmarks.gateway_redismq import run_redismq
from benchmarks.gateway_skmq import run_skmq


def run(rounds: int) -> None:
    """Print the tables: one for each gateway."""
    run_redismq(rounds)
    run_skmq(rounds)
    run_gomq(rounds)
