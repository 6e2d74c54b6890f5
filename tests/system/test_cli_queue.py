"""`mqworker queue` against a real server."""

import pytest

from mqworker.model.instant import After
from mqworker.model.settlement import Ack, Run
from tests.support.command_line import CommandLine
from tests.support.messages import a_message, some_messages


@pytest.fixture
def line(line: CommandLine) -> CommandLine:
    line.queue("mail").enqueue(*some_messages(3), a_message(due=After(60_000)))
    return line


def test_list_shows_each_queue_with_its_depths(line: CommandLine) -> None:
    result = line.type("queue", "list")

    assert result.exit_code == 0
    assert result.output.splitlines()[1].split()[:5] == ["mail", "3", "1", "0", "0"]


def test_list_of_nothing_says_so(line: CommandLine) -> None:
    with line.server.client() as client:
        client.flushall()

    assert line.type("queue", "list").output == "no queue was ever used here\n"


def test_show_tells_everything_about_one(line: CommandLine) -> None:
    line.add_node("mail")

    result = line.type("queue", "show", "mail")

    assert result.exit_code == 0
    assert "consumed by   web-1" in result.output
    assert "since made    4 enqueued" in result.output


def test_show_tells_how_long_messages_waited(line: CommandLine) -> None:
    queue = line.queue("mail")
    first, *others = queue.claim(3)
    quick = [Ack(each, b"", Run("worker:1", "web-1", each.enqueued_at_ms + 20, 3.0)) for each in others]
    slow = Ack(first, b"", Run("worker:1", "web-1", first.enqueued_at_ms + 7_000, 3.0))
    queue.settle(slow, *quick)

    result = line.type("queue", "show", "mail")

    assert "waited 7 s, ran 3 ms; of the last 3 first attempts that succeeded" in result.output


def test_pause_and_resume_say_how_much_waits(line: CommandLine) -> None:
    paused = line.type("queue", "pause", "mail")
    shown = line.type("queue", "show", "mail")

    assert "queue mail is paused, 4 waiting messages in it" in paused.output
    assert "mail, paused since " in shown.output
    assert line.queue("mail").claim() == []

    resumed = line.type("queue", "resume", "mail")

    assert "hands out messages again" in resumed.output
    assert len(line.queue("mail").claim()) == 1


def test_limit_is_set_and_lifted(line: CommandLine) -> None:
    assert line.type("queue", "limit", "mail", "500").output.startswith("queue mail takes 500")
    assert line.queue("mail").counts().limit == 500

    assert line.type("queue", "limit", "mail", "none").exit_code == 0
    assert line.queue("mail").counts().limit is None


@pytest.mark.parametrize("length", ["0", "x", "-5", "1.5"])
def test_a_limit_that_is_no_number_is_a_usage_error(line: CommandLine, length: str) -> None:
    assert line.type("queue", "limit", "mail", "--", length).exit_code == 2


def test_purge_asks_first(line: CommandLine) -> None:
    refused = line.type("queue", "purge", "mail", answer="n\n")

    assert refused.exit_code == 1
    assert "Throw away 4 waiting messages of queue mail?" in refused.stderr
    assert line.queue("mail").counts().waiting == 4


def test_purge_with_yes_says_how_many(line: CommandLine) -> None:
    assert line.type("queue", "purge", "mail", "--yes").output == "4 messages of queue mail thrown away\n"
    assert line.queue("mail").counts().waiting == 0


def test_an_unknown_queue_suggests_close_names(line: CommandLine) -> None:
    result = line.type("queue", "pause", "mial")

    assert (result.exit_code, result.output) == (
        1,
        "mqworker: there is no queue 'mial'; did you mean mail? [unknown-queue]\n",
    )


def test_no_server_is_one_sentence_and_exit_code_69(line: CommandLine) -> None:
    result = line.type("queue", "-r", "unix:///nowhere/none.sock", "list")

    assert result.exit_code == 69
    assert result.output.startswith("mqworker: Redis at ")
    assert len(result.output.splitlines()) == 1
