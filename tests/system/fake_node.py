"""A supervisor over fake actors, a program of its own: python -m tests.system.fake_node DIRECTORY OPTIONS."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mqworker.log import configure_logging, get_logger
from mqworker.model.clock import SystemClock
from mqworker.settings import Settings
from mqworker.supervisor.child_care import Limits
from mqworker.supervisor.liveness import LivenessLimits
from mqworker.supervisor.node import make_node
from mqworker.supervisor.restart_policy import RestartLimits
from mqworker.supervisor.supervisor import Supervisor
from tests.system import fake_actors


def main() -> int:
    """Run until stopped; the exit code is the supervisor's."""
    directory, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    settings = Settings(data_dir=directory, redis_url="redis://nowhere", drain_s=options["drain_s"])
    configure_logging("info", "json")
    limits = Limits(
        RestartLimits(
            first_pause_ms=10,
            longest_pause_ms=200,
            most_deaths=options["most_deaths"],
            within_ms=5_000,
            first_park_ms=500,
            longest_park_ms=2_000,
        ),
        # A second is long for an idle actor, even on a machine that runs other tests at the same time.
        LivenessLimits(ping_every_ms=50, silent_after_ms=1_000, kill_after_abort_ms=300),
    )
    supervisor = Supervisor(
        fake_actors.topology(options["workers"]),
        make_node(settings, options["deeds"], directory),
        directory,
        clock=SystemClock(),
        log=get_logger(actor="supervisor"),
        limits=limits,
    )
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
