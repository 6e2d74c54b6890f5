"""The machine: what it is, without its name, and how busy others keep it."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from mqworker.store.embedded.find import find_binary

BUSY_PERCENT = 15.0
LOOK_S = 0.2


def describe_machine() -> dict[str, str]:
    """What a reader needs to know to compare."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "server": f"{_server_version()}, no persistence, loopback",
    }


def foreign_cpu_percent() -> float:
    """How busy the processors are right now; called between two turns, when nothing of ours runs."""
    return float(psutil.cpu_percent(interval=LOOK_S))


def busy_line(samples: Sequence[float]) -> str | None:
    """One sentence when others kept the machine busy; None when it was quiet."""
    if not samples or max(samples) <= BUSY_PERCENT:
        return None
    share = sum(1 for sample in samples if sample > BUSY_PERCENT) / len(samples)
    return (
        f"other programs used {statistics.median(samples):.0f} % of the processors (median; at most "
        f"{max(samples):.0f} %), more than {BUSY_PERCENT:.0f} % in {share:.0%} of the looks: "
        "the figures are lower than they could be, and not to be trusted"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if not information.is_file():
        return platform.processor() or "unknown"
    lines = information.read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _server_version() -> str:
    answer = subprocess.run([str(find_binary()), "--version"], capture_output=True, text=True, check=False)
    words = answer.stdout.split()
    version = next((word.removeprefix("v=") for word in words if word.startswith("v=")), "unknown version")
    return f"Valkey {version}"
