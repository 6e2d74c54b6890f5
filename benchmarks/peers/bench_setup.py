"""What the harness tells a contestant, by environment variables. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

URL = os.environ["BENCH_REDIS_URL"]
BOARD = Path(os.environ["BENCH_BOARD"])
VARIANT = os.environ["BENCH_VARIANT"]
"""`tuned`: the quickest fair settings; `stock`: as installed; `safe`: set so that a crash is survived."""
QUEUES = [f"q{number}" for number in range(int(os.environ["BENCH_QUEUES"]))]
"""Names of the queues; with a single one the contestant uses its default queue instead."""
WORKERS = int(os.environ["BENCH_WORKERS"])
IS_WAITING = os.environ["BENCH_BODY"] == "100 ms waiting"
"""The tasks will wait and use no processor: whoever can run many of them side by side may do so."""
IN_FLIGHT = 100
"""How many waiting tasks at once in each worker process: the default of mqworker."""
