"""`mqworker migrate celery` lists what a project uses, with file and line, and runs nothing of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqworker.cli.main import mqworker

APP = """\
from celery import Celery
from celery.signals import task_prerun, worker_process_init

raise SystemExit("nothing of this is run")

app = Celery("proj", broker="amqp://localhost", backend="redis://localhost/1")
app.conf.update(task_serializer="pickle", task_acks_late=True)
app.conf.worker_prefetch_multiplier = 1
app.config_from_object("celeryconfig")


@worker_process_init.connect
def connect(**kwargs): ...
"""
TASKS = """\
from celery import chord, shared_task
from .celery import app


@app.task(
    bind=True,
    rate_limit="10/m",
    acks_late=True,
    priority=3,
    base=object,
)
def pay(self, order):
    try:
        print(self.request.id)
    except OSError as error:
        raise self.retry(exc=error, countdown=60)


@shared_task(name="mails.send", colour="red")
async def send(to):
    pay.apply_async((1,), link=send.s(), serializer="pickle")
    chord([send.s(1)])(pay.s())
    requests.retry(3)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "proj"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "celery.py").write_text(APP)
    (package / "tasks.py").write_text(TASKS)
    (package / "broken.py").write_text("def (:\n")
    (tmp_path / "settings.py").write_text(
        'CELERY_TASK_ROUTES = {"proj.*": "mail"}\nCELERY_TASK_PROTOCOL = 1\n'
    )
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "other.py").write_text(TASKS)
    return tmp_path


def migrate(*words: object) -> Result:
    return CliRunner().invoke(mqworker, ["migrate", "celery", *map(str, words)])


def test_every_use_is_listed_with_file_line_and_our_way(project: Path) -> None:
    result = migrate("proj.celery:app", "--directory", project)

    assert result.exit_code == 0, result.output
    found = dict(re.findall(r"(?m)^(\S+:\d+  \w+ +[\w.]+): (.*)$", result.output))
    found = {re.sub(r"  +", " ", place): ours for place, ours in found.items()}
    assert found.keys() == {
        "proj/celery.py:6 not broker_url",
        "proj/celery.py:6 maps result_backend",
        "proj/celery.py:7 not task_serializer",
        "proj/celery.py:7 same task_acks_late",
        "proj/celery.py:8 same worker_prefetch_multiplier",
        "proj/celery.py:9 maps config_from_object",
        "proj/celery.py:13 maps worker_process_init.connect",
        "proj/tasks.py:6 maps bind",
        "proj/tasks.py:7 maps rate_limit",
        "proj/tasks.py:8 same acks_late",
        "proj/tasks.py:9 same priority",
        "proj/tasks.py:10 not base",
        "proj/tasks.py:14 maps self.request",
        "proj/tasks.py:16 maps retry",
        "proj/tasks.py:19 same name",
        "proj/tasks.py:19 not colour",
        "proj/tasks.py:21 same apply_async",
        "proj/tasks.py:21 maps link",
        "proj/tasks.py:21 not serializer",
        "proj/tasks.py:22 not chord",
        "settings.py:1 maps task_routes",
        "settings.py:2 not task_protocol",
    }
    assert found["proj/tasks.py:6 maps bind"] == "a parameter `ctx: Context` in place of `self`"
    assert "Redis" in found["proj/celery.py:6 not broker_url"]


def test_tasks_are_listed_by_the_names_that_messages_have(project: Path) -> None:
    result = migrate("proj.celery:app", "--directory", project)

    assert "proj/tasks.py:12  task proj.tasks.pay\n" in result.output
    assert "proj/tasks.py:20  task mails.send\n" in result.output
    assert "5 files, 2 tasks; " in result.output
    assert ".venv" not in result.output


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(project: Path) -> None:
    assert (
        "proj/broken.py  not read: invalid syntax"
        in migrate("proj.celery:app", "--directory", project).output
    )


def test_the_same_for_programs(project: Path) -> None:
    told = json.loads(migrate("proj.celery:app", "--directory", project, "--json").output)

    assert {each["name"] for each in told["tasks"]} == {"proj.tasks.pay", "mails.send"}
    assert {each["verdict"] for each in told["findings"]} == {"same", "maps", "not"}


@pytest.mark.parametrize(
    ("target", "sentence"),
    [("proj.nowhere:app", "has no proj/nowhere.py"), ("proj.celery:other", "has no other")],
)
def test_an_app_that_is_not_there_is_refused(project: Path, target: str, sentence: str) -> None:
    result = migrate(target, "--directory", project)

    assert result.exit_code == 2
    assert sentence in result.output
