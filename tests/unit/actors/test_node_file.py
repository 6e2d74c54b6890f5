"""The file of a node: whether anybody of it is left, with real processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqworker.actors.node_file import ended_nodes, forget_node, lock_node_file, node_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks are inherited by forked children only")


@contextmanager
def a_node(path: Path) -> Iterator[list[int]]:
    """A process that locks the file, and a child of it; both wait to be killed."""
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        lock_node_file(path)
        second = os.fork()
        if second != 0:
            os.write(writing, b"%d" % second)
        signal.pause()
        os._exit(0)
    pids = [first, int(os.read(reading, 20))]
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(first, 0)
        os.close(reading)
        os.close(writing)


def wait_until_ended(own: Path, boot: str) -> None:
    """The kernel needs a moment to take a process down that was killed."""
    for _ in range(100_000):
        if boot in ended_nodes(own):
            return
        os.sched_yield()
    pytest.fail("its lock is still held")


def test_a_node_has_ended_when_its_last_process_has(tmp_path: Path) -> None:
    own, other = node_file(tmp_path, "aaaa"), node_file(tmp_path, "bbbb")

    with a_node(other) as (supervisor, child):
        while_both_live = ended_nodes(own)
        os.kill(supervisor, signal.SIGKILL)
        os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)
        while_the_child_lives = ended_nodes(own)
        os.kill(child, signal.SIGKILL)
        wait_until_ended(own, "bbbb")

    assert while_both_live == []
    assert while_the_child_lives == []


def test_a_node_never_takes_itself_for_ended(tmp_path: Path) -> None:
    own = node_file(tmp_path, "aaaa")
    lock = lock_node_file(own)
    assert lock is not None

    assert ended_nodes(own) == []
    os.close(lock)
    assert ended_nodes(own) == []


def test_files_of_another_machine_or_boot_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "slots-000000000000-cccc").touch()

    assert ended_nodes(node_file(tmp_path, "aaaa")) == []


def test_a_node_that_was_dealt_with_is_forgotten_and_a_living_one_is_not(tmp_path: Path) -> None:
    own, dead = node_file(tmp_path, "aaaa"), node_file(tmp_path, "bbbb")
    lock = lock_node_file(own)
    assert lock is not None
    dead.touch()

    forget_node(own, "bbbb")
    forget_node(own, "aaaa")

    assert not dead.exists()
    assert own.exists()
    os.close(lock)
