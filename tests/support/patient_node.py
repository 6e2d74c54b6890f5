"""A node for tests that kill its children: restarts come quickly, and no number of deaths is too many.

Started as `python -m tests.support.patient_node [MODULE:APP]`; without an app it has no workers. All else
comes from variables.
"""

from __future__ import annotations

import sys

from mqworker.cli.run import run_node
from mqworker.log import configure_logging
from mqworker.settings import load_settings
from mqworker.supervisor.child_care import Limits
from mqworker.supervisor.liveness import LivenessLimits
from mqworker.supervisor.restart_policy import RestartLimits

# Pinged often, so that what the node shows of its children is of this moment; patient all the same.
LIMITS = Limits(
    RestartLimits(first_pause_ms=10, longest_pause_ms=50, most_deaths=1_000_000),
    LivenessLimits(
        ping_every_ms=50, silent_after_ms=30_000, ready_within_ms=60_000, worker_ready_within_ms=120_000
    ),
)

if __name__ == "__main__":
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format)
    app = sys.argv[1] if len(sys.argv) > 1 else None
    sys.exit(run_node(settings, app, limits=LIMITS, workers=0 if app is None else None))
