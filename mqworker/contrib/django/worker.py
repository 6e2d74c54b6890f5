"""What `mqworker run mqworker.contrib.django.worker:app` imports in its workers: the whole project."""

from __future__ import annotations

import django
from django.apps import apps

from mqworker.contrib.django.project import discover_tasks, project_app
from mqworker.contrib.django.tasks_api import task_backends
from mqworker.errors import ConfigurationError

if not apps.ready:
    django.setup()

app = project_app()
"""The app, for tasks of your own by `@app.task` as well."""

discover_tasks()
for backend in task_backends.all():
    problems = [problem for problem in backend.check() if problem.is_serious()]
    if problems:
        raise ConfigurationError("; ".join(problem.msg for problem in problems))
    for name in backend.queues:  # those of `using(queue_name=...)` as well
        app.queue(name)
