"""The Spark session of every pipeline command: small, quiet, and local unless told otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

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

_LOCAL = re.compile(r"local(\[(\*|[0-9]+)\])?")


def open_session(
    name: str = "mqworker", *, master: str = DEFAULT_MASTER, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process; `conf` wins over the settings above."""
    prepare_environment()
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - seconds to import, and optional
    except ImportError as error:
        raise ConfigurationError(
            "the pipeline needs PySpark, which is not installed: pip install 'mqworker[spark]'"
        ) from error
    builder = SparkSession.builder.appName(name).master(master_with_retries(master))
    for key, value in settings_for(master, conf or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def settings_for(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """All settings of a session: ours, those of a master on this machine, and over them what was asked."""
    is_here = _LOCAL.fullmatch(master) is not None or "://127.0.0.1" in master
    return SETTINGS | (LOCAL_SETTINGS if is_here else {}) | dict(conf)


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
