"""Settings of the project that tests run; where its database and its Redis are, says the environment."""

import importlib.util
import os
from pathlib import Path

_HAS_OWN_TASKS = importlib.util.find_spec("django.tasks") is not None
_BACKEND = "mqworker.contrib.django.backend.TaskBackend"

SECRET_KEY = "of a test"  # noqa: S105
DEBUG = False
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "djurls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "mqworker.contrib.django",
    "djshop",
    *([] if _HAS_OWN_TASKS else ["django_tasks"]),
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
if "DJ_POSTGRES" in os.environ:
    _host, _port, _name = os.environ["DJ_POSTGRES"].split(",")
    _ENGINE = {"ENGINE": "django.db.backends.postgresql", "HOST": _host, "PORT": _port, "USER": "postgres"}
    DATABASES = {"default": {**_ENGINE, "NAME": _name, "CONN_MAX_AGE": None}}
else:
    _FILE = Path(os.environ.get("DJ_DATABASE", "db.sqlite3"))
    DATABASES = {
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": _FILE, "OPTIONS": {"timeout": 30}}
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TASKS = {
    "default": {"BACKEND": _BACKEND, "QUEUES": ["default", "mail"]},
    "tried": {"BACKEND": _BACKEND, "QUEUES": [], "OPTIONS": {"retry": 2}},
    "at_once": {"BACKEND": _BACKEND, "ENQUEUE_ON_COMMIT": False},
}
MQWORKER = {
    "REDIS_URL": os.environ.get("DJ_REDIS_URL"),
    "WORKERS": 2,
    "CONSOLE_URL": "https://ops.example.org/mqworker/",
}
