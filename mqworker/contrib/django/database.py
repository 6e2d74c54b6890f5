"""Connections to databases around a task: Django looks after them around requests only."""

from __future__ import annotations

from django.db import close_old_connections, connections


def close_stale_connections() -> None:
    """Close those of this thread that are too old, or that were cut while nobody used them.

    Django itself looks at an idle connection only with CONN_HEALTH_CHECKS. A request that fails is repeated
    by a person; nobody repeats a task that failed because a database was restarted an hour ago.
    """
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        is_idle = connection.connection is not None and not connection.in_atomic_block
        if is_idle and not connection.is_usable():
            connection.close()
