"""`manage.py mqworker run`, `status` and all other commands, with the settings of settings.py."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mqworker.contrib.django.project import APP_NAME, project_environment, project_settings
from mqworker.errors import ConfigurationError

_OF_THE_APP = "run"


class Command(BaseCommand):
    """Becomes the `mqworker` command; `run` needs no name of an app here."""

    help = "Run tasks (run), or any other command of mqworker (status, dead, job, web, ...)."
    requires_system_checks: list[str] = []  # noqa: RUF012 - as Django declares it

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Everything behind the name of the command is mqworker's."""
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="such as: run --workers 4")

    # Any: the words of the command line, and what Django adds.
    def handle(self, *_args: object, **options: Any) -> None:  # noqa: ANN401
        """In the place of this process, so that signals reach the node; from `call_command`, beside it."""
        command = [sys.executable, "-m", "mqworker", *with_app(options["arguments"])]
        try:
            project_settings()
            environment = project_environment()
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        # The project is where manage.py is, wherever it is called from.
        places = [sys.path[0], environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(place for place in places if place)
        if self._called_from_command_line:
            sys.stdout.flush()
            os.execve(sys.executable, command, environment)  # noqa: S606 - no shell is wanted
        ended = subprocess.run(command, env=environment, check=False)  # noqa: S603 - our own command
        if ended.returncode:
            raise CommandError(f"mqworker ended with {ended.returncode}", returncode=ended.returncode)


def with_app(arguments: list[str]) -> list[str]:
    """The arguments, with the project's app for `run`; `--help` where nothing is asked."""
    if not arguments:
        return ["--help"]
    return [_OF_THE_APP, APP_NAME, *arguments[1:]] if arguments[0] == _OF_THE_APP else list(arguments)
