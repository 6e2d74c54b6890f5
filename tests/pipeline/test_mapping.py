"""`task.map_on_spark(frame)`: a task over a DataFrame, run by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mqworker.errors import InvalidArgument
from tests.pipeline.mapped_tasks import area, describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_task_runs_over_a_frame_and_its_result_is_a_column(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2, 3), (4, 5)], "width INT, height INT")

    sized = area.map_on_spark(frame)
    described = describe.map_on_spark(frame, column="what")

    assert sized.dtypes[-1] == ("result", "bigint")
    assert sorted(row["result"] for row in sized.collect()) == [6, 20]
    assert sorted(row["what"] for row in described.collect()) == ['{"longest": 3}', '{"longest": 5}']


def test_a_column_that_is_there_already_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2, 3)], "width INT, result INT")

    with pytest.raises(InvalidArgument, match="column is 'result', which the frame has already"):
        area.map_on_spark(frame)
