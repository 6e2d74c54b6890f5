"""What keys cost: drains of a node with plain, signed and encrypted payloads, in turn."""

from __future__ import annotations

from benchmarks.node import run_sealed


def run(rounds: int) -> None:
    """Print the table."""
    run_sealed(rounds)
