"""`python -m benchmarks [--only NAME] [--rounds N]`: measure on this machine, beside raw redis-py."""

from __future__ import annotations

import os
import platform

import click
import psutil

from benchmarks import node, rsmq, store, tasks

BENCHMARKS = {"store": store.run, "tasks": tasks.run, "node": node.run, "rsmq": rsmq.run}
BUSY_PERCENT = 15.0


@click.command()
@click.option("--only", type=click.Choice(sorted(BENCHMARKS)), help="Run just this one.")
@click.option("--rounds", default=5, show_default=True, help="Rounds; the tables show their median.")
def main(only: str | None, rounds: int) -> None:
    """Measure mqworker on this machine."""
    busy = psutil.cpu_percent(interval=0.5)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform(terse=True)}")
    if busy > BUSY_PERCENT:
        print(f"note: other programs use {busy:.0f} % of the CPU; the figures are lower than they could be")
    for name, run in BENCHMARKS.items():
        if only in (None, name):
            run(rounds)


if __name__ == "__main__":
    main()
