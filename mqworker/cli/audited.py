"""The audit of commands: what one changes is written down, by whom and how it ended, as the console does."""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import click

from mqworker.cli.text import safe
from mqworker.errors import MqworkerError
from mqworker.operate.audit import Deed, note
from mqworker.operate.system import System


class Doing:
    """What a command is about to do, to be told once it is done."""

    def __init__(self) -> None:
        self.count = 0
        self.outcome = ""

    def tell(self, outcome: str, count: int = 1, *, to_stderr: bool = False) -> None:
        """Say to whoever typed the command, and to the audit, what was done and to how many."""
        self.count, self.outcome = count, outcome
        click.echo(outcome, err=to_stderr)


@contextmanager
def audited(system: System, command: str, *words: str, queue: str = "", what: str = "") -> Iterator[Doing]:
    """Do inside what `mqworker <command> <words>` does; it is written down, whether it works or not.

    The action is called what the command is, without spaces.
    """
    doing = Doing()
    line = shlex.join(["mqworker", *command.split(), *words])

    def write(count: int, outcome: str) -> None:
        deed = Deed(who(), command.replace(" ", "-"), queue, what, count, outcome, line)
        try:
            note(system, deed)
        except MqworkerError as error:  # a full server, no permission: what was done is done all the same
            click.echo(f"this could not be written to the audit: {safe(str(error))}", err=True)

    try:
        yield doing
    except MqworkerError as error:
        write(0, f"failed: {error}")
        raise
    write(doing.count, doing.outcome)


def who() -> str:
    """The user who typed the command."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError):
        return "command line"
