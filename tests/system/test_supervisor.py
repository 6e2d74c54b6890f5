"""The supervisor over real processes: fake actors are killed, hung, broken and stopped in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqworker.supervisor.status_socket import read_snapshots
from tests.support.deadline import wait_until
from tests.support.node_process import marked_processes
from tests.system.fake_actors import journal_path

ROOT = Path(__file__).parents[2]
MARK = "MQW_TEST_MARK"
EXIT_DEADLINE_S = 10.0
NAMES = ["broker", "heartbeat_reaper", "rate_limiter", "dispatcher", "worker:0", "worker:1"]


class FakeNode:
    """A supervisor process over fake actors, and how to look at it."""

    def __init__(
        self,
        directory: Path,
        deeds: str = "",
        drain_s: float = 2.0,
        most_deaths: int = 5,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.directory = directory
        self.mark = uuid.uuid4().hex
        options = {"deeds": deeds, "drain_s": drain_s, "most_deaths": most_deaths, "workers": 2}
        self.log_path = directory / "log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.fake_node", str(directory), json.dumps(options)],
                cwd=ROOT,
                env={**os.environ, MARK: self.mark},
                stdin=stdin,
                stderr=log,
                start_new_session=True,
            )

    def snapshot(self) -> dict[str, Any]:
        return next((found for found in read_snapshots(self.directory, 5.0).values() if found), {})

    def child(self, name: str) -> dict[str, Any]:
        children: list[dict[str, Any]] = self.snapshot().get("children", [])
        return next((child for child in children if child["name"] == name), {})

    def wait_ready(self) -> None:
        wait_until(lambda: self.snapshot().get("complete"), "all actors are ready")

    def wait_generation(self, name: str, generation: int) -> dict[str, Any]:
        def is_there() -> bool:
            child = self.child(name)
            return child.get("generation", 0) >= generation and child["state"] == "live"

        wait_until(is_there, f"{name} in generation {generation}")
        return self.child(name)

    def wait_parked(self, name: str) -> dict[str, Any]:
        """How it is at a moment when it is parked: it is tried again soon."""
        seen: list[dict[str, Any]] = []

        def is_parked() -> bool:
            seen.append(self.child(name))
            return seen[-1].get("state") == "parked"

        wait_until(is_parked, f"{name} is parked")
        return seen[-1]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.child(name)["pid"], number)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_exit(self) -> int:
        return self.process.wait(EXIT_DEADLINE_S)

    def journal(self) -> list[str]:
        path = journal_path(self.directory)
        return path.read_text().splitlines() if path.exists() else []

    def wait_journal(self, line: str) -> None:
        wait_until(lambda: line in self.journal(), f"{line!r} in the journal")

    def wait_answers(self, count: int) -> None:
        """The dispatcher asks the rate limiter once over each pipe."""
        wait_until(lambda: sum(" answered " in line for line in self.journal()) == count, f"{count} answers")

    def log(self) -> str:
        return self.log_path.read_text()

    def descendants(self) -> list[int]:
        """Every process that carries our mark, zombies included as long as they are ours to see."""
        return marked_processes(self.mark)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        wait_until(lambda: not self.descendants(), "nothing is left")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    started = Nodes(tmp_path)
    yield started
    started.close()


class Nodes:
    """Starts nodes and makes sure that none is left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._nodes: list[FakeNode] = []

    # Any: the options of FakeNode.
    def start(self, deeds: str = "", **options: Any) -> FakeNode:  # noqa: ANN401
        node = FakeNode(self._directory, deeds, **options)
        self._nodes.append(node)
        return node

    def close(self) -> None:
        for node in self._nodes:
            node.close()


def test_children_start_in_order_and_say_that_they_are_ready(nodes: Nodes) -> None:
    node = nodes.start()

    node.wait_ready()

    started = [line.split()[0] for line in node.journal() if " started " in line]
    assert started[0] == "broker"
    assert set(started[1:3]) == {"heartbeat_reaper", "rate_limiter"}
    assert started[3] == "dispatcher"
    assert set(started[4:]) == {"worker:0", "worker:1"}


def test_the_supervisor_stays_slim(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()
    pid = node.process.pid

    threads = list(Path(f"/proc/{pid}/task").iterdir())
    links = _open_files(pid)

    assert len(threads) == 1
    # One control pipe for each child, and the status socket.
    assert len([link for link in links if link.startswith("socket:")]) == len(NAMES) + 1


def test_a_child_has_no_descriptor_but_its_own(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()
    pid = node.child("broker")["pid"]

    links = _open_files(pid)

    # Stdio, the control pipe, the pipe for last words, the selector and the lock of the node's file.
    assert len(links) == 7
    assert os.getpgid(pid) == pid


@pytest.mark.parametrize("name", ["broker", "heartbeat_reaper", "rate_limiter", "worker:1"])
def test_a_killed_child_is_replaced_and_nobody_else(nodes: Nodes, name: str) -> None:
    node = nodes.start()
    node.wait_ready()

    node.kill(name)
    replaced = node.wait_generation(name, 2)

    assert (replaced["restarts"], replaced["last_exit"]) == (1, "SIGKILL")
    assert {child["name"]: child["generation"] for child in node.snapshot()["children"]} == {
        other: 2 if other == name else 1 for other in NAMES
    }


def test_the_dispatcher_hears_how_its_worker_ended(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()

    node.kill("worker:0", signal.SIGSEGV)
    node.wait_generation("worker:0", 2)

    node.wait_journal("dispatcher worker_exited worker:0 SIGSEGV")


def test_the_dispatcher_may_kill_a_worker_and_its_successor_is_spared(nodes: Nodes) -> None:
    node = nodes.start("dispatcher=killer")

    replaced = node.wait_generation("worker:0", 2)
    node.wait_journal("dispatcher worker_exited worker:0 hard time-out (SIGKILL)")
    node.kill("broker")
    node.wait_generation("broker", 2)  # all mail of the dispatcher's was read by now

    assert replaced["last_exit"] == "hard time-out (SIGKILL)"
    assert node.child("worker:0")["generation"] == 2


def test_workers_outlive_their_dispatcher_and_their_consumer_is_not_released(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()

    node.kill("dispatcher")
    node.wait_generation("dispatcher", 2)

    assert [node.child(name)["generation"] for name in ("worker:0", "worker:1")] == [1, 1]
    told = [line.split() for line in node.journal() if line.startswith("heartbeat_reaper Consumer")]
    assert {word for _, word, _ in told} == {"ConsumerStarted"}
    assert len({consumer for _, _, consumer in told}) == 1


def test_workers_of_a_parked_dispatcher_stay_and_the_next_one_has_the_same_consumer(nodes: Nodes) -> None:
    node = nodes.start(most_deaths=1)
    node.wait_ready()

    for generation in (2, 3):
        node.kill("dispatcher", signal.SIGSEGV)  # not from outside, for all the supervisor knows
        if generation == 2:
            node.wait_generation("dispatcher", generation)
    node.wait_parked("dispatcher")
    node.wait_generation("dispatcher", 3)

    assert [node.child(name)["generation"] for name in ("worker:0", "worker:1")] == [1, 1]
    told = {line.split()[1] for line in node.journal() if line.startswith("heartbeat_reaper Consumer")}
    assert told == {"ConsumerStarted"}


def test_a_dispatcher_that_others_kill_is_never_given_up(nodes: Nodes) -> None:
    node = nodes.start(most_deaths=2)
    node.wait_ready()

    for generation in range(2, 12):
        node.kill("dispatcher")
        node.wait_generation("dispatcher", generation)

    assert node.process.poll() is None
    assert node.child("worker:0")["generation"] == 1


def test_a_new_reaper_is_told_what_the_one_before_knew(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()

    node.kill("heartbeat_reaper")
    node.wait_generation("heartbeat_reaper", 2)

    def told() -> list[str]:
        lines = node.journal()
        begin = max(number for number, line in enumerate(lines) if "heartbeat_reaper started" in line)
        words = [line.split() for line in lines[begin:] if "heartbeat_reaper Consumer" in line]
        return [f"{word} {consumer.rpartition('.')[2]}" for _, word, consumer in words]

    wait_until(lambda: told() == ["ConsumerStarted 1"], "it was told")


@pytest.mark.parametrize("name", ["rate_limiter", "dispatcher"])
def test_a_pipe_is_renewed_when_either_end_dies(nodes: Nodes, name: str) -> None:
    node = nodes.start(most_deaths=50)
    node.wait_ready()

    node.wait_answers(1)
    for generation in (2, 3, 4):
        node.kill(name)
        node.wait_generation(name, generation)
        node.wait_answers(generation)


def test_a_child_that_cannot_live_is_parked_and_everybody_else_goes_on(nodes: Nodes) -> None:
    node = nodes.start("rate_limiter=crash", most_deaths=5)

    parked = node.wait_parked("rate_limiter")
    node.wait_generation("dispatcher", 1)
    node.wait_generation("worker:1", 1)
    wait_until(lambda: node.child("rate_limiter").get("generation", 0) > 6, "it is tried again")

    assert parked["last_exit"] == "exit code 1: RuntimeError: rate_limiter cannot be"
    assert 0 < parked["retry_in_ms"] <= 2_000
    assert {child["generation"] for child in node.snapshot()["children"] if child["state"] == "live"} == {1}
    assert '"event": "child_parked"' in node.log()
    assert node.process.poll() is None


def test_pauses_of_a_parked_child_grow(nodes: Nodes) -> None:
    node = nodes.start("rate_limiter=crash", most_deaths=0)

    def pauses() -> list[int]:
        lines = [json.loads(line) for line in node.log().splitlines() if '"child_parked"' in line]
        return [line["next_try_in_ms"] for line in lines]

    wait_until(lambda: len(pauses()) >= 3, "it was parked three times")

    assert pauses()[0] <= 1_000 < 2 * pauses()[2]


def test_mail_to_a_parked_child_is_not_kept(nodes: Nodes) -> None:
    node = nodes.start("heartbeat_reaper=crash", most_deaths=0)
    wait_until(lambda: node.child("heartbeat_reaper").get("state") == "parked", "it is parked")
    node.wait_generation("worker:0", 1)

    def resident() -> int:
        return int(Path(f"/proc/{node.process.pid}/statm").read_text().split()[1]) * 4_096

    before = resident()
    for generation in range(2, 6):  # of each of these the reaper would be told
        node.kill("dispatcher")
        node.wait_generation("dispatcher", generation)

    assert resident() - before < 4 * 1024 * 1024


def test_a_worker_that_dies_of_its_tasks_is_never_given_up(nodes: Nodes) -> None:
    node = nodes.start(most_deaths=2)
    node.wait_ready()

    for generation in range(2, 10):
        node.kill("worker:0")
        node.wait_generation("worker:0", generation)

    assert node.process.poll() is None


def test_a_worker_that_cannot_start_is_parked_and_the_other_one_works(nodes: Nodes) -> None:
    node = nodes.start("worker:0=crash", most_deaths=2)

    wait_until(lambda: node.child("worker:0").get("state") == "parked", "it is parked")

    assert node.wait_generation("worker:1", 1)["state"] == "live"
    assert node.process.poll() is None


@pytest.mark.parametrize("name", ["broker", "dispatcher", "worker:1"])
def test_a_configuration_error_halts_with_its_sentence(nodes: Nodes, name: str) -> None:
    node = nodes.start(f"{name}=refuse")

    assert node.wait_exit() == 78

    assert sum(f"{name} started" in line for line in node.journal()) == 1
    assert f"app: {name} finds no such thing" in node.log()
    assert "Traceback" not in node.log()


def test_a_configuration_error_after_the_first_start_parks_the_child(nodes: Nodes) -> None:
    node = nodes.start("broker=refuse_later")
    node.wait_ready()

    node.kill("broker")
    parked = node.wait_parked("broker")

    assert parked["last_exit"] == "exit code 78: app: broker finds no such thing"
    assert node.child("worker:0")["state"] == "live"
    assert node.process.poll() is None


def test_a_child_that_does_not_answer_is_parked_with_that_reason(nodes: Nodes) -> None:
    node = nodes.start("broker=always_busy", most_deaths=0)

    parked = node.wait_parked("broker")

    assert parked["last_exit"] == "does not answer (SIGABRT)"
    (line, *_) = [json.loads(line) for line in node.log().splitlines() if '"child_parked"' in line]
    assert line["reason"] == "does not answer (SIGABRT)"


def test_a_task_cannot_halt_the_node(nodes: Nodes) -> None:
    node = nodes.start("worker:0=exit_78")

    assert node.wait_generation("worker:0", 2)["last_exit"] == "exit code 78"


def test_a_child_that_exits_after_it_was_ready_is_replaced(nodes: Nodes) -> None:
    node = nodes.start("broker=exit")

    assert node.wait_generation("broker", 2)["last_exit"] == "exit code 3"


def test_a_busy_loop_is_noticed_shown_and_replaced(nodes: Nodes) -> None:
    node = nodes.start("broker=busy")

    replaced = node.wait_generation("broker", 2)

    assert replaced["last_exit"] == "does not answer (SIGABRT)"
    assert "fake_actors.py" in node.log()  # the stack, from faulthandler
    assert "in turn" in node.log()


def test_a_stopped_child_is_killed_in_the_end(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()

    node.kill("dispatcher", signal.SIGSTOP)
    replaced = node.wait_generation("dispatcher", 2)

    assert replaced["last_exit"] == "does not answer (SIGKILL)"


def test_a_silent_worker_is_left_alone(nodes: Nodes) -> None:
    node = nodes.start("worker:0=busy")
    node.wait_ready()

    # Twice as long as anybody else may be silent.
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 2.0, "a while")

    assert node.child("worker:0")["generation"] == 1


@pytest.mark.parametrize("deed", ["garbage", "half_frame"])
def test_a_child_that_sends_garbage_is_replaced(nodes: Nodes, deed: str) -> None:
    node = nodes.start(f"rate_limiter={deed}")

    node.wait_ready()

    assert node.child("rate_limiter")["generation"] == 2
    assert node.child("broker")["generation"] == 1


def test_nothing_outlives_a_killed_supervisor(nodes: Nodes) -> None:
    node = nodes.start("worker:0=busy,broker=stubborn")
    node.wait_ready()
    assert len(node.descendants()) == len(NAMES) + 1

    node.send(signal.SIGKILL)
    node.wait_exit()

    wait_until(lambda: not node.descendants(), "all are gone", deadline_s=2.0)


def test_no_zombie_is_left_while_it_runs(nodes: Nodes) -> None:
    node = nodes.start(most_deaths=50)
    node.wait_ready()
    for generation in (2, 3, 4, 5):
        node.kill("worker:0")
        node.wait_generation("worker:0", generation)

    states = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in node.descendants()
    ]

    assert len(states) == len(NAMES) + 1
    assert "Z" not in states


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_in_order(nodes: Nodes, number: signal.Signals) -> None:
    node = nodes.start()
    node.wait_ready()

    node.send(number)

    assert node.wait_exit() == 0
    drained = [line.split()[0] for line in node.journal() if " drain " in line]
    ended = [line.split()[0] for line in node.journal() if " ended " in line]
    assert drained[0] == ended[0] == "dispatcher"
    assert set(drained[1:3]) == set(ended[1:3]) == {"worker:0", "worker:1"}
    assert set(ended[3:]) == {"broker", "heartbeat_reaper", "rate_limiter"}
    assert not node.descendants()
    assert not list(node.directory.glob("*.sock"))


def test_a_signal_to_the_whole_group_is_as_good(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()

    os.killpg(node.process.pid, signal.SIGINT)

    assert node.wait_exit() == 0
    assert sum(" ended " in line for line in node.journal()) == len(NAMES)


def test_what_does_not_drain_is_killed_in_time_and_its_consumer_released(nodes: Nodes) -> None:
    node = nodes.start("dispatcher=stubborn,worker:0=busy", drain_s=0.4)
    node.wait_ready()
    began = time.monotonic()

    node.send(signal.SIGTERM)

    assert node.wait_exit() == 1
    assert time.monotonic() - began < 3.0
    assert any("dispatcher worker_exited worker:0 drain (SIGKILL)" in line for line in node.journal())
    assert any("heartbeat_reaper ConsumerGone" in line for line in node.journal())


def test_a_busy_worker_or_an_idle_actor_that_is_late_is_no_failure_of_the_drain(nodes: Nodes) -> None:
    node = nodes.start("worker:0=busy,broker=stubborn", drain_s=2.0)
    node.wait_ready()

    node.send(signal.SIGTERM)

    assert node.wait_exit() == 0


def test_the_second_signal_ends_the_workers_at_once(nodes: Nodes) -> None:
    node = nodes.start("dispatcher=stubborn,worker:0=busy", drain_s=60)
    node.wait_ready()

    node.send(signal.SIGTERM)
    wait_until(lambda: any("dispatcher drain" in line for line in node.journal()), "the drain has begun")
    node.send(signal.SIGTERM)
    node.wait_journal("dispatcher worker_exited worker:0 drain (SIGKILL)")
    node.wait_journal("dispatcher drain 0")

    assert node.wait_exit() == 1  # for the dispatcher was stubborn


def test_the_third_signal_ends_everything(nodes: Nodes) -> None:
    node = nodes.start("broker=stubborn,dispatcher=stubborn", drain_s=60)
    node.wait_ready()

    for line in ("dispatcher drain", "dispatcher drain 0"):
        node.send(signal.SIGTERM)
        wait_until(lambda line=line: any(line in each for each in node.journal()), line)  # type: ignore[misc]
    node.send(signal.SIGTERM)

    assert node.wait_exit() == 1
    assert not node.descendants()


@pytest.mark.parametrize(
    "deeds", ["", "broker=never_ready", "dispatcher=never_ready", "worker:0=never_ready"]
)
def test_a_signal_while_it_starts_ends_it(nodes: Nodes, deeds: str) -> None:
    node = nodes.start(deeds, drain_s=0.4)
    wait_until(lambda: any((deeds.partition("=")[0] or "broker") in line for line in node.journal()), "begun")

    node.send(signal.SIGTERM)

    node.wait_exit()
    assert not node.descendants()
    if not deeds or deeds.startswith("worker"):
        assert node.process.returncode == 0


def test_hup_replaces_the_workers_one_after_the_other(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()

    node.send(signal.SIGHUP)
    node.wait_generation("worker:0", 2)
    node.wait_generation("worker:1", 2)

    steps = [line for line in node.journal() if "retire" in line or line.split()[1:3] == ["started", "2"]]
    assert [line.split()[:3] for line in steps] == [
        ["dispatcher", "retire", "worker:0"],
        ["worker:0", "started", "2"],
        ["dispatcher", "retire", "worker:1"],
        ["worker:1", "started", "2"],
    ]
    assert node.child("worker:0")["last_exit"] == "exit code 0"
    assert node.child("dispatcher")["generation"] == 1


def test_hup_from_a_terminal_that_was_closed_is_the_end(nodes: Nodes) -> None:
    keyboard, terminal = os.openpty()
    node = nodes.start(stdin=terminal)
    os.close(terminal)
    node.wait_ready()

    os.close(keyboard)
    node.send(signal.SIGHUP)

    assert node.wait_exit() == 0


def test_usr1_shows_the_state_and_all_stacks(nodes: Nodes) -> None:
    node = nodes.start()
    node.wait_ready()

    node.send(signal.SIGUSR1)

    wait_until(
        lambda: node.log().count("most recent call first") == len(NAMES) + 1, "a stack of each process"
    )
    assert node.log().count('"event": "child_status"') == len(NAMES)


def test_a_second_supervisor_in_the_directory_gets_a_socket_of_its_own(nodes: Nodes) -> None:
    first = nodes.start()
    first.wait_ready()
    second = nodes.start()

    wait_until(lambda: len(read_snapshots(first.directory, 5.0)) == 2, "both answer")

    assert sorted(read_snapshots(first.directory, 5.0)) == sorted(
        ["supervisor.sock", f"supervisor-{second.process.pid}.sock"]
    )


def test_a_socket_left_by_a_killed_supervisor_is_replaced(nodes: Nodes) -> None:
    killed = nodes.start()
    killed.wait_ready()
    killed.send(signal.SIGKILL)
    killed.wait_exit()
    assert read_snapshots(killed.directory, 5.0) == {}

    node = nodes.start()
    node.wait_ready()

    assert list(read_snapshots(node.directory, 5.0)) == ["supervisor.sock"]
    assert node.snapshot()["pid"] == node.process.pid


def _open_files(pid: int) -> list[str]:
    return [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
