"""`mqworker redis` as a Procfile runs it: a process that gets signals."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from mqworker.errors import MqworkerError
from mqworker.store.embedded.probe import Mood, ping
from mqworker.store.embedded.share import ensure_server, find_server, stop_server
from mqworker.store.embedded.state import ServerPlace
from tests.support.deadline import wait_until

STOP_DEADLINE_S = 5.0
DEADLINE_S = 20.0


@pytest.fixture
def project() -> Iterator[Path]:
    """The directory in which the command is typed."""
    directory = Path(tempfile.mkdtemp(prefix="mqw-")).resolve()
    yield directory
    with suppress(MqworkerError):
        stop_server(directory / ".mqworker")
    shutil.rmtree(directory)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_time_with_the_data_on_disk(
    project: Path, number: signal.Signals
) -> None:
    command = _mqworker_redis(project)
    line = _line_of(command)
    with _client(project) as client:
        client.set("kept", "yes")

    command.send_signal(number)
    output, errors = command.communicate(timeout=STOP_DEADLINE_S)

    assert (command.returncode, errors) == (0, "")
    assert f"unix://{project}/.mqworker/server/sock" in line
    assert f"redis-cli -s {project}/.mqworker/server/sock" in line
    assert "its data is on disk" in output
    assert find_server(project / ".mqworker") is None
    assert b"kept" in _data(project)


def test_a_signal_to_the_whole_group_is_as_good(project: Path) -> None:
    command = _mqworker_redis(project)
    _line_of(command)

    os.killpg(command.pid, signal.SIGINT)
    os.killpg(command.pid, signal.SIGTERM)
    command.communicate(timeout=STOP_DEADLINE_S)

    assert command.returncode == 0
    assert find_server(project / ".mqworker") is None


def test_a_signal_while_the_data_is_still_loading_ends_it_too(project: Path) -> None:
    command = _mqworker_redis(project)
    _line_of(command)
    command.terminate()
    command.communicate(timeout=STOP_DEADLINE_S)
    with _data_file(project).open("ab") as data:
        data.write(_minutes_of_loading())

    command = _mqworker_redis(project)
    socket_path = ServerPlace(project / ".mqworker").socket_path
    wait_until(lambda: ping(socket_path).mood is Mood.LOADING, "the server says that it is loading")
    command.terminate()
    command.communicate(timeout=STOP_DEADLINE_S)

    assert command.returncode == 0
    assert find_server(project / ".mqworker") is None


def test_a_killed_server_ends_the_command_with_its_status(project: Path) -> None:
    command = _mqworker_redis(project)
    _line_of(command)

    with _client(project) as client:
        os.kill(int(client.info("server")["process_id"]), signal.SIGKILL)
    _, errors = command.communicate(timeout=STOP_DEADLINE_S)

    assert command.returncode == 128 + signal.SIGKILL
    assert "ended (by signal 9), see" in errors


def test_a_second_command_shares_the_server_and_keeps_it_up(project: Path) -> None:
    first = _mqworker_redis(project)
    _line_of(first)
    second = _mqworker_redis(project)
    assert "shares the server" in _line_of(second)

    first.terminate()
    output, _ = first.communicate(timeout=STOP_DEADLINE_S)
    assert first.returncode == 0
    assert "runs on" in output
    with _client(project) as client:
        assert client.ping()

    second.terminate()
    second.communicate(timeout=STOP_DEADLINE_S)
    assert second.returncode == 0
    assert find_server(project / ".mqworker") is None


def test_stop_ends_a_server_in_the_background(project: Path) -> None:
    ensure_server(project / ".mqworker")

    output, _ = _mqworker_redis(project, "--stop").communicate(timeout=DEADLINE_S)
    output_of_second, _ = _mqworker_redis(project, "--stop").communicate(timeout=DEADLINE_S)

    assert output == "the embedded server of .mqworker has ended\n"
    assert output_of_second == "no embedded server is running for .mqworker\n"
    assert find_server(project / ".mqworker") is None


def test_a_data_directory_that_cannot_be_is_one_sentence_and_a_code(project: Path) -> None:
    (project / "file").touch()

    command = _mqworker_redis(project, "--data-dir", "file")
    output, errors = command.communicate(timeout=DEADLINE_S)

    assert (command.returncode, output) == (78, "")
    assert errors.startswith("mqworker: data_dir: ")
    assert errors.count("\n") == 1


def _mqworker_redis(project: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")}
    return subprocess.Popen(
        [sys.executable, "-m", "mqworker", "redis", *arguments],
        cwd=project,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _line_of(command: subprocess.Popen[str]) -> str:
    assert command.stdout is not None
    return command.stdout.readline()


def _client(project: Path) -> redis.Redis:
    url = find_server(project / ".mqworker")
    assert url is not None
    return redis.Redis.from_url(url, socket_timeout=DEADLINE_S)


def _data(project: Path) -> bytes:
    return _data_file(project).read_bytes()


def _data_file(project: Path) -> Path:
    (file,) = (project / ".mqworker" / "server" / "appendonlydir").glob("*.incr.aof")
    return file


def _minutes_of_loading() -> bytes:
    """Blocks of 50 ms each; the server looks at its sockets once in 1024 commands."""
    key = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n"
    nap = b"*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$4\r\n0.05\r\n"
    return (key * 1023 + nap) * 1200
