"""For Flask: a health route, a link to the console, and the end of the producer with its process.

web = Flask(__name__)
init_app(web, tasks, console_url="https://ops.example.org/mqworker/")
"""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any

from mqworker.contrib.health import problem_with_redis
from mqworker.tasks.app import App

if TYPE_CHECKING:
    from flask import Flask


def init_app(
    web: Flask, tasks: App, *, health: str | None = "/health", console_url: str | None = None
) -> None:
    """Add the routes to a Flask application; `tasks` is reached as `current_app.extensions["mqworker"]`.

    The health route answers 200 while Redis answers, and 503 with the reason while it does not. The console
    needs an asynchronous server, so that `mqworker web` serves it; `/mqworker` leads to its `console_url`.
    """
    web.extensions["mqworker"] = tasks
    if health is not None:
        web.add_url_rule(health, "mqworker_health", lambda: _health(tasks))
    if console_url is not None:
        web.add_url_rule("/mqworker", "mqworker_console", lambda: _redirect(console_url))
    # Connections open when first needed, in each process of the server, and end with it.
    atexit.register(tasks.close)


# Any: whatever Flask takes for an answer.
def _health(tasks: App) -> Any:  # noqa: ANN401 - see above
    problem = problem_with_redis(tasks)
    return ({"redis": "ok"}, 200) if problem is None else ({"redis": "away", "problem": problem}, 503)


def _redirect(url: str) -> Any:  # noqa: ANN401 - see above
    from flask import redirect  # noqa: PLC0415 - an extra

    return redirect(url)
