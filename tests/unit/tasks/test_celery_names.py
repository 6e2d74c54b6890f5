"""Names of Celery work, or fail with the sentence that names our way."""

from __future__ import annotations

from typing import Any

import pytest

from mqworker import App, Context
from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.tasks.celery_names import OF_APP, OF_CALL, OF_MODULE, OF_TASK, OPTIONS
from mqworker.tasks.context import local_context


@pytest.fixture
def app() -> App:
    return App("shop")


# Any: Celery's names are not in our types.
@pytest.fixture
def task(app: App) -> Any:  # noqa: ANN401
    return app.task(name="shop.add")(lambda one, other: one + other)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_celery_is_refused_with_ours(app: App, name: str) -> None:
    register: Any = app.task

    with pytest.raises(ConfigurationError, match="is a name of Celery; here it is ") as refused:
        register(name="shop.add", **{name: True})

    assert str(refused.value).startswith(f"task shop.add: {name} ")


def test_an_option_of_nobody_is_an_error_of_python(app: App) -> None:
    register: Any = app.task

    with pytest.raises(TypeError, match="colour"):
        register(colour="red")


@pytest.mark.parametrize("name", OF_APP)
def test_an_attribute_of_celerys_app_is_explained(app: App, name: str) -> None:
    with pytest.raises(AttributeError, match=f"App.{name} is a name of Celery; here it is "):
        getattr(app, name)


@pytest.mark.parametrize("name", OF_TASK)
def test_an_attribute_of_celerys_task_is_explained(task: object, name: str) -> None:
    with pytest.raises(AttributeError, match=f"Task.{name} is a name of Celery; here it is "):
        getattr(task, name)


@pytest.mark.parametrize("name", ["retry", "request", "update_state"])
def test_self_of_a_bound_task_is_explained(app: App, name: str) -> None:
    context = local_context("shop.add", app.state)

    with pytest.raises(AttributeError, match=f"Context.{name} is a name of Celery; here it is "):
        getattr(context, name)


@pytest.mark.parametrize("name", OF_CALL)
def test_a_keyword_of_celerys_call_is_refused_with_ours(task: Any, name: str) -> None:  # noqa: ANN401 - see above
    with pytest.raises(InvalidArgument, match=f"{name} is a name of Celery; here it is "):
        task.apply_async((1, 2), **{name: True})


def test_a_keyword_of_nobody_is_an_error_of_python(task: Any) -> None:  # noqa: ANN401 - see above
    with pytest.raises(TypeError, match="colour"):
        task.apply_async((1, 2), colour="red")


@pytest.mark.parametrize("name", OF_MODULE)
def test_an_import_of_a_name_of_celery_is_explained(name: str) -> None:
    with pytest.raises(ImportError, match=f"{name} is a name of Celery; here it is "):
        exec(f"from mqworker import {name}", {})  # noqa: S102 - as a user writes it


def test_what_is_nowhere_is_as_missing_as_ever(app: App, task: object) -> None:
    assert not hasattr(app, "colour")
    assert not hasattr(task, "colour")
    assert not hasattr(Context, "colour")
