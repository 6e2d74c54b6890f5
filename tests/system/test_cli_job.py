"""`mqworker job` against a real server: above all, why a message is not running."""

import re

import pytest

from mqworker.model.delivery import Delivery
from mqworker.model.envelope import encode_call
from mqworker.model.instant import After
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Bury, Failure, RetryAt, Run, Suspect
from mqworker.model.value_codec import pack
from mqworker.tasks.running.progress import progress_call
from tests.support.command_line import CONSUMER, CommandLine
from tests.support.messages import a_message, some_messages

FAILURE = Failure("ValueError", "bad address, password=hunter2\x1b[2J", "Traceback …")


@pytest.fixture
def line(line: CommandLine) -> CommandLine:
    line.queue("other").enqueue(a_message())
    line.add_node("mail")
    return line


def a_delivery(line: CommandLine) -> Delivery:
    line.queue("mail").enqueue(a_message(task=TaskName("shop.send")))
    return line.queue("mail").claim(consumer=CONSUMER)[0]


def enqueue_one(line: CommandLine, queue: str = "mail", **options: object) -> MessageId:
    message = a_message(task=TaskName("shop.send"), **options)
    line.queue(queue).enqueue(message)
    return message.id


def explain(line: CommandLine, message: str) -> str:
    result = line.type("job", "explain", message)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_delayed_message_says_until_when(line: CommandLine) -> None:
    message = enqueue_one(line, due=After(182_500))

    told = explain(line, message)

    assert told.startswith(f"{message}: delayed until ")
    assert re.search(r"\(in 3 min [0-2] s\)", told)  # a slow machine asks a moment later


def test_a_retry_says_after_which_error_without_secrets(line: CommandLine) -> None:
    delivery = a_delivery(line)
    line.queue("mail").settle(RetryAt(delivery, After(60_000), FAILURE), consumer=CONSUMER)

    told = explain(line, delivery.id)

    assert "attempt 2 after ValueError: bad address, password=***" in told
    assert "hunter2" not in told
    assert "\x1b" not in told


def test_a_ready_message_says_how_many_are_before_it(line: CommandLine) -> None:
    line.queue("mail").enqueue(*some_messages(1_204))
    message = enqueue_one(line)

    assert "ready in queue mail, 1,204 before it" in explain(line, message)


def test_a_message_that_nobody_consumes_says_what_is_consumed_instead(line: CommandLine) -> None:
    message = enqueue_one(line, "legacy")

    assert "nobody consumes queue legacy: 1 node up, consuming mail" in explain(line, message)


def test_a_paused_queue_says_since_when(line: CommandLine) -> None:
    message = enqueue_one(line)
    line.type("queue", "pause", "mail")

    assert "queue mail is paused since " in explain(line, message)


def test_a_held_message_says_who_holds_it(line: CommandLine) -> None:
    told = explain(line, a_delivery(line).id)

    assert "held by node web-1, attempt 1" in told
    assert "worker:1 has 3" in told


def test_a_suspect_says_that_it_runs_alone(line: CommandLine) -> None:
    delivery = a_delivery(line)
    line.queue("mail").settle(Suspect(delivery, "SIGKILL"), consumer=CONSUMER)

    told = explain(line, delivery.id)

    assert "it ran beside others when their worker died: it runs alone" in told


def test_a_message_that_was_lost_with_its_node_says_how_often(line: CommandLine) -> None:
    delivery = a_delivery(line)
    line.queue("mail").reap_dead(CONSUMER)

    assert "its node vanished with it 1 time; from `max_losses` on it runs alone" in explain(
        line, delivery.id
    )
    assert "1 lost with their node" in line.type("job", "show", delivery.id).output


def test_a_message_that_was_given_up_as_lost_says_so(line: CommandLine) -> None:
    delivery = a_delivery(line)
    queue = line.queue("mail")
    queue.store.run(queue.calls.begin_probation(delivery.fence, CONSUMER))
    queue.reap_dead(CONSUMER)

    assert "lost; NodeLost: its node vanished once" in explain(line, delivery.id)


def test_a_dead_message_says_why_and_how_to_repeat_it(line: CommandLine) -> None:
    delivery = a_delivery(line)
    line.queue("mail").settle(Bury(delivery, "retries", FAILURE), consumer=CONSUMER)

    told = explain(line, delivery.id)

    assert "dead since" in told
    assert "retries; ValueError: bad address" in told
    assert f"`mqworker job retry {delivery.id}`" in told


@pytest.mark.parametrize("result", [b"42", b""])
def test_a_finished_message_says_when_even_without_a_result(line: CommandLine, result: bytes) -> None:
    delivery = a_delivery(line)
    run = Run("worker:1", "web-1", delivery.enqueued_at_ms, 1_500.0)
    line.queue("mail").settle(Ack(delivery, result, run), consumer=CONSUMER)

    told = explain(line, delivery.id)

    assert "finished " in told
    assert ": succeeded, it ran for 1 s" in told


def test_an_unknown_id_says_what_may_have_happened(line: CommandLine) -> None:
    result = line.type("job", "explain", "nosuch")

    assert result.exit_code == 1
    assert result.output.startswith(
        "mqworker: no message nosuch in any queue: it may have finished more than 10 min"
    )


def test_an_impossible_id_is_a_usage_error(line: CommandLine) -> None:
    assert line.type("job", "show", "no such").exit_code == 2


def test_show_keeps_arguments_to_itself_unless_asked(line: CommandLine) -> None:
    body = encode_call([{"api_key": "k1"}, "Hi\x1b[2J"], {"password": "p1", "to": "ann"})
    message = a_message(body, task=TaskName("shop.send"))
    line.queue("mail").enqueue(message)

    brief = line.type("job", "show", message.id).output
    full = line.type("job", "show", message.id, "--args").output

    assert "shop.send" in brief
    assert "ann" not in brief
    assert "'ann'" in full
    assert "\\x1b[2J" in full
    assert not {"k1", "p1", "\x1b"} & set(full.replace("\n", " ").replace("'", " ").split())


def test_show_tells_what_happened_so_far(line: CommandLine) -> None:
    delivery = a_delivery(line)
    line.queue("mail").settle(RetryAt(delivery, After(60_000), FAILURE), consumer=CONSUMER)

    shown = line.type("job", "show", delivery.id, "--queue", "mail").output

    assert "1 so far, 1 failed, 0 crashed a worker" in shown
    assert "retried attempt 1" in shown
    assert shown.rstrip().endswith("enqueued")


def test_cancel_takes_a_waiting_message_out(line: CommandLine) -> None:
    message = enqueue_one(line)

    assert line.type("job", "cancel", message).output == f"{message} of queue mail is cancelled\n"
    assert line.queue("mail").find(message).state == "cancelled"


def test_cancel_asks_a_running_one_to_stop(line: CommandLine) -> None:
    delivery = a_delivery(line)

    assert "was asked to stop" in line.type("job", "cancel", delivery.id).output
    assert "somebody asked to stop it" in explain(line, delivery.id)


def test_retry_puts_a_dead_message_back_and_nothing_else(line: CommandLine) -> None:
    delivery = a_delivery(line)
    line.queue("mail").settle(Bury(delivery, "retries", FAILURE), consumer=CONSUMER)

    revived = line.type("job", "retry", delivery.id)
    again = line.type("job", "retry", delivery.id)

    assert revived.output == f"{delivery.id} is back in line in queue mail\n"
    assert again.exit_code == 1
    assert "is ready: only a dead message can be retried" in again.output


def test_show_of_a_running_job_tells_who_runs_it_since_when_and_how_far_it_is(line: CommandLine) -> None:
    delivery = a_delivery(line)
    line.add_node("mail", running={"worker:1": [[delivery.id, 12_000]]})
    line.queue("mail").store.run(progress_call(line.queue("mail").calls.keys, delivery, 3, 10))

    shown = line.type("job", "show", delivery.id).output

    assert "task          shop.send\n" in shown
    assert "attempt       1; before: 0 failed, 0 crashed a worker\n" in shown
    assert "worker        worker:1 of node web-1\n" in shown
    assert "(12 s)" in shown
    assert "progress      3 of 10 (30%)\n" in shown
    assert "so far" not in shown


def test_show_of_a_finished_job_tells_task_times_and_result(line: CommandLine) -> None:
    delivery = a_delivery(line)
    result = pack({"total": 42, "password": "hunter2"})
    line.queue("mail").settle(Ack(delivery, result, Run("worker:1", "web-1", 1, 1_500.0)), consumer=CONSUMER)

    shown = line.type("job", "show", delivery.id).output

    assert "state         succeeded\n" in shown
    assert "task          shop.send\n" in shown
    assert "ended         " in shown
    assert "ran for       1 s\n" in shown
    assert "'total': 42" in shown
    assert "hunter2" not in shown
