"""A node for tests that kill its children: restarts come quickly, and no number of deaths is too many.

Started as `python -m tests.support.patient_node [--quick-pings] [--clock-shift-s N] [MODULE:APP]`; without an
app it has no workers. All else comes from variables. With a shift the clock of the whole node is wrong by
so much: its children are forked from it.
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
from mqworker.supervisor.liveness import LivenessLimits
from mqworker.supervisor.restart_policy import RestartLimits

RESTARTS = RestartLimits(first_pause_ms=10, longest_pause_ms=50, most_deaths=1_000_000)
# Pinged often, so that what the node shows of its children is recent; patient with silent ones all the same.
QUICK_PINGS = LivenessLimits(
    ping_every_ms=50, silent_after_ms=30_000, ready_within_ms=60_000, worker_ready_within_ms=120_000
)


def _set_clock(shift_s: int) -> None:
    shift_ns = shift_s * 1_000_000_000
    wrong = SimpleNamespace(**{**vars(time), "time_ns": lambda: time.time_ns() + shift_ns})
    clock.time = wrong  # type: ignore[attr-defined] - the one module that reads the time


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick-pings", action="store_true")
    parser.add_argument("--clock-shift-s", type=int, default=0)
    parser.add_argument("app", nargs="?")
    arguments = parser.parse_args()
    if arguments.clock_shift_s:
        _set_clock(arguments.clock_shift_s)
    limits = Limits(RESTARTS, QUICK_PINGS) if arguments.quick_pings else Limits(RESTARTS)
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format)
    workers = 0 if arguments.app is None else None
    sys.exit(run_node(settings, arguments.app, limits=limits, workers=workers))
