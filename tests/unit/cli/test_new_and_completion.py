"""A project to begin with, and completion in shells."""

from __future__ import annotations

import shutil
import subprocess
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


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_reads_the_script(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(CliRunner().invoke(mqworker, ["completion", "bash"]).output)

    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr


def test_commands_below_groups_are_completed() -> None:
    environment = {"_MQWORKER_COMPLETE": "bash_complete", "COMP_WORDS": "mqworker queue p", "COMP_CWORD": "2"}

    result = CliRunner(env=environment).invoke(mqworker, [], prog_name="mqworker")

    assert result.output.split() == ["plain,pause", "plain,purge"]
