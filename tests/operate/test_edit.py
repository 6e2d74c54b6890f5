"""A dead letter is edited without harm to what was not shown; what ended well says why it cannot rerun."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from mqworker import App
from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.envelope import CallOptions, decode_call, encode_call
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Bury, Failure
from mqworker.operate.audit import read_audit
from mqworker.operate.edit import edit_letter, editable, rerun
from mqworker.operate.system import System
from mqworker.queues.work.trace import read_letter
from mqworker.redaction import MASK
from mqworker.tasks.published_tasks import publish_tasks
from tests.support.messages import a_message

AT = datetime(2026, 1, 2, tzinfo=UTC)
OPTIONS = CallOptions({"trace": "t1"}, 5_000, tags=("import",))


def a_letter(system: System, *args: object, **kwargs: object) -> MessageId:
    queue = system.open_queue("mail")
    message = a_message(encode_call(args, kwargs, OPTIONS), task=TaskName("shop.send"))  # type: ignore[arg-type]
    queue.enqueue(message)
    (delivery,) = queue.claim()
    queue.settle(Bury(delivery, "retries", Failure("ValueError", "no")))
    return message.id


def stored(system: System, message: MessageId) -> tuple[list[object], dict[str, object]]:
    letter = read_letter(system.open_queue("mail"), message)
    assert letter is not None
    assert letter.message is not None
    call = decode_call(letter.message.body)
    assert (call.headers, call.timeout_ms, call.tags) == ({"trace": "t1"}, 5_000, ("import",))
    return call.args, call.kwargs


def test_arguments_are_replaced_and_everything_else_stays(system: System) -> None:
    message = a_letter(system, 1, tenant="acme")

    outcome = edit_letter(system, "mail", message, "ann", args="[2]", kwargs='{"tenant": "other"}')

    assert stored(system, message) == ([2], {"tenant": "other"})
    assert "still dead" in outcome
    assert read_audit(system)[0].deed.action == "edit"
    assert system.open_queue("mail").revive(message) == [message]
    (delivery,) = system.open_queue("mail").claim()
    assert decode_call(delivery.body).kwargs == {"tenant": "other"}


def test_what_comes_back_as_it_was_shown_stays_as_it_is_stored(system: System) -> None:
    card = {"number": 7, "password": "hunter2"}
    message = a_letter(system, AT, tenant="acme", password="hunter2", card=card, when=AT)  # noqa: S106 - made up
    shown = editable(system, "mail", message)

    assert shown["kwargs"]["password"] == shown["kwargs"]["card"]["password"] == MASK
    shown["kwargs"]["tenant"] = "other"
    shown["kwargs"]["card"]["number"] = 8
    edit_letter(
        system, "mail", message, "ann", args=json.dumps(shown["args"]), kwargs=json.dumps(shown["kwargs"])
    )

    args, kwargs = stored(system, message)
    assert args == [AT]
    assert kwargs == {
        "tenant": "other",
        "password": "hunter2",
        "card": {"number": 8, "password": "hunter2"},
        "when": AT,
    }


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ("{", "", "args: not a JSON text"),
        ("{}", "", "args is .* accepted is JSON such as"),
        ("", "[]", "kwargs is"),
        ("", '{"a": NaN}', "kwargs"),
        ("", '{"a": 1, "a": 2}', "kwargs"),
        ("", '{"text": "%s"}' % ("x" * 300_000), "bytes; accepted are up to"),
    ],
)
def test_what_is_no_call_is_refused_and_nothing_changes(
    system: System, args: str, kwargs: str, words: str
) -> None:
    message = a_letter(system, 1, tenant="acme")

    with pytest.raises(InvalidArgument, match=words):
        edit_letter(system, "mail", message, "ann", args=args, kwargs=kwargs)

    assert stored(system, message) == ([1], {"tenant": "acme"})


def test_one_that_is_no_longer_dead_is_not_edited(system: System) -> None:
    message = a_letter(system, 1)
    system.open_queue("mail").revive(message)

    with pytest.raises(MqworkerError, match="may be gone already"):
        edit_letter(system, "mail", message, "ann", args="[2]")
    with pytest.raises(MqworkerError, match="may be gone already"):
        editable(system, "mail", message)


def test_a_dead_job_runs_again_and_one_that_ended_well_says_why_it_cannot(system: System) -> None:
    queue, dead = system.open_queue("mail"), a_letter(system, 1)
    assert rerun(system, dead, None, "ann") == f"{dead} of queue mail runs again"
    with pytest.raises(MqworkerError, match="has not ended yet"):
        rerun(system, dead, None, "ann")
    (delivery,) = queue.claim()
    queue.settle(Ack(delivery, b"\xc0"))

    with pytest.raises(MqworkerError, match="its arguments are not kept once it has ended"):
        rerun(system, dead, "mail", "ann")


def test_a_job_that_ended_well_runs_again_with_arguments_that_are_given_as_a_new_one(system: System) -> None:
    app = App("shop", settings=system.settings)
    charge = app.task(name="shop.charge", queue="mail")(lambda order: order)
    publish_tasks(app)
    done = charge.enqueue(7).id
    queue = system.open_queue("mail")
    queue.settle(*[Ack(each, b"\xc0") for each in queue.claim()])

    outcome = rerun(system, done, "mail", "ann", args="[8]")

    (delivery,) = queue.claim()
    assert outcome == f"{done} of queue mail runs again as {delivery.id}"
    assert (delivery.task, decode_call(delivery.body).args) == ("shop.charge", [8])
    assert read_audit(system)[0].deed.outcome == outcome
    with pytest.raises(InvalidArgument, match="args: "):
        rerun(system, done, "mail", "ann", args="{")
    with pytest.raises(InvalidArgument, match="order"):
        rerun(system, done, "mail", "ann", kwargs='{"wrong": 1}')
    app.close()
