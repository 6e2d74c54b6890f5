"""For Django: a backend for its tasks, a management command, and a link to the console in the admin.

INSTALLED_APPS = [..., "mqworker.contrib.django"]
TASKS = {"default": {"BACKEND": "mqworker.contrib.django.backend.TaskBackend"}}
MQWORKER = {"REDIS_URL": "redis://localhost:6379"}

`python manage.py mqworker run` runs a node; so does `mqworker run mqworker.contrib.django.worker:app`.
"""
