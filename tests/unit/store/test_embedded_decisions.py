"""The decisions of the embedded server that need no server: which program, what a reply or a log means."""

import platform
from pathlib import Path

import pytest

from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.store.embedded.find import find_binary
from mqworker.store.embedded.launch import explain_failure
from mqworker.store.embedded.probe import Mood, classify
from mqworker.store.embedded.state import ServerPlace


@pytest.mark.parametrize(
    ("log", "kind", "text"),
    [
        (
            "1:M 01 Jan 2026 00:00:00.000 # Can't open it: No space left on device",
            StoreUnavailable,
            "is full",
        ),
        (
            "1:M 01 Jan 2026 00:00:00.000 # Can't open it: Permission denied",
            ConfigurationError,
            "may not write",
        ),
        (
            "*** FATAL CONFIG FILE ERROR ***\nBad directive",
            StoreUnavailable,
            "the server said: .*Bad directive$",
        ),
        ("", StoreUnavailable, "wrote nothing"),
    ],
)
def test_the_servers_last_words_become_one_sentence(log: str, kind: type[MqworkerError], text: str) -> None:
    with pytest.raises(kind, match=text):
        raise explain_failure(ServerPlace(Path(".mqworker")), log)


@pytest.mark.parametrize(
    ("reply", "mood"),
    [
        (b"+PONG\r\n", Mood.READY),
        (b"-LOADING Valkey is loading the dataset in memory\r\n", Mood.LOADING),
        (b"-MISCONF Errors writing to the AOF file: No space left on device\r\n", Mood.REFUSING),
        (b"HTTP/1.1 400 Bad Request\r\n", Mood.FOREIGN),
        (b"", Mood.ABSENT),
    ],
)
def test_a_reply_to_ping_tells_how_the_server_is(reply: bytes, mood: Mood) -> None:
    assert classify(reply).mood is mood


def test_a_machine_without_any_server_program_gets_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ConfigurationError, match="no server program for the embedded server"):
        find_binary()


@pytest.mark.parametrize(("version", "is_accepted"), [("6.2.14", False), ("7.0.15", True), ("10.1.0", True)])
def test_without_the_wheel_a_recent_server_on_the_path_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, is_accepted: bool
) -> None:
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0:0 malloc=libc bits=64'\n")
    program.chmod(0o755)
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    monkeypatch.setenv("PATH", str(tmp_path))

    if is_accepted:
        assert find_binary() == str(program)
    else:
        with pytest.raises(ConfigurationError):
            find_binary()
