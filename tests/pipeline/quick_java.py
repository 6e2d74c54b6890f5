"""How the JVM of a test starts quickly: the first compiler is enough for what a test does."""

from __future__ import annotations

from typing import Final

QUICK_CONF: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
}

QUICK_ENVIRONMENT: Final = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""The same for every JVM that a process starts, where no setting reaches it."""
