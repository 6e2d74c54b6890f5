"""What the project's settings.py says of mqworker, and the one `App` that is made of it.

`MQWORKER = {"REDIS_URL": ..., "WORKERS": 4}` are the settings of mqworker by their names; variables of the
environment win over them. Beside those it has CONSOLE_URL and TASK_MODULES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from mqworker.errors import ConfigurationError
from mqworker.model.names import shown
from mqworker.redaction import masked_url
from mqworker.settings import Settings, environment_over, load_settings
from mqworker.tasks.app import App

APP_NAME = "mqworker.contrib.django.worker:app"
OWN_NAMES = {"CONSOLE_URL", "TASK_MODULES"}
"""What the integration itself reads; all others are settings of mqworker."""


class DjangoApp(App):
    """An app whose settings stand in settings.py; a worker's node must have read the same."""

    @cached_property
    def settings(self) -> Settings:
        """As settings.py has them, unless it has adopted those of a node; read when first needed."""
        if self._given_settings is None:
            self._given_settings = project_settings()
        return super().settings

    def adopt(self, settings: Settings) -> None:
        """Go by the node's settings, unless they lead to another place than where calls are stored."""
        own, node = project_settings(), settings
        if own.redis_url is not None and (own.redis_url, own.namespace) != (node.redis_url, node.namespace):
            raise ConfigurationError(
                f"settings.py stores tasks in {masked_url(own.redis_url)}, namespace {own.namespace}, and "
                f"the node works on {masked_url(node.redis_url or '')}, namespace {node.namespace}; accepted "
                "is one place: start it by `manage.py mqworker run`, or set MQWORKER_REDIS_URL"
            )
        self._given_settings = None
        super().adopt(settings)


@cache
def project_app() -> DjangoApp:
    """The app of this process: of all its task backends, and of tasks that are defined by `@app.task`."""
    return DjangoApp("django")


def project_settings() -> Settings:
    """All settings, checked; raises `ConfigurationError`."""
    return load_settings(environ=project_environment())


def project_environment() -> dict[str, str]:
    """The environment with what settings.py says where it says nothing itself; for programs started here."""
    given = {name: value for name, value in _given().items() if name not in OWN_NAMES}
    return environment_over(given)


def console_url() -> str | None:
    """Where `mqworker web` serves the console, if settings.py says so."""
    url = _given().get("CONSOLE_URL")
    return None if url is None else str(url)


def discover_tasks() -> None:
    """Import `tasks.py` of every application, or the modules of the names in TASK_MODULES."""
    names = _given().get("TASK_MODULES", ("tasks",))
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ConfigurationError(
            f'MQWORKER["TASK_MODULES"] is {shown(names)}; accepted is a list of names of modules'
        )
    autodiscover_modules(*names)


def _given() -> Mapping[str, Any]:  # Any: whatever stands in settings.py
    given = getattr(settings, "MQWORKER", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"MQWORKER is {shown(given)}; accepted is a dict of settings")
    return {str(name).upper(): value for name, value in given.items()}
