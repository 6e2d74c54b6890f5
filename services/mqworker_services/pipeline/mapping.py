"""A registered task over a DataFrame: `task.map_on_spark(frame)`.

Spark runs the function, not mqworker: there is no message, hence no ack, retry, rate limit or deadline, and a
call that raises ends the query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import pyarrow as pa

from mqworker.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Any: a task takes and returns what its author says.
AnyFunction = Callable[..., Any]

TYPES: Final = {
    bool: ("BOOLEAN", pa.bool_()),
    int: ("BIGINT", pa.int64()),
    float: ("DOUBLE", pa.float64()),
    str: ("STRING", pa.string()),
    bytes: ("BINARY", pa.binary()),
}
"""What a return annotation becomes; anything else, or none, becomes a text of JSON."""


def map_on_spark(function: AnyFunction, frame: DataFrame, column: str) -> DataFrame:
    """The frame with one more column: what the function returns for each row, its columns the arguments."""
    if column in frame.columns:
        raise InvalidArgument(f"column is {column!r}, which the frame has already; accepted is a new name")
    returned = get_type_hints(function).get("return")
    sql_type, arrow_type = TYPES.get(returned, ("STRING", pa.string())) if returned else TYPES[str]
    is_json = returned not in TYPES
    find, names = finder(function), tuple(frame.columns)

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = find()
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in names]
            results = [run(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
            values = [json.dumps(result) for result in results] if is_json else results
            arrays = [*batch.columns, pa.array(values, arrow_type)]
            yield pa.RecordBatch.from_arrays(arrays, names=[*names, column])

    schema = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema.fields)
    return frame.mapInArrow(apply, f"{schema}, `{column}` {sql_type}")


def finder(function: AnyFunction) -> Callable[[], AnyFunction]:
    """How an executor gets at the function: by its name where it can import it, else it travels along."""
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or "." in name:
        return lambda: function

    def find() -> AnyFunction:
        found: AnyFunction = getattr(import_module(module), name)
        return found

    return find
