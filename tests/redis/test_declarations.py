"""Declarations that contradict each other, or the queue they are about, are refused."""

from __future__ import annotations

import pytest

from mqworker import App, Gq, Rsmq
from mqworker.errors import ConfigurationError, NotSupported
from mqworker.settings import Settings
from mqworker.tasks.foreign_queues import publish_models
from tests.support.real_server import RealServer


@pytest.mark.parametrize("model", [Rsmq(), Gq()])
def test_nothing_is_pushed_into_a_queue_of_another_model(app: App, model: Rsmq | Gq) -> None:
    app.queue("orders", model=model)
    app.task(name="t", queue="orders")(lambda: None)
    assert publish_models(app) == 1
    work = app.connections.beside(app.queue("orders", model=model).name)

    with pytest.raises(NotSupported, match=f"'orders' is {model.title}"):
        work.push(b"x")

    assert work.counts().ready == 0


def test_a_queue_that_became_a_work_queue_takes_pushes_again(app: App, server: RealServer) -> None:
    app.queue("orders", model=Rsmq())
    publish_models(app)
    later = App("shop", settings=Settings(redis_url=server.url))
    later.task(name="t", queue="orders")(lambda: None)

    publish_models(later)
    later.work_queue("orders").push(b"x")

    assert later.work_queue("orders").counts().ready == 1
    later.close()


def test_a_queue_has_one_model(app: App) -> None:
    app.queue("orders", model=Rsmq())
    app.queue("orders", model=Rsmq(), weight=2)

    for model in (Gq(), Rsmq(vt=5), None):
        with pytest.raises(ConfigurationError, match="orders is declared twice"):
            app.queue("orders", model=model)


def test_max_crashes_of_a_call_into_a_queue_without_it_is_refused(app: App) -> None:
    app.queue("orders", model=Rsmq())
    task = app.task(name="t", max_crashes=2)(lambda: None)

    with pytest.raises(NotSupported, match="max_crashes has no place in queue orders"):
        task.using(queue="orders").enqueue()
