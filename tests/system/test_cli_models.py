"""The commands about queues, jobs and dead letters, asked about queues of other models."""

from __future__ import annotations

import pytest

from mqworker.model.instant import After
from mqworker.model.settlement import Bury, Failure, RetryAt
from mqworker.queues.celery.queue import CeleryOptions, CeleryTaskQueue
from mqworker.queues.rsmq.queue import RsmqQueue
from tests.support.command_line import CommandLine
from tests.support.messages import a_message, some_messages

MODELS = {
    "legacy": {
        "model": "RSMQ",
        "namespace": "rsmq",
        "held": 1,
        "counts": {"visible": 2, "hidden": 1, "dead": 1},
        "trouble": "",
    },
    "orders": {"model": "gq on SQL", "held": 0, "counts": {}, "trouble": "the database did not answer"},
}


@pytest.fixture
def line(line: CommandLine) -> CommandLine:
    line.queue("mail").enqueue(*some_messages(3))
    line.add_node("mail", models=MODELS)
    return line


@pytest.fixture
def legacy(line: CommandLine) -> RsmqQueue:
    """With one dead letter."""
    queue = RsmqQueue("legacy", line.store)
    queue.enqueue(a_message())
    (delivery,) = queue.claim()
    queue.settle(Bury(delivery, "retries_exhausted", Failure("ValueError", "no such order", "Traceback …")))
    return queue


def test_list_shows_them_below_the_work_queues(line: CommandLine) -> None:
    result = line.type("queue", "list")

    assert result.exit_code == 0
    assert result.output.splitlines()[-2:] == [
        "legacy  RSMQ: 2 visible, 1 hidden, 1 dead; consumed by web-1, which holds 1",
        "orders  gq on SQL; consumed by web-1, which holds 0, in trouble: the database did not answer",
    ]


def test_show_tells_what_the_model_counts(line: CommandLine) -> None:
    result = line.type("queue", "show", "legacy")

    assert result.exit_code == 0
    assert [text.split(maxsplit=1) for text in result.output.splitlines()] == [
        ["queue", "legacy"],
        ["model", "RSMQ"],
        ["messages", "2 visible, 1 hidden, 1 dead"],
        ["consumed", "by   web-1, which holds 1"],
    ]


def test_show_says_when_nothing_was_counted_yet(line: CommandLine) -> None:
    assert "not counted yet" in line.type("queue", "show", "orders").output


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "pause", "NAME"],
        ["queue", "resume", "NAME"],
        ["queue", "limit", "NAME", "5"],
        ["queue", "purge", "NAME", "--yes"],
        ["dead", "purge", "--queue", "NAME", "--yes"],
        ["job", "show", "a1", "--queue", "NAME"],
        ["job", "explain", "a1", "--queue", "NAME"],
        ["job", "cancel", "a1", "--queue", "NAME"],
        ["job", "retry", "a1", "--queue", "NAME"],
    ],
)
@pytest.mark.parametrize(("name", "title"), [("legacy", "RSMQ"), ("orders", "gq on SQL")])
def test_what_the_model_has_no_place_for_is_refused_in_a_sentence(
    line: CommandLine, words: list[str], name: str, title: str
) -> None:
    result = line.type(*(name if word == "NAME" else word for word in words))

    assert result.exit_code == 1
    assert f"queue {name} is {title}, which has no such thing" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["list"], ["show", "a1"], ["retry", "--all"]])
def test_gq_has_no_dead_letters(line: CommandLine, words: list[str]) -> None:
    result = line.type("dead", *words, "--queue", "orders")

    assert result.exit_code == 1
    assert "queue orders is gq on SQL" in result.stderr


def test_dead_letters_of_rsmq_are_listed_and_shown(line: CommandLine, legacy: RsmqQueue) -> None:
    (burial,) = legacy.burials()

    listed, everywhere, shown = (
        line.type("dead", "list", "--queue", "legacy"),
        line.type("dead", "list"),
        line.type("dead", "show", burial.id),
    )

    for result in (listed, everywhere):
        assert result.exit_code == 0
        assert result.output.splitlines()[1].split()[:2] == [burial.id, "legacy"]
    assert "ValueError: no such order" in shown.output
    assert "    | Traceback" in shown.output


@pytest.mark.parametrize("is_all", [True, False])
def test_dead_letters_of_rsmq_are_put_back_in_line(
    line: CommandLine,
    legacy: RsmqQueue,
    is_all: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    (burial,) = legacy.burials()

    result = line.type("dead", "retry", "--queue", "legacy", "--all" if is_all else burial.id)

    assert result.exit_code == 0
    assert "back in line" in result.output
    assert legacy.burials() == []
    assert len(legacy.claim(5)) == 1


@pytest.fixture
def old(line: CommandLine) -> CeleryTaskQueue:
    """A queue of Celery with one dead letter; its lists have other steps than usual."""
    facts = {
        "model": "Celery",
        "prefix": "app:",
        "steps": "0 5",
        "held": 0,
        "counts": {"waiting": 1, "dead": 1},
    }
    line.add_node("mail", models={"celery": facts})
    queue = CeleryTaskQueue("celery", line.store, CeleryOptions(prefix="app:", steps=(0, 5)))
    queue.enqueue(a_message())
    (delivery,) = queue.claim()
    queue.settle(Bury(delivery, "refused", Failure("NotSupported", "the body is a pickle")))
    return queue


def test_dead_letters_of_celery_are_listed_shown_and_put_back(
    line: CommandLine, old: CeleryTaskQueue
) -> None:
    (burial,) = old.burials()

    listed, shown = line.type("dead", "list"), line.type("dead", "show", burial.id)
    retried = line.type("dead", "retry", "--queue", "celery", "--all")

    assert burial.id in listed.output
    assert "NotSupported: the body is a pickle" in shown.output
    assert (retried.exit_code, old.burials(), len(old.claim(5))) == (0, [], 1)


def test_what_waits_goes_back_to_celery(line: CommandLine, old: CeleryTaskQueue) -> None:
    old.enqueue(a_message())
    old.settle(RetryAt(old.claim()[0], After(60_000)))

    result = line.type("migrate", "back", "celery")

    assert result.output == "1 message of queue celery back in Celery's lists\n"
    assert old.counts() == {"waiting": 1, "later": 0, "held": 0, "dead": 1}


def test_only_queues_of_celery_go_back(line: CommandLine, old: CeleryTaskQueue) -> None:  # noqa: ARG001 - as below
    result = line.type("migrate", "back", "legacy")

    assert result.exit_code == 2
    assert "accepted are queues of Celery that a node has consumed of late: celery" in result.stderr


def test_what_celerys_queue_has_no_place_for_is_refused(line: CommandLine, old: CeleryTaskQueue) -> None:  # noqa: ARG001 - a node that has it
    result = line.type("queue", "pause", "celery")

    assert result.exit_code == 1
    assert "queue celery is Celery, which has no such thing" in result.stderr
    assert "1 waiting, 1 dead" in line.type("queue", "show", "celery").output


def test_a_queue_that_no_node_consumes_is_unknown_and_a_close_name_is_told(line: CommandLine) -> None:
    result = line.type("queue", "show", "legasy")

    assert result.exit_code == 1
    assert "did you mean legacy?" in result.stderr
