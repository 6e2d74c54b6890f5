"""The last lines of a task: bounded, masked, sent beside the task; none from whoever runs no task."""

from __future__ import annotations

from mqworker.model.clock import SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId, TaskName
from mqworker.operate.site import Site
from mqworker.tasks.context import Context, current
from mqworker.tasks.running.job_log import MOST_BYTES, NEW_JOBS_PER_S, JobLogs, log_key, read_log


def logs_of(site: Site, most_lines: int = 50) -> JobLogs:
    return JobLogs(site.open_queue, SystemClock(), most_lines)


def say(logs: JobLogs, message: str, *texts: str, **facts: object) -> None:
    delivery = Delivery(1, MessageId(message), TaskName("t"), b"", enqueued_at_ms=0)
    token = current.set(Context(delivery, "mail"))
    for text in texts:
        logs.note("info", text, facts)
    current.reset(token)


def texts(site: Site, message: str) -> list[str]:
    return [line.text for line in read_log(site.open_queue("mail"), MessageId(message))]


def test_the_newest_lines_are_kept_in_order(site: Site) -> None:
    logs = logs_of(site, most_lines=5)

    say(logs, "m1", *[f"line {number}" for number in range(4)])
    logs.send()
    say(logs, "m1", *[f"more {number}" for number in range(3)])
    logs.send()

    assert texts(site, "m1") == ["line 2", "line 3", "more 0", "more 1", "more 2"]


def test_no_job_keeps_more_than_its_bytes(site: Site) -> None:
    logs = logs_of(site)

    say(logs, "m1", *["x" * 5_000] * 50)
    logs.send()

    found = texts(site, "m1")
    assert 0 < sum(map(len, found)) <= MOST_BYTES
    assert len(found[0]) == 1_000


def test_secrets_are_masked_and_a_line_stays_one_line(site: Site) -> None:
    logs = logs_of(site)

    say(logs, "m1", "password=hunter2\nnext", attempt=7, tenant="acme")
    logs.send()

    (line,) = texts(site, "m1")
    assert "hunter2" not in line
    assert "\n" not in line
    assert "tenant=acme" in line


def test_a_value_that_cannot_be_shown_does_not_end_the_task(site: Site) -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    logs = logs_of(site)
    say(logs, "m1", "hello", bad=Bad())
    logs.send()

    assert texts(site, "m1") == ["<a line that cannot be shown>"]


def test_lines_outside_of_tasks_and_of_the_runner_itself_are_not_kept(site: Site) -> None:
    logs = logs_of(site)

    logs.note("info", "starting", {})
    say(logs, "m1", "delivery_retried", part="tasks")
    logs.send()

    assert texts(site, "m1") == []


def test_a_flood_of_quick_jobs_that_log_keeps_only_some_of_them(site: Site) -> None:
    logs = logs_of(site)

    for number in range(500):
        say(logs, f"m{number}", "hello")
    logs.send()

    kept = sum(bool(texts(site, f"m{number}")) for number in range(500))
    assert NEW_JOBS_PER_S <= kept <= 4 * NEW_JOBS_PER_S


def test_lines_go_away_with_time_and_foreign_ones_are_passed_over(site: Site) -> None:
    logs, queue = logs_of(site), site.open_queue("mail")
    say(logs, "m1", "hello")
    logs.send()
    key = log_key(queue.calls.keys, MessageId("m1"))
    (ttl_ms,) = site.store.read([("PTTL", key)], key)
    site.store.read(
        [("RPUSH", key, b"\xff\xfe"), ("SET", log_key(queue.calls.keys, MessageId("m2")), "x")], key
    )

    assert isinstance(ttl_ms, int)
    assert 0 < ttl_ms <= 3_600_000
    assert texts(site, "m1") == ["hello"]
    assert texts(site, "m2") == []


def test_a_server_that_is_away_costs_lines_and_nothing_else(site: Site) -> None:
    logs = logs_of(site)
    say(logs, "m1", "hello")
    site.store.read([("SET", log_key(site.open_queue("mail").calls.keys, MessageId("m1")), "foreign")], None)

    logs.send()

    assert texts(site, "m1") == []
