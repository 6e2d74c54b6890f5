"""What the tests of the pipeline share: one Spark session, which takes seconds to start, and one server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqworker.settings import Settings, load_settings
from tests.support.real_server import RealServer

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'mqworker[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'mqworker[spark]'")

from mqworker_services.pipeline.engine import Engine, LocalEngine, SparkEngine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.launcher import has_java
from mqworker_services.pipeline.session import open_session
from tests.pipeline.quick_java import QUICK_CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark and pandas warn about themselves, which is no fault of ours; in this folder only."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores, where a failed Spark task is tried again."""
    if not has_java():
        pytest.skip("no Java: install Java 17, or pip install 'mqworker[java]'")
    session = open_session("tests", master="local[2]", conf=QUICK_CONF)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[RealServer]:
    """A real server; a test that harms its server starts one of its own."""
    with RealServer() as running:
        yield running


@pytest.fixture
def settings(server: RealServer) -> Settings:
    """The settings for that server, emptied."""
    with server.client() as client:
        client.flushall()
    return load_settings({"redis_url": server.url})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake that nobody wrote to."""
    return Lake.at(str(tmp_path / "lake"))


@pytest.fixture
def engine() -> Engine:
    """Without Spark, in the process of the tests."""
    return LocalEngine()


@pytest.fixture
def spark_engine(spark: SparkSession) -> Engine:
    """Executors of Spark."""
    return SparkEngine(spark)
