"""An application with a task in each of many queues, for the drills of test_many_queues.py."""

from __future__ import annotations

import os

from mqworker import App
from mqworker.settings import Settings
from tests.drills.drill_app import AnyTask, hold

QUEUES_VARIABLE = "DRILL_QUEUES"
PREFIX = "wide-"


def build_wide_app(count: int, settings: Settings | None = None) -> tuple[App, list[AnyTask]]:
    """The app, and its tasks by the number of their queue."""
    app = App("wide", settings=settings)
    tasks = [
        app.task(queue=f"{PREFIX}{number}", name=f"hold_{number}", result_ttl=0)(hold)
        for number in range(count)
    ]
    return app, tasks


app, _ = build_wide_app(int(os.environ.get(QUEUES_VARIABLE, "135")))
