"""`mqworker web` and `mqworker audit` as they are typed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from mqworker.cli import web
from mqworker.operate.actions import Request, act
from mqworker.operate.system import opened
from mqworker.settings import Settings
from tests.support.command_line import CommandLine
from tests.support.messages import a_message
from tests.support.real_server import RealServer


def test_an_address_that_others_reach_is_refused_without_tokens(line: CommandLine) -> None:
    result = line.type("web", "--listen", "0.0.0.0:0")

    assert result.exit_code == 78
    assert "web_tokens" in result.output


def test_tokens_that_cannot_be_read_are_told_of(line: CommandLine, tmp_path: Path) -> None:
    result = line.type("web", "--web-tokens", str(tmp_path / "missing"))

    assert result.exit_code == 78
    assert "cannot be read" in result.output


def test_without_the_extra_it_says_what_to_install(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "find_spec", lambda name: None if name == "uvicorn" else find_spec(name))

    result = line.type("web")

    assert result.exit_code == 78
    assert "the console needs uvicorn: pip install 'mqworker[web]'" in result.output


def test_the_audit_shows_who_did_what(line: CommandLine, server: RealServer) -> None:
    assert "nothing was done yet" in line.type("audit").output
    with opened(Settings(redis_url=server.url), client_name="mqw-test", retry_for_ms=0) as system:
        system.open_queue("mail").enqueue(a_message())
        act(system, Request("pause", "mail"), "ann")

    shown, as_json = line.type("audit").output, line.type("audit", "--json").output

    assert "ann" in shown
    assert "queue mail is paused" in shown
    assert '"command": "mqworker queue pause mail"' in as_json
