"""The last lines of a task: bounded, masked, sent beside the task; none from whoever runs no task."""

from __future__ import annotations

from mqworker.model.clock import SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId, TaskName
from mqworker.operate.system import System
from mqworker.tasks.context import Context, current
from mqworker.tasks.running.job_log import MOST_BYTES, NEW_JOBS_PER_S, JobLogs, log_key, read_log


def logs_of(system: System, most_lines: int = 50) -> JobLogs:
    return JobLogs(system.open_queue, SystemClock(), most_lines)


def say(logs: JobLogs, message: str, *texts: str, **facts: object) -> None:
    delivery = Delivery(1, MessageId(message), TaskName("t"), b"", enqueued_at_ms=0)
    token = current.set(Context(delivery, "mail"))
    for text in texts:
        logs.note("info", text, facts)
    current.reset(token)


def texts(system: System, message: str) -> list[str]:
    return [line.text for line in read_log(system.open_queue("mail"), MessageId(message))]


def test_the_newest_lines_are_kept_in_order(system: System) -> None:
    logs = logs_of(system, most_lines=5)

    say(logs, "m1", *[f"line {number}" for number in range(4)])
    logs.send()
    say(logs, "m1", *[f"more {number}" for number in range(3)])
    logs.send()

    assert texts(system, "m1") == ["line 2", "line 3", "more 0", "more 1", "more 2"]


def test_no_job_keeps_more_than_its_bytes(system: System) -> None:
    logs = logs_of(system)

    say(logs, "m1", *["x" * 5_000] * 50)
    logs.send()

    found = texts(system, "m1")
    assert 0 < sum(map(len, found)) <= MOST_BYTES
    assert len(found[0]) == 1_000


def test_secrets_are_masked_and_a_line_stays_one_line(system: System) -> None:
    logs = logs_of(system)

    say(logs, "m1", "password=hunter2\nnext", attempt=7, tenant="acme")
    logs.send()

    (line,) = texts(system, "m1")
    assert "hunter2" not in line
    assert "\n" not in line
    assert "tenant=acme" in line


def test_a_value_that_cannot_be_shown_does_not_end_the_task(system: System) -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    logs = logs_of(system)
    say(logs, "m1", "hello", bad=Bad())
    logs.send()

    assert texts(system, "m1") == ["<a line that cannot be shown>"]


def test_lines_outside_of_tasks_and_of_the_runner_itself_are_not_kept(system: System) -> None:
    logs = logs_of(system)

    logs.note("info", "starting", {})
    say(logs, "m1", "delivery_retried", part="tasks")
    logs.send()

    assert texts(system, "m1") == []


def test_a_flood_of_quick_jobs_that_log_keeps_only_some_of_them(system: System) -> None:
    logs = logs_of(system)

    for number in range(500):
        say(logs, f"m{number}", "hello")
    logs.send()

    kept = sum(bool(texts(system, f"m{number}")) for number in range(500))
    assert NEW_JOBS_PER_S <= kept <= 4 * NEW_JOBS_PER_S


def test_lines_go_away_with_time_and_foreign_ones_are_passed_over(system: System) -> None:
    logs, queue = logs_of(system), system.open_queue("mail")
    say(logs, "m1", "hello")
    logs.send()
    key = log_key(queue.calls.keys, MessageId("m1"))
    (ttl_ms,) = system.store.send([("PTTL", key)], key)
    system.store.send(
        [("RPUSH", key, b"\xff\xfe"), ("SET", log_key(queue.calls.keys, MessageId("m2")), "x")], key
    )

    assert isinstance(ttl_ms, int)
    assert 0 < ttl_ms <= 3_600_000
    assert texts(system, "m1") == ["hello"]
    assert texts(system, "m2") == []


def test_a_server_that_is_away_costs_lines_and_nothing_else(system: System) -> None:
    logs = logs_of(system)
    say(logs, "m1", "hello")
    system.store.send(
        [("SET", log_key(system.open_queue("mail").calls.keys, MessageId("m1")), "foreign")], None
    )

    logs.send()

    assert texts(system, "m1") == []
