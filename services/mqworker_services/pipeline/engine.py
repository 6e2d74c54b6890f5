"""Engine: who does the work that can be cut up, this process or Spark's executors.

The work is a function of one item that answers with bytes; it runs where the item goes. Whoever asks does not
know which engine it is, so both give the same answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import pyarrow as pa

from mqworker_services.pipeline.trouble import in_a_sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ItemT = TypeVar("ItemT")
Work = Callable[[ItemT], Iterable[bytes]]

_TASKS_PER_CORE: Final = 4
"""Items of different size even out; more tasks would only cost."""


class Engine(Protocol):
    """Does work for many items at once."""

    def each(self, work: Work[ItemT], items: Sequence[ItemT]) -> list[bytes]:
        """What the work answers for each item, in the order of the items."""


class LocalEngine:
    """Threads of this process: Arrow does the work, and does it outside Python's lock."""

    def each(self, work: Work[ItemT], items: Sequence[ItemT]) -> list[bytes]:
        """What the work answers for each item, in the order of the items."""
        with ThreadPoolExecutor(max(1, min(len(items), os.cpu_count() or 1))) as threads:
            return [said for answer in threads.map(lambda item: list(work(item)), items) for said in answer]


class SparkEngine:
    """The executors of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def each(self, work: Work[ItemT], items: Sequence[ItemT]) -> list[bytes]:
        """What the work answers for each item, in the order of the items."""
        if not items:
            return []
        with in_a_sentence():
            parallel = self._spark.sparkContext.defaultParallelism
            numbers = self._spark.range(0, len(items), 1, min(len(items), _TASKS_PER_CORE * parallel))
            found = numbers.mapInArrow(_on_executor(work, items), "number BIGINT, said BINARY").toArrow()
        order = sorted(range(found.num_rows), key=found["number"].to_pylist().__getitem__)
        said = found["said"].to_pylist()
        return [said[position] for position in order]


def _on_executor(
    work: Work[ItemT], items: Sequence[ItemT]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a Spark task does with the numbers of the items that it got."""

    def do(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for said in work(items[number]):
                    yield pa.RecordBatch.from_pydict(
                        {"number": pa.array([number], pa.int64()), "said": pa.array([said], pa.binary())}
                    )

    return do
