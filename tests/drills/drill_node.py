"""A node that is killed for a living: `mqworker run` with more patience for deaths, and less before restarts.

Started as `python -m tests.drills.drill_node [--clock-shift-s N] MODULE:APP`; all else comes from variables.
With a shift the wall clock of the whole node is wrong by so much: its children are forked from it.
"""

from __future__ import annotations

import argparse
import sys
import time
from types import SimpleNamespace

from mqworker.cli.run import run_node
from mqworker.log import configure_logging
from mqworker.model import clock
from mqworker.settings import load_settings
from mqworker.supervisor.child_care import Limits
from mqworker.supervisor.restart_policy import RestartLimits

LIMITS = Limits(RestartLimits(first_pause_ms=10, longest_pause_ms=50, most_deaths=1_000_000))


def _set_clock(shift_s: int) -> None:
    shift_ns = shift_s * 1_000_000_000
    wrong = SimpleNamespace(**{**vars(time), "time_ns": lambda: time.time_ns() + shift_ns})
    clock.time = wrong  # type: ignore[attr-defined] - the one module that reads the time


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clock-shift-s", type=int, default=0)
    parser.add_argument("app")
    arguments = parser.parse_args()
    if arguments.clock_shift_s:
        _set_clock(arguments.clock_shift_s)
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format)
    sys.exit(run_node(settings, arguments.app, limits=LIMITS))
