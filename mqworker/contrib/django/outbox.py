"""The tables of the outbox, for a migration of the project.

operations = [migrations.RunPython(create_table, drop_table)]

A call joins the transaction of a connection: `task.using(session=connections["default"]).enqueue(...)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mqworker.errors import NotSupported
from mqworker.tasks.outbox.tables import ROWS, STATE, statements

_DIALECT_BY_VENDOR = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mysql"}


# Any: Django has no types.
def create_table(_apps: Any, schema_editor: Any) -> None:  # noqa: ANN401
    """Make the tables of the outbox."""
    vendor = schema_editor.connection.vendor
    if vendor not in _DIALECT_BY_VENDOR:
        known = ", ".join(_DIALECT_BY_VENDOR)
        raise NotSupported(f"the database is {vendor}; accepted for an outbox are {known}")
    dialect = import_module(f"sqlalchemy.dialects.{_DIALECT_BY_VENDOR[vendor]}").dialect()
    for statement in statements(dialect):
        schema_editor.execute(statement)


def drop_table(_apps: Any, schema_editor: Any) -> None:  # noqa: ANN401
    """Drop them; calls that wait there are lost."""
    for table in (ROWS, STATE):
        schema_editor.execute(f"DROP TABLE {table.name}")
