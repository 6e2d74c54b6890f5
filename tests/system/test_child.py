"""One child process, forked and spawned: both must look the same from outside."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import Hello, Mail
from mqworker.actors.mailbox import Mailbox
from mqworker.errors import ConfigurationError
from mqworker.settings import Settings
from mqworker.supervisor.child import Child, Ending, StartMethod, start_child

DEADLINE_S = 30.0
METHODS = [StartMethod.FORK, StartMethod.SPAWN]


@pytest.mark.parametrize("method", METHODS)
def test_a_child_sends_mail_and_ends_with_its_code(method: StartMethod) -> None:
    child = start_child(say_hello, _start(), method)

    assert _next_mail(child) == Hello("worker:7", child.process.pid)
    assert _ending(child).code == 5
    child.close()


@pytest.mark.parametrize("method", METHODS)
def test_a_configuration_error_is_its_code_and_its_last_words(method: StartMethod) -> None:
    child = start_child(refuse, _start(), method)

    ending = _ending(child)
    child.close()

    assert (ending.code, ending.words) == (78, "app: got nothing")
    assert ending.cause == "exit code 78: app: got nothing"


@pytest.mark.parametrize("method", METHODS)
def test_only_a_kill_ends_a_child(method: StartMethod) -> None:
    child = start_child(sleep_after_hello, _start(), method)
    _next_mail(child)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        child.process.send(number)
    assert child.reap() is None
    child.process.send(signal.SIGKILL)
    ending = _ending(child)
    child.process.send(signal.SIGKILL)  # no harm once it is gone
    child.close()

    assert (ending.code, ending.signal, ending.cause) == (None, "SIGKILL", "SIGKILL")


def test_what_a_killed_child_started_is_killed_too() -> None:
    child = start_child(start_program, _start())
    mail = _next_mail(child)
    assert isinstance(mail, Hello)

    child.process.send(signal.SIGKILL)
    ending = _ending(child)
    child.close()

    assert ending.rss_bytes > 1_000_000
    ends_at = time.monotonic() + DEADLINE_S
    while _lives(mail.pid):
        assert time.monotonic() < ends_at


def test_a_program_started_by_a_child_ends_on_term() -> None:
    child = start_child(terminate_program, _start())

    ending = _ending(child)
    child.close()

    assert ending.code == 0


def say_hello(control: Mailbox, start: ChildStart) -> int:
    control.send(Hello(start.name, os.getpid()))
    return 5


def refuse(control: Mailbox, start: ChildStart) -> int:
    del control, start
    raise ConfigurationError("app: got nothing")


def sleep_after_hello(control: Mailbox, start: ChildStart) -> int:
    control.send(Hello(start.name, os.getpid()))
    ends_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends_at:
        time.sleep(0.1)
    return 0


def start_program(control: Mailbox, start: ChildStart) -> int:
    program = subprocess.Popen(["sleep", "60"])
    control.send(Hello(start.name, program.pid))
    return program.wait()


def terminate_program(control: Mailbox, start: ChildStart) -> int:
    del control, start
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    return 0 if program.wait(DEADLINE_S) == -signal.SIGTERM else 1


def _start() -> ChildStart:
    return ChildStart(
        settings=Settings(),
        redis_url="redis://nowhere",
        node="node",
        consumer="node.1",
        name="worker:7",
        generation=1,
        parent_pid=os.getpid(),
        app=None,
        slots_path="",
    )


def _next_mail(child: Child) -> Mail:
    _wait_readable(child.control.fileno())
    return child.control.receive()[0]


def _ending(child: Child) -> Ending:
    _wait_readable(child.process.fileno())
    ends_at = time.monotonic() + DEADLINE_S
    while (ending := child.reap()) is None:  # the end of a pipe comes a moment before that of the process
        assert time.monotonic() < ends_at
    return ending


def _wait_readable(descriptor: int) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        assert selector.select(DEADLINE_S), "not in time"


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # whoever adopted it has not collected it yet


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and looks into /proc")
