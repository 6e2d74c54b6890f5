"""What systemd is told."""

import socket
from pathlib import Path

from mqworker.settings import systemd_notify_socket
from mqworker.supervisor.systemd import SystemdNotifier


def test_ready_is_said_once_and_alive_only_while_everybody_is(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.settimeout(0)
        notifier = SystemdNotifier(str(tmp_path / "n"))

        for is_complete in (False, True, False, True):
            notifier.note(is_complete=is_complete)
        notifier.note_stopping()

        assert _all_of(listener) == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_without_a_socket_or_a_listener_nothing_happens(tmp_path: Path) -> None:
    for address in (None, "", "@mqworker-nobody-listens", str(tmp_path / "missing")):
        notifier = SystemdNotifier(address)

        notifier.note(is_complete=True)
        notifier.note_stopping()

    assert list(tmp_path.iterdir()) == []


def test_the_socket_comes_from_the_environment() -> None:
    assert systemd_notify_socket({}) is None
    assert systemd_notify_socket({"NOTIFY_SOCKET": ""}) is None
    assert systemd_notify_socket({"NOTIFY_SOCKET": "/run/n"}) == "/run/n"


def _all_of(listener: socket.socket) -> list[bytes]:
    heard: list[bytes] = []
    while True:
        try:
            heard.append(listener.recv(100))
        except BlockingIOError:
            return heard
