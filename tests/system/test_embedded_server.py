"""The embedded server on the real thing: started, shared, killed, damaged, and brought back."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.settings import Settings
from mqworker.store.embedded.probe import Mood, ping
from mqworker.store.embedded.share import EmbeddedServer, ensure_server, find_server, stop_server
from mqworker.store.embedded.state import LONGEST_SOCKET_PATH_BYTES, ServerPlace
from mqworker.tasks.app import App
from tests.support.deadline import wait_until

DEADLINE_S = 20.0
STARTERS = 8

# Starts on a line of input, tells what it got, and stops at the end of input.
USER_PROGRAM = """
import sys
from pathlib import Path
from mqworker.store.embedded.share import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
sys.stdin.readline()
url = server.start()
print(server.is_starter, url, flush=True)
sys.stdin.read()
server.stop()
"""
COMING_AND_GOING_PROGRAM = """
import sys
from pathlib import Path
import redis
from mqworker.store.embedded.share import EmbeddedServer
for turn in range(5):
    server = EmbeddedServer(Path(sys.argv[1]))
    with redis.Redis.from_url(server.start()) as client:
        client.incr("turns")
    server.stop()
"""
PRODUCER_PROGRAM = """
import sys
from pathlib import Path
from mqworker.store.embedded.share import ensure_server
print(ensure_server(Path(sys.argv[1])))
"""
FOREIGN_PROGRAM = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listening", flush=True)
for _ in range(2):
    connection, _ = listener.accept()
    connection.recv(100)
    connection.sendall(b"who are you?")
    connection.close()
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    # Not tmp_path: its length would decide whether the socket fits.
    parent = Path(tempfile.mkdtemp(prefix="mqw-"))
    yield parent / ".mqworker"
    with suppress(MqworkerError):
        stop_server(parent / ".mqworker")
    shutil.rmtree(parent)


def test_start_gives_a_durable_server_that_only_this_user_reaches(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)

    with _client(server.start()) as client:
        settings = client.config_get(
            "appendonly", "appendfsync", "maxmemory-policy", "port", "aof-load-truncated"
        )

    assert settings == {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "port": "0",
        "aof-load-truncated": "yes",
    }
    assert _mode(data_dir) == _mode(data_dir / "server") == _mode(server.socket_path) == 0o700
    assert server.stop()


def test_a_directory_without_a_server_has_none_and_is_left_untouched(data_dir: Path) -> None:
    assert find_server(data_dir) is None
    assert not stop_server(data_dir)
    assert not data_dir.exists()


def test_a_running_server_is_found_quickly(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    url = server.start()

    durations_s = []
    for _ in range(20):
        before = time.perf_counter()
        assert find_server(data_dir) == url
        durations_s.append(time.perf_counter() - before)

    assert min(durations_s) < 0.005
    server.stop()
    assert find_server(data_dir) is None


def test_a_second_start_shares_the_server_and_the_last_stop_ends_it(data_dir: Path) -> None:
    first, second = EmbeddedServer(data_dir), EmbeddedServer(data_dir)

    assert first.start() == second.start()
    assert (first.is_starter, second.is_starter) == (True, False)

    assert not first.stop()
    assert find_server(data_dir) is not None
    assert second.stop()
    assert find_server(data_dir) is None
    assert first.wait() == 0


def test_simultaneous_starts_give_one_server(data_dir: Path) -> None:
    users = [_python(USER_PROGRAM, data_dir) for _ in range(STARTERS)]

    for user in users:
        _say(user, "go\n")
    answers = [_hear(user).split() for user in users]

    assert sorted(is_starter for is_starter, _ in answers) == ["False"] * (STARTERS - 1) + ["True"]
    assert len({url for _, url in answers}) == 1
    assert _servers_started(data_dir) == 1
    assert [_finish(user) for user in users] == [0] * STARTERS
    assert find_server(data_dir) is None


def test_those_who_come_while_the_last_one_stops_get_a_server_too(data_dir: Path) -> None:
    users = [_python(COMING_AND_GOING_PROGRAM, data_dir) for _ in range(3)]

    assert [_finish(user) for user in users] == [0] * 3
    with _client(ensure_server(data_dir)) as client:
        assert client.get("turns") == b"15"


def test_a_restart_keeps_the_data(data_dir: Path) -> None:
    first = EmbeddedServer(data_dir)
    with _client(first.start()) as client:
        client.set("kept", "yes")
    assert first.stop()

    second = EmbeddedServer(data_dir)
    with _client(second.start()) as client:
        assert client.get("kept") == b"yes"
    second.stop()


def test_a_killed_server_comes_back_with_what_was_on_disk(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    with _client(server.start()) as client:
        client.set("kept", "yes")
        client.waitaof(1, 0, 0)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert server.wait() == -signal.SIGKILL
    assert server.socket_path.exists(), "the kill left no stale socket, so the test proves nothing"

    with _client(server.start()) as client:
        assert client.get("kept") == b"yes"
    assert server.is_starter
    assert server.stop()


def test_a_killed_starter_leaves_a_server_that_the_next_start_shares(data_dir: Path) -> None:
    user = _python(USER_PROGRAM, data_dir)
    _say(user, "go\n")
    url = _hear(user).split()[1]
    with _client(url) as client:
        client.set("kept", "yes")

    user.kill()
    _finish(user)
    server = EmbeddedServer(data_dir)

    with _client(server.start()) as client:
        assert client.get("kept") == b"yes"
    assert not server.is_starter
    assert server.stop(), "the last user ends the server, whoever started it"


def test_files_left_behind_by_the_dead_block_nothing(data_dir: Path) -> None:
    place = ServerPlace(data_dir.resolve())
    place.prepare()
    for name in ("server.lock", "users.lock", "server.pid"):
        (place.directory / name).write_text("4194304")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place.socket_path))

    server = EmbeddedServer(data_dir)
    with _client(server.start()) as client:
        assert client.ping()
    assert server.stop()


def test_a_producer_starts_a_server_that_stays(data_dir: Path) -> None:
    producer = _python(PRODUCER_PROGRAM, data_dir)
    url = _hear(producer)
    assert _finish(producer) == 0

    assert find_server(data_dir) == ensure_server(data_dir) == url
    server = EmbeddedServer(data_dir)
    assert server.start() == url
    assert not server.is_starter
    assert not server.stop(), "a server in the background is not ended by who shares it"
    assert stop_server(data_dir)
    assert find_server(data_dir) is None


def test_the_server_is_out_of_reach_of_the_starters_terminal(data_dir: Path) -> None:
    child = EmbeddedServer(data_dir)

    sessions = {os.getsid(_pid(child.start()))}
    child.stop()
    sessions.add(os.getsid(_pid(ensure_server(data_dir))))

    assert len(sessions) == 2
    assert os.getsid(0) not in sessions


def test_a_path_too_long_for_a_socket_moves_the_socket_to_a_private_directory(data_dir: Path) -> None:
    deep = data_dir.parent / ("d" * 60) / ("e" * 60)
    server = EmbeddedServer(deep)

    url = server.start()

    assert len(os.fsencode(server.socket_path)) <= LONGEST_SOCKET_PATH_BYTES
    assert _mode(server.socket_path.parent) == 0o700
    assert find_server(deep) == url == ensure_server(deep)
    server.stop()
    assert server.start() == url, "the place of the socket is remembered"
    server.stop()
    server.socket_path.parent.rmdir()


def test_a_name_with_spaces_quotes_and_umlauts_works(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir.with_name("dä ta'\"%41"))

    with _client(server.start()) as client:
        assert client.ping()
    assert server.stop()


def test_a_file_in_place_of_the_directory_is_a_clear_error(data_dir: Path) -> None:
    data_dir.write_text("in the way")

    with pytest.raises(ConfigurationError, match=r"data_dir: .* cannot hold the embedded server's data"):
        EmbeddedServer(data_dir).start()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_write_permission_is_a_clear_error(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o500)

    with pytest.raises(ConfigurationError, match="Permission denied"):
        ensure_server(data_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_a_clear_error(data_dir: Path) -> None:
    place = ServerPlace(data_dir)
    place.prepare()
    os.chown(place.directory, 12345, -1)

    with pytest.raises(ConfigurationError, match="belongs to user 12345"):
        ensure_server(data_dir)


def test_a_planted_link_leads_nowhere(data_dir: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    foreign.chmod(0o755)
    data_dir.mkdir(mode=0o700)
    (data_dir / "server").symlink_to(foreign)

    with pytest.raises(ConfigurationError, match="is a symbolic link"):
        ensure_server(data_dir)

    assert foreign.stat().st_mode & 0o777 == 0o755
    assert list(foreign.iterdir()) == []


def test_a_directory_that_others_can_write_to_is_refused(data_dir: Path) -> None:
    data_dir.mkdir()
    data_dir.chmod(0o777)

    with pytest.raises(ConfigurationError, match=r"other users can write .* chmod go-w"):
        ensure_server(data_dir)

    data_dir.chmod(0o1777)
    ServerPlace(data_dir).prepare()  # sticky: nobody can put another directory in the place of ours


def test_damage_in_the_middle_of_the_data_is_a_clear_error_and_nothing_is_touched(data_dir: Path) -> None:
    file = _data_file(data_dir, keys=100)
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 64] = b"\xff" * 64
    file.write_bytes(content)

    for start in (EmbeddedServer(data_dir).start, lambda: ensure_server(data_dir)):
        with pytest.raises(ConfigurationError, match=r"is damaged and was left as it is.*Bad file format"):
            start()

    assert file.read_bytes() == content
    assert find_server(data_dir) is None


def test_half_a_command_at_the_end_of_the_data_is_dropped(data_dir: Path) -> None:
    file = _data_file(data_dir, keys=100)
    os.truncate(file, file.stat().st_size - 5)

    server = EmbeddedServer(data_dir)
    with _client(server.start()) as client:
        assert client.dbsize() == 99
    server.stop()


def test_start_waits_until_long_data_is_loaded(data_dir: Path) -> None:
    file = _data_file(data_dir, keys=1)
    with file.open("ab") as data:
        data.write(_slow_data(blocks=10))

    user = _python(USER_PROGRAM, data_dir)
    _say(user, "go\n")
    socket_path = ServerPlace(data_dir.resolve()).socket_path
    wait_until(lambda: ping(socket_path).mood is Mood.LOADING, "the server says that it is loading")
    server = EmbeddedServer(data_dir)

    with _client(server.start()) as client:
        assert client.exists("last")
    assert not server.is_starter
    assert _finish(user) == 0
    assert server.stop()


def test_a_stopped_process_is_reported_as_silent(data_dir: Path) -> None:
    pid = _pid(ensure_server(data_dir))
    os.kill(pid, signal.SIGSTOP)

    try:
        with pytest.raises(StoreUnavailable, match="has not answered for 20 s"):
            EmbeddedServer(data_dir, HurryingClock()).start()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_socket_of_another_program_is_a_clear_error(data_dir: Path) -> None:
    place = ServerPlace(data_dir.resolve())
    place.prepare()
    listener = _python(FOREIGN_PROGRAM, place.socket_path)
    _hear(listener)

    with pytest.raises(ConfigurationError, match="in use by something that is not a Redis server"):
        EmbeddedServer(data_dir).start()

    assert find_server(data_dir) is None
    _finish(listener)


class HurryingClock:
    """Four seconds pass at each look: a wait of 20 s takes five looks."""

    def __init__(self) -> None:
        self._now_ms = 0

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        self._now_ms += 4000
        return self._now_ms


def _slow_data(blocks: int) -> bytes:
    """Blocks that take 50 ms each to load; the server answers once in 1024 commands that it is loading."""
    key = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n"
    nap = b"*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$4\r\n0.05\r\n"
    return (key * 1023 + nap) * blocks + key.replace(b"$1\r\nk", b"$4\r\nlast")


def _data_file(data_dir: Path, *, keys: int) -> Path:
    server = EmbeddedServer(data_dir)
    with _client(server.start()) as client:
        for number in range(keys):
            client.set(f"key{number}", "v" * 20)
    assert server.stop()
    (file,) = (data_dir / "server" / "appendonlydir").glob("*.incr.aof")
    return file


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=DEADLINE_S)


def _pid(url: str) -> int:
    with _client(url) as client:
        return int(client.info("server")["process_id"])


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _servers_started(data_dir: Path) -> int:
    """How many server processes ever ran here, by their own log."""
    return (data_dir / "server" / "server.log").read_text().count("Server initialized")


def _python(program: str, argument: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(argument)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _finish(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=DEADLINE_S)
    return process.returncode


def test_a_producer_starts_the_server_again_that_a_node_stopped(tmp_path: Path) -> None:
    app = App(settings=Settings(data_dir=tmp_path))
    queue = app.work_queue("mail")
    queue.push("before")
    stop_server(tmp_path)

    queue.push("after")

    assert [element for _, element in queue.inspect(0, 10)] == [b"before", b"after"]
    app.close()
    stop_server(tmp_path)
