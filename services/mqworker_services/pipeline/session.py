"""The Spark session of every pipeline command: small, quiet, and local unless told otherwise."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker_services.pipeline.launcher import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session: TypeAlias = "SparkSession"
"""For those who hand one on and may not import PySpark themselves."""

DEFAULT_MASTER: Final = "local[*]"
TRIES_PER_TASK: Final = 4

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -Dlog4j2.configurationFile={_LOGGING.as_uri()}",
}
LIGHT: Final = {
    "spark.driver.extraJavaOptions": f"{SETTINGS['spark.driver.extraJavaOptions']} -XX:TieredStopAtLevel=1"
}
"""For commands whose work is done outside the JVM: it compiles less, and is ready sooner."""
LOCAL_SETTINGS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

SHIPPED_PYTHON: Final = "./environment/bin/python"
_SHIPPED: Final = "spark.archives"
_HOST: Final = re.compile(r"(?:spark|sc)://(\[[^]]+\]|[^:,/]+)")
_LOCAL = re.compile(r"local(\[(\*|[0-9]+)\])?")


def open_session(
    name: str = "mqworker", *, master: str = DEFAULT_MASTER, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process; `conf` wins over the settings above."""
    conf = settings_for(master, conf or {})
    prepare_environment(is_here=is_here(master), python=SHIPPED_PYTHON if _SHIPPED in conf else None)
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - seconds to import, and optional
    except ImportError as error:
        raise ConfigurationError(
            "the pipeline needs PySpark, which is not installed: pip install 'mqworker[spark]'"
        ) from error
    builder = SparkSession.builder.appName(name).master(master_with_retries(master))
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _silence_counters(session)
    return session


# Any: what PySpark keeps to itself.
def _silence_counters(session: Any) -> None:  # noqa: ANN401
    """A thread of PySpark prints a traceback when the JVM dies; the command says it in a sentence."""
    counters = getattr(getattr(session, "_sc", None), "_accumulatorServer", None)
    if counters is not None:
        counters.handle_error = lambda *_: None


def settings_for(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """All settings of a session: ours, those of a master on this machine, and over them what was asked."""
    if is_here(master):
        return SETTINGS | LOCAL_SETTINGS | dict(conf)
    return SETTINGS | ({} if "spark.driver.host" in conf else _advertised(master)) | dict(conf)


def is_here(master: str) -> bool:
    """Whether the master, and with it all executors, are on this machine."""
    host = _HOST.match(master)
    return host is None or host.group(1) in {"127.0.0.1", "localhost", "[::1]"}


def _advertised(master: str) -> dict[str, str]:
    """The address of this machine on the way to the master: what executors call the driver by.

    Spark would take the machine's name, which is often one of its loopback.
    """
    host = _HOST.match(master)
    if host is None:
        return {}
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((host.group(1), 1))  # sends nothing: only asks for the way
            return {"spark.driver.host": str(way.getsockname()[0])}
    except OSError:
        return {}  # the master cannot be found: Spark says so


def master_with_retries(master: str) -> str:
    """`local[N]` never tries a failed task again, `local[N,4]` does, as a cluster would."""
    given = _LOCAL.fullmatch(master)
    return f"local[{given.group(2) or 1},{TRIES_PER_TASK}]" if given else master


def parse_conf(pairs: Iterable[str]) -> dict[str, str]:
    """`--conf KEY=VALUE`, as often as it was given."""
    conf: dict[str, str] = {}
    for pair in pairs:
        key, is_pair, value = pair.partition("=")
        if not is_pair or not key.startswith("spark."):
            raise InvalidArgument(
                f"--conf is {pair!r}; accepted is KEY=VALUE with a key such as spark.ui.port"
            )
        conf[key] = value
    return conf
