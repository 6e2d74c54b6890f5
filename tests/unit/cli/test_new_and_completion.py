"""A project to begin with, and completion in shells."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqworker.cli.main import mqworker
from mqworker.cli.new import checked_name
from mqworker.errors import InvalidArgument


def test_a_new_project_has_an_app_a_test_a_procfile_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(mqworker, ["new", "shop"])

    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "shop").iterdir()}
    assert names == {"shop.py", "test_shop.py", "pyproject.toml", "Procfile", ".gitignore"}
    assert "mqworker run shop:app" in result.output
    assert "$" not in (tmp_path / "shop" / "shop.py").read_text()


def test_what_is_there_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()

    result = CliRunner().invoke(mqworker, ["new", "shop"])

    assert result.exit_code == 2
    assert "shop is there already" in result.output


@pytest.mark.parametrize(
    "name", ["Shop", "my-shop", "class", "json", "mqworker", "../shop", "", "7up", "läden"]
)
def test_a_name_that_cannot_be_imported_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="accepted is the name of a Python module"):
        checked_name(name)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str) -> None:
    result = CliRunner().invoke(mqworker, ["completion", shell])

    assert result.exit_code == 0, result.output
    assert f"_MQWORKER_COMPLETE={shell}_complete" in result.output


def test_it_is_installed_where_the_shell_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    result = CliRunner().invoke(mqworker, ["completion", "fish", "--install"])

    assert result.exit_code == 0, result.output
    assert "mqworker" in (tmp_path / ".config/fish/completions/mqworker.fish").read_text()


def is_missing(shell: str) -> bool:
    """Whether this machine lacks the shell, or the command that it would complete."""
    return shutil.which(shell) is None or not (Path(sys.executable).parent / "mqworker").exists()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory in which nothing is installed yet; `mqworker` is on the path."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def installed(shell: str) -> None:
    """What a user types once."""
    result = CliRunner().invoke(mqworker, ["completion", shell, "--install"])
    assert result.exit_code == 0, result.output


@pytest.mark.skipif(is_missing("bash"), reason="bash is not installed")
def test_bash_completes_what_is_typed(home: Path) -> None:
    installed("bash")
    script = home / ".local/share/bash-completion/completions/mqworker"
    typed = "COMP_WORDS=(mqworker queue p); COMP_CWORD=2; _mqworker_completion mqworker; echo ${COMPREPLY[@]}"

    done = subprocess.run(
        ["bash", "-c", f"source {script}; {typed}"], capture_output=True, text=True, check=False
    )

    assert done.stdout.split() == ["pause", "purge"], done.stderr


@pytest.mark.usefixtures("home")
@pytest.mark.skipif(is_missing("fish"), reason="fish is not installed")
def test_fish_completes_what_is_typed() -> None:
    installed("fish")

    done = subprocess.run(
        ["fish", "-c", "complete -C 'mqworker queue p'"], capture_output=True, text=True, check=False
    )

    assert [line.split()[0] for line in done.stdout.splitlines()] == ["pause", "purge"], done.stderr


@pytest.mark.skipif(is_missing("zsh"), reason="zsh is not installed")
def test_zsh_completes_what_is_typed(home: Path) -> None:
    installed("zsh")
    hint = CliRunner().invoke(mqworker, ["completion", "zsh", "--install"]).output.partition(" has: ")[2]
    (home / ".zshrc").write_text(f"{hint.strip()} -u\nPS1='> '\n", encoding="utf-8")

    shown = typed_into(["zsh", "-i"], b"mqworker queue resu\t", b"resume", home)

    assert b"mqworker queue resume" in shown


def typed_into(command: list[str], keys: bytes, wanted: bytes, home: Path) -> bytes:
    """What a terminal shows after these keys, once the wanted text is there or a deadline has passed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(home)
        os.execvp(command[0], command)  # noqa: S606 - a shell, on purpose
    shown, is_typed, ends_at = b"", False, time.monotonic() + 60
    try:
        while wanted not in shown and time.monotonic() < ends_at:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 4096)
            if not is_typed and b"> " in shown:
                os.write(terminal, keys)
                is_typed = True
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    return shown


def test_commands_below_groups_are_completed() -> None:
    environment = {"_MQWORKER_COMPLETE": "bash_complete", "COMP_WORDS": "mqworker queue p", "COMP_CWORD": "2"}

    result = CliRunner(env=environment).invoke(mqworker, [], prog_name="mqworker")

    assert result.output.split() == ["plain,pause", "plain,purge"]
