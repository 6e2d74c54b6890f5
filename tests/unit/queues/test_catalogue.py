"""Queue models as values, and what tasks may want of them: wrong wishes are refused in one sentence."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest

from mqworker import App, Gq, Retry, Rsmq, chain
from mqworker.errors import ConfigurationError, InvalidArgument, NotSupported
from mqworker.queues import catalogue
from mqworker.queues.catalogue import Model, as_plain, from_plain

SQL = "sqlite:///x.db"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database file is made where a queue is opened."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "model",
    [Rsmq(), Rsmq(vt=5, maxsize=-1, namespace="{ns}", realtime=True), Gq(), Gq("at_most_once", SQL, 0.5, 3)],
)
def test_a_model_survives_the_mail(model: Model) -> None:
    assert from_plain(msgpack.unpackb(msgpack.packb(as_plain(model)))) == model


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        (Rsmq, {"vt": 0}, "vt"),
        (Rsmq, {"vt": 1.5}, "vt"),
        (Rsmq, {"maxsize": 5}, "maxsize"),
        (Rsmq, {"namespace": "a b"}, "ns"),
        (Rsmq, {"poll": 0}, "poll"),
        (Rsmq, {"realtime": "yes"}, "realtime"),
        (Gq, {"guarantee": "exactly_once"}, "guarantee"),
        (Gq, {"url": "nowhere"}, "url"),
        (Gq, {"heartbeat": -1}, "heartbeat"),
        (Gq, {"missed_beats": -1}, "missed_beats"),
        (Gq, {"work_conserving": 1}, "work_conserving"),
    ],
)
def test_a_wrong_option_is_refused_by_name(kind: Any, options: dict[str, object], named: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgument, match=named):
        kind(**options)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "find_spec", lambda _: None)

    with pytest.raises(ConfigurationError, match=r"pip install 'mqworker\[sql\]'"):
        Gq(url=SQL)


def test_a_password_in_the_url_is_not_shown() -> None:
    assert "secret" not in repr(Gq(url="postgresql+psycopg://ann:secret@db/x"))


@pytest.mark.parametrize(
    ("name", "model"), [("QUEUES", Rsmq()), ("a.b", Rsmq()), ("Orders", Gq(url=SQL)), ("a\nb", Gq())]
)
def test_a_name_that_the_model_does_not_take_is_refused(name: str, model: Model) -> None:
    app = App()

    with pytest.raises(InvalidArgument, match=r"qname|queue"):
        app.queue(name, model=model)

    assert app.queues == {}


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="model is 'rsmq'"):
        App().queue("q", model="rsmq")  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [Rsmq(), Gq(), Gq(url=SQL)])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("priority", 3),
        ("rate", "5/s"),
        ("unique", True),
        ("delivery", "at_most_once"),
        ("result_ttl", 60),
        ("max_crashes", 5),
        ("max_losses", 5),
    ],
)
def test_an_option_that_the_model_cannot_honour_is_refused_whoever_comes_first(
    model: Model, option: str, value: object
) -> None:
    queue_first, task_first = App(), App()
    queue_first.queue("q", model=model)

    with pytest.raises(NotSupported, match=f"{option} has no place in queue q, which is {model.title}"):
        queue_first.task(queue="q", name="t", **{option: value})(print_nothing)  # type: ignore[call-overload]

    task_first.task(queue="q", name="t", **{option: value})(print_nothing)  # type: ignore[call-overload]
    with pytest.raises(NotSupported, match=option):
        task_first.queue("q", model=model)


@pytest.mark.parametrize(
    ("model", "wish"),
    [
        (Rsmq(), {"priority": 1}),
        (Rsmq(), {"deadline": 5}),
        (Rsmq(), {"id": "x"}),
        (Rsmq(), {"connection": object()}),
        (Gq(), {"delay": 5}),
        (Gq(), {"unique": True}),
        (Gq(), {"connection": object()}),
        (Gq(url=SQL), {"delay": 5}),
    ],
)
def test_a_wish_that_the_model_cannot_fulfil_is_refused(model: Model, wish: dict[str, Any]) -> None:
    app = App(redis_url="redis://127.0.0.1:1")
    app.queue("q", model=model)
    task = app.task(queue="q", name="t")(print_nothing)

    # Closed in the end: a queue on SQL is opened before the wish is refused.
    with closing(app), pytest.raises(NotSupported, match=next(iter(wish))):
        task.using(**wish).enqueue()


def test_a_connection_has_no_place_in_a_work_queue() -> None:
    task = App().task(queue="q", name="t")(print_nothing)

    with pytest.raises(NotSupported, match=r"connection has no place in queue q, which is a work queue"):
        task.using(connection=object())


def test_what_comes_by_itself_or_in_a_workflow_needs_a_work_queue() -> None:
    app = App(redis_url="redis://127.0.0.1:1")
    app.queue("q", model=Rsmq())
    task = app.task(queue="q", name="t", retry=Retry(max=1))(print_nothing)

    with pytest.raises(NotSupported, match="schedule of t needs a work queue; queue q is RSMQ"):
        app.schedule(every=60)(task)
    with pytest.raises(NotSupported, match="needs a work queue"):
        chain(task.si(), task.si()).enqueue()
    with pytest.raises(NotSupported, match="needs a work queue"):
        app.work_queue("q")
    with pytest.raises(NotSupported, match="needs a work queue"), app.producer() as producer:
        producer.enqueue(task)
    with pytest.raises(NotSupported, match="limit"):
        app.queue("other", model=Rsmq(), limit=5)


def test_a_schedule_that_was_there_first_is_found_too() -> None:
    app = App()
    app.schedule(every=60)(app.task(queue="q", name="t")(print_nothing))

    with pytest.raises(NotSupported, match="t has a schedule or a subscription"):
        app.queue("q", model=Gq())


def print_nothing() -> None:
    """A task."""
