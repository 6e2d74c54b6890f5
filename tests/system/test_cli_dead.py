"""`mqworker dead` against a real server."""

import pytest

from mqworker.model.envelope import encode_call
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Bury, Failure
from tests.support.command_line import CommandLine
from tests.support.messages import a_message


def bury(line: CommandLine, queue: str, count: int) -> list[MessageId]:
    work = line.queue(queue)
    body = encode_call(["ann"], {"token": "t0psecret"})
    work.enqueue(*[a_message(body, task=TaskName("shop.send")) for _ in range(count)])
    claimed = work.claim(count)
    failure = Failure("SMTPError", "no\x1b[2J", "Traceback:\n  token=t0psecret\nSMTPError: no")
    work.settle(*[Bury(delivery, "retries", failure) for delivery in claimed])
    return [delivery.id for delivery in claimed]


def test_list_shows_the_newest_of_all_queues(line: CommandLine) -> None:
    ids = [*bury(line, "mail", 3), *bury(line, "media", 1)]

    result = line.type("dead", "list", "--limit", "2")

    assert result.exit_code == 0
    rows = result.output.splitlines()
    assert [row.split()[:3] for row in rows[1:4]] == [
        [ids[2], "mail", "shop.send"],
        [ids[1], "mail", "shop.send"],
        [ids[3], "media", "shop.send"],
    ]
    assert rows[4] == "… 1 more; --limit shows more of them"
    assert max(map(len, rows)) <= 80


def test_list_of_nothing_says_so(line: CommandLine) -> None:
    assert line.type("dead", "list").output == "no dead letters\n"


def test_show_tells_the_error_and_the_traceback_without_secrets(line: CommandLine) -> None:
    dead = bury(line, "mail", 1)[0]

    brief = line.type("dead", "show", dead).output
    full = line.type("dead", "show", dead, "--args").output

    assert "SMTPError: no\\x1b[2J" in brief
    assert "    | SMTPError: no" in brief
    assert "'ann'" in full
    assert "t0psecret" not in brief + full


def test_retry_of_some_puts_those_back(line: CommandLine) -> None:
    first, second, third = bury(line, "mail", 3)

    result = line.type("dead", "retry", first, third)

    assert result.exit_code == 0
    assert [letter.id for letter in line.queue("mail").dead_letters()] == [second]


def test_retry_of_all_leaves_what_cannot_be_read(line: CommandLine) -> None:
    bury(line, "mail", 3)
    with line.server.client() as client:
        client.zadd("mqw:{mail}:dead", {"odd": 1})
        client.hset("mqw:{mail}:letters", "odd", "no letter")

    result = line.type("dead", "retry", "--all", "--queue", "mail")

    assert result.output == "3 dead letters of queue mail back in line\n"
    assert line.queue("mail").counts().ready == 3


@pytest.mark.parametrize("words", [[], ["--all"], ["--all", "x", "--queue", "mail"]])
def test_retry_without_saying_which_is_a_usage_error(line: CommandLine, words: list[str]) -> None:
    assert line.type("dead", "retry", *words).exit_code == 2


def test_one_that_is_not_dead_says_where_to_look(line: CommandLine) -> None:
    result = line.type("dead", "retry", "nosuch")

    assert result.exit_code == 1
    assert "no dead letter nosuch in any queue; `mqworker job explain nosuch`" in result.output


def test_purge_asks_and_says_how_many(line: CommandLine) -> None:
    bury(line, "mail", 2)

    refused = line.type("dead", "purge", "--queue", "mail", answer="n\n")
    done = line.type("dead", "purge", "--queue", "mail", "--yes")

    assert refused.exit_code == 1
    assert done.output == "2 dead letters of queue mail thrown away\n"
    assert line.queue("mail").counts().dead == 0
