"""Whether a producer could enqueue now: for the health routes of web frameworks."""

from __future__ import annotations

from mqworker.errors import MqworkerError
from mqworker.tasks.app import App


def problem_with_redis(tasks: App) -> str | None:
    """What is wrong with the server, asked once; None when it answers."""
    try:
        tasks.connections.store.connection.execute([("PING",)], None)
    except MqworkerError as error:
        return str(error)
    return None
