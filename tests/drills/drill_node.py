"""A node that is killed for a living: `mqworker run` with more patience for deaths, and less before restarts.

Started as `python -m tests.drills.drill_node MODULE:APP`; all else comes from `MQWORKER_*` variables.
"""

from __future__ import annotations

import sys

from mqworker.cli.run import run_node
from mqworker.log import configure_logging
from mqworker.settings import load_settings
from mqworker.supervisor.child_care import Limits
from mqworker.supervisor.restart_policy import RestartLimits

LIMITS = Limits(RestartLimits(first_pause_ms=10, longest_pause_ms=50, most_deaths=1_000_000))

if __name__ == "__main__":
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format)
    sys.exit(run_node(settings, sys.argv[1], limits=LIMITS))
