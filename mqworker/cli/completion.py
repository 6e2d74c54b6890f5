"""`mqworker completion`: lets a shell complete commands and options; prints the script, or installs it."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_MQWORKER_COMPLETE"
"""By which click is asked to complete instead of to run."""

# Where each shell looks by itself, below the home directory.
_PLACE_BY_SHELL = {
    "bash": ".local/share/bash-completion/completions/mqworker",
    "zsh": ".zfunc/_mqworker",
    "fish": ".config/fish/completions/mqworker.fish",
}
_HINT_BY_SHELL = {
    "bash": "new shells have it, where the package bash-completion is installed",
    "zsh": "new shells have it, if ~/.zshrc has: fpath+=~/.zfunc; autoload -Uz compinit && compinit",
    "fish": "new shells have it",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(sorted(_PLACE_BY_SHELL)))
@click.option("--install", "is_install", is_flag=True, help="Write it where the shell looks for it.")
def completion_command(shell: str, is_install: bool) -> None:  # noqa: FBT001 - click
    """Let your shell complete commands and options.

    Prints the script for it, or puts it where the shell looks.
    """
    script = script_for(shell)
    if not is_install:
        click.echo(script)
        return
    path = Path.home() / _PLACE_BY_SHELL[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script + "\n", encoding="utf-8")
    click.echo(f"written to {path}; {_HINT_BY_SHELL[shell]}")


def script_for(shell: str) -> str:
    """The script of click for this shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows the three
    root = click.get_current_context().find_root().command
    completion = kind(root, {}, "mqworker", _VARIABLE)
    # Not `source()`: that starts a bash to look at its version, which this machine need not have.
    return completion.source_template % completion.source_vars()
