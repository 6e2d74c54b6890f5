"""Whether a silent process waited for a CPU: what counts, and what the kernel says of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mqworker.actors.cpu_wait import CpuWait, ThreadTimes, starved_ms, times_of
from tests.support.deadline import wait_until

MS = 1_000_000
SPIN = "while True: pass"
SLEEP = "import time; time.sleep(600)"

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts it")


def test_what_a_thread_waited_meanwhile_is_counted_and_nothing_before() -> None:
    before = {1: ThreadTimes(10 * MS, 500 * MS, is_ready=True)}
    after = {1: ThreadTimes(20 * MS, 4_500 * MS, is_ready=False)}

    assert starved_ms(before, after, 5_000) == 4_000


def test_many_threads_that_each_wait_a_little_starve_nobody() -> None:
    after = {thread: ThreadTimes(MS, 100 * MS, is_ready=False) for thread in range(50)}

    assert starved_ms({}, after, 5_000) == 100


def test_a_thread_that_is_ready_and_has_not_run_has_waited_all_the_time() -> None:
    before = {1: ThreadTimes(10 * MS, 0, is_ready=False)}
    after = {1: ThreadTimes(10 * MS, 0, is_ready=True)}

    assert starved_ms(before, after, 5_000) == 5_000


def test_a_thread_that_spins_on_a_cpu_of_its_own_has_not_waited() -> None:
    before = {1: ThreadTimes(10 * MS, 0, is_ready=True)}
    after = {1: ThreadTimes(4_990 * MS, 20 * MS, is_ready=True)}

    assert starved_ms(before, after, 5_000) == 20


def test_of_a_process_that_is_gone_nothing_is_known_and_all_time_counts() -> None:
    with a_process(SLEEP) as pid:
        pass

    assert times_of(pid) == {}
    assert CpuWait(pid, 0).ms(5_000) == 0


@on_linux
@pytest.mark.parametrize("stop", [None, signal.SIGSTOP])
def test_a_process_that_sleeps_or_is_stopped_waits_for_no_cpu(stop: signal.Signals | None) -> None:
    with a_process(SLEEP) as pid:
        wait_until(lambda: not any(each.is_ready for each in times_of(pid).values()), "it sleeps")
        if stop is not None:
            os.kill(pid, stop)
        wait = CpuWait(pid, 0)
        time.sleep(0.3)

        assert wait.ms(300) < 150


@on_linux
def test_a_process_that_competes_with_others_for_one_cpu_waits() -> None:
    with a_process(SPIN) as pid, a_process(SPIN) as other:
        for each in (pid, other):
            os.sched_setaffinity(each, {min(os.sched_getaffinity(0))})
        os.setpriority(os.PRIO_PROCESS, pid, 19)
        wait, began = CpuWait(pid, 0), time.monotonic()

        def passed_ms() -> int:
            return int((time.monotonic() - began) * 1000)

        wait_until(lambda: passed_ms() > 500 and wait.ms(passed_ms()) > passed_ms() / 2, "it waits")


@contextmanager
def a_process(code: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process.pid
        finally:
            process.kill()
