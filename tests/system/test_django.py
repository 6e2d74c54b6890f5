"""Django's tasks on mqworker: every documented behaviour of a backend, with a real node and a real server.

One project (django_project/) for the whole module: Django is set up once in a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("django")

from mqworker.model.keyring import new_key
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_postgres import RealPostgres, postgres_folder
from tests.support.real_server import RealServer

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "django_project"
APP = "mqworker.contrib.django.worker:app"
DEADLINE_S = 60.0


def environment(server: RealServer, database: Path) -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "djsite",
        "DJ_REDIS_URL": server.url,
        "DJ_DATABASE": str(database),
        "PYTHONPATH": f"{PROJECT}:{ROOT}:{ROOT / 'services'}",
    }


def manage(settings: dict[str, str], *words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROJECT / "manage.py"), *words],
        env=os.environ | settings,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def run_by_shell(settings: dict[str, str], call: str, directory: Path) -> str:
    """What a task returns that another process of the project enqueues."""
    lines = (
        "import time",
        "from djshop import tasks",
        f"result = tasks.{call}",
        "while not result.is_finished: time.sleep(0.02); result.refresh()",
        "print(result.errors or result.return_value)",
    )
    ran = manage(settings, "shell", "-c", "\n".join(lines), directory=directory)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server, a database with its tables, and Django set up in this process."""
    directory = tmp_path_factory.mktemp("django")
    with RealServer() as server:
        settings = environment(server, directory / "db.sqlite3")
        made = manage(settings, "migrate", "--run-syncdb", "-v", "0", directory=directory)
        assert made.returncode == 0, made.stderr
        before = dict(os.environ)
        os.environ.update(settings)
        sys.path.insert(0, str(PROJECT))
        import django

        django.setup()
        yield settings
        sys.path.remove(str(PROJECT))
        os.environ.clear()
        os.environ.update(before)
        from django.db import connections

        from mqworker.contrib.django.project import project_app

        connections.close_all()
        project_app().close()


@pytest.fixture(scope="module")
def node(settings: dict[str, str]) -> Iterator[RealNode]:
    with RealNode(settings["DJ_REDIS_URL"], APP, settings=settings | {"MQWORKER_WORKERS": "2"}) as running:
        yield running


@pytest.fixture
def tasks(settings: dict[str, str]) -> Any:
    import djshop.tasks

    return djshop.tasks


@pytest.fixture
def orders(settings: dict[str, str]) -> Any:
    from djshop.models import Order

    return Order.objects


def ended(result: Any) -> Any:
    wait_until(lambda: (result.refresh(), result.is_finished)[1], "it has ended", DEADLINE_S)
    return result


# What runs


def test_a_task_runs_and_its_result_tells_all(node: RealNode, tasks: Any) -> None:
    before = datetime.now().astimezone()
    result = tasks.add.enqueue(2, right=3)

    assert (str(result.status), result.is_finished, result.attempts) == ("READY", False, 0)
    assert result.enqueued_at is not None
    assert len(result.id) < 64
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value

    ended(result)

    assert (str(result.status), result.return_value) == ("SUCCESSFUL", 5)
    assert (result.args, result.kwargs, result.backend, result.errors) == ([2], {"right": 3}, "default", [])
    assert len(result.worker_ids) == result.attempts == 1
    assert result.started_at == result.last_attempted_at
    after = datetime.now().astimezone()
    slack = timedelta(milliseconds=2)
    assert before - slack <= result.enqueued_at <= result.started_at <= result.finished_at <= after


def test_a_result_is_found_by_its_id(node: RealNode, tasks: Any) -> None:
    from mqworker.contrib.django.tasks_api import TaskResultDoesNotExist, task_backends

    result = ended(tasks.mail.using(priority=-3).enqueue("a@b.c"))

    found = tasks.mail.get_result(result.id)
    assert found.return_value == "to a@b.c"
    assert (found.task.queue_name, found.task.priority, found.task.func) == ("mail", -3, tasks.mail.func)
    assert task_backends["default"].get_result(result.id).id == result.id
    with pytest.raises(Exception, match="does not match"):
        tasks.add.get_result(result.id)
    for unknown in ("never-was", "", "x" * 500, "ä\n", result.id + "0"):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.mail.get_result(unknown)
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["tried"].get_result(result.id)


def test_the_async_verbs(node: RealNode, tasks: Any) -> None:
    async def scene() -> None:
        result = await tasks.aadd.aenqueue(4)
        while not result.is_finished:
            await result.arefresh()
            await asyncio.sleep(0.01)
        assert result.return_value == 5
        assert (await tasks.aadd.aget_result(result.id)).return_value == 5
        from mqworker.contrib.django.tasks_api import TaskResultDoesNotExist

        with pytest.raises(TaskResultDoesNotExist):
            await tasks.aadd.aget_result("never")

    asyncio.run(scene())


@pytest.mark.parametrize("name", ["fail", "afail"])
def test_a_task_that_raises_has_failed_at_its_first_attempt(node: RealNode, tasks: Any, name: str) -> None:
    result = ended(getattr(tasks, name).enqueue("no tea"))

    assert str(result.status) == "FAILED"
    assert result.attempts == len(result.errors) == 1
    assert result.errors[0].exception_class is ValueError
    assert "no tea" in result.errors[0].traceback
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_what_is_no_json_is_refused_before_and_fails_after(node: RealNode, tasks: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue(object())
    assert tasks.add.enqueue((1, 2), right=[b"x"]).args == [[1, 2]]

    result = ended(tasks.nothing_of_json.enqueue())

    assert (str(result.status), result.errors[0].exception_class) == ("FAILED", TypeError)


def test_a_call_that_does_not_fit_fails(node: RealNode, tasks: Any) -> None:
    assert ended(tasks.add.enqueue()).errors[0].exception_class is TypeError


def test_the_context(node: RealNode, tasks: Any) -> None:
    result = ended(tasks.look.enqueue("tea"))

    assert result.return_value == ["tea", 1, result.id, "RUNNING", "RUNNING", ["tea"], 1]


def test_attempts_and_errors_of_a_backend_that_retries(node: RealNode, tasks: Any) -> None:
    result = ended(tasks.third_time.enqueue())

    assert (result.return_value, result.attempts, len(result.worker_ids)) == (3, 3, 3)
    assert [each.exception_class for each in result.errors] == [LookupError, LookupError]
    assert result.started_at < result.last_attempted_at <= result.finished_at


def test_a_worker_that_dies_is_an_attempt_more(node: RealNode, tasks: Any) -> None:
    result = ended(tasks.die_once.enqueue())

    assert (result.return_value, result.attempts, result.errors) == (2, 2, [])


def test_what_always_kills_its_worker_has_failed(node: RealNode, tasks: Any) -> None:
    result = ended(tasks.die.enqueue())

    assert str(result.status) == "FAILED"
    wait_until(lambda: (result.refresh(), result.errors)[1], "the reason is noted", DEADLINE_S)
    assert result.errors[0].exception_class_path == "mqworker.errors.TaskFailed"


def test_a_task_that_runs_says_so(node: RealNode, tasks: Any, tmp_path: Path) -> None:
    result = tasks.wait_for.enqueue(str(tmp_path / "go"))

    wait_until(lambda: (result.refresh(), str(result.status))[1] == "RUNNING", "it runs", DEADLINE_S)
    assert result.started_at is not None
    assert (result.finished_at, result.is_finished, result.attempts) == (None, False, 1)
    (tmp_path / "go").touch()
    assert ended(result).return_value is None


def test_a_cancelled_task_has_failed_and_says_why(node: RealNode, tasks: Any) -> None:
    from django.utils import timezone

    from mqworker.contrib.django.project import project_app

    result = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    assert project_app().job(result.id).cancel()

    assert str(ended(result).status) == "FAILED"
    assert result.errors[0].exception_class_path == "mqworker.errors.TaskCancelled"


def test_run_after(node: RealNode, tasks: Any) -> None:
    from django.utils import timezone

    due = timezone.now() + timedelta(seconds=1)
    result = tasks.add.using(run_after=due).enqueue(1)
    assert str(tasks.add.get_result(result.id).status) == "READY"

    ended(result)

    assert result.started_at >= due - timedelta(milliseconds=50)
    found = tasks.add.get_result(result.id).task.run_after
    assert abs(found - due) < timedelta(milliseconds=1)


def test_signals(node: RealNode, tasks: Any, settings: dict[str, str]) -> None:
    from mqworker.contrib.django.backend import TaskBackend
    from mqworker.contrib.django.tasks_api import task_enqueued

    told: list[Any] = []

    def hear(sender: Any, task_result: Any, **_more: Any) -> None:
        told.append((sender, task_result.id, str(task_result.status), task_result.enqueued_at is not None))
        raise RuntimeError("a receiver that raises changes nothing")

    task_enqueued.connect(hear)
    result = tasks.add.enqueue(1)
    failed = tasks.afail.enqueue("x")
    task_enqueued.disconnect(hear)

    assert told == [(TaskBackend, each.id, "READY", True) for each in (result, failed)]
    ended(result), ended(failed)
    heard = Path(f"{settings['DJ_DATABASE']}.heard").read_text().splitlines()
    for each, end in ((result, "SUCCESSFUL"), (failed, "FAILED")):
        assert [line for line in heard if each.id in line] == [
            f"started TaskBackend {each.id} RUNNING",
            f"finished TaskBackend {each.id} {end}",
        ]


# Transactions


def test_what_is_rolled_back_never_runs_and_what_commits_runs_once(
    node: RealNode, tasks: Any, orders: Any
) -> None:
    from django.db import transaction

    from mqworker.contrib.django.tasks_api import TaskResultDoesNotExist

    kept, given_up, inner = (orders.create(article=name) for name in "abc")
    with pytest.raises(KeyError), transaction.atomic():
        lost = tasks.count.enqueue(given_up.pk)
        raise KeyError
    with transaction.atomic():
        result = tasks.count.enqueue(kept.pk)
        with pytest.raises(KeyError), transaction.atomic():  # a savepoint
            lost_too = tasks.count.enqueue(inner.pk)
            raise KeyError
        assert result.enqueued_at is None
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
    assert result.enqueued_at is not None

    assert ended(result).return_value == "sqlite"
    assert ended(tasks.add.enqueue(1)).return_value == 2
    for each in (kept, given_up, inner):
        each.refresh_from_db()
    assert [kept.runs, given_up.runs, inner.runs] == [1, 0, 0]
    for each in (lost, lost_too):
        with pytest.raises(TaskResultDoesNotExist):
            each.refresh()


def test_a_backend_that_does_not_wait_for_the_commit(node: RealNode, tasks: Any) -> None:
    from django.db import transaction

    with pytest.raises(KeyError), transaction.atomic():
        result = tasks.at_once.enqueue("tea")
        raise KeyError

    assert ended(result).return_value == "tea"


def test_a_task_enqueues_another_in_its_transaction(node: RealNode, tasks: Any, orders: Any) -> None:
    order, counted = ended(tasks.order_in_order.enqueue("tea")).return_value

    ended(tasks.count.get_result(counted))
    assert orders.get(pk=order).runs == 1


def test_a_native_task_of_the_same_app(node: RealNode, tasks: Any, orders: Any) -> None:
    order = orders.create(article="oolong")

    assert tasks.native.delay(order.pk).result(timeout=DEADLINE_S) == "oolong"


# What is refused


def test_the_backend_supports_everything(tasks: Any) -> None:
    from mqworker.contrib.django.tasks_api import task_backends

    backend = task_backends["default"]
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert [each.id for each in backend.check()] == []


def test_invalid_tasks_are_refused(tasks: Any) -> None:
    from mqworker.contrib.django.tasks_api import InvalidTask, task_backends

    task_class = task_backends["default"].task_class
    for change in (
        {"priority": 101},
        {"priority": -101},
        {"priority": 1.5},
        {"queue_name": "nobody"},
        {"run_after": datetime(2030, 1, 1)},  # noqa: DTZ001 - the point of it
    ):
        with pytest.raises(InvalidTask):
            tasks.add.using(**change)
    with pytest.raises(InvalidTask, match="module level"):
        task_class(func=lambda: lambda: None)
    with pytest.raises(InvalidTask, match="context"):
        task_class(func=tasks.add.func, takes_context=True)
    with pytest.raises(InvalidTask, match="queue"):
        tasks.third_time.using(queue_name="a{b}" * 40)
    assert tasks.third_time.using(queue_name="of any name").queue_name == "of any name"


def test_priorities_keep_their_order() -> None:
    from mqworker.contrib.django.results import own_priority

    ours = [own_priority(each) for each in range(-100, 101)]
    assert ours == sorted(ours)
    assert (ours[0], own_priority(0), ours[-1]) == (0, 4, 9)


def test_checks_name_what_is_wrong(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from django.test import override_settings

    from mqworker.contrib.django.backend import TaskBackend

    def problems(params: dict[str, Any]) -> list[str]:
        return [each.id for each in TaskBackend("x", params).check()]

    assert problems({"OPTIONS": {"retries": 2}}) == ["mqworker.E001"]
    assert problems({"OPTIONS": {"retry": -1}}) == ["mqworker.E002"]
    assert problems({"QUEUES": ["x" * 200]}) == ["mqworker.E002"]
    assert problems({"OPTIONS": {"database": "elsewhere"}}) == ["mqworker.E003"]
    with override_settings(MQWORKER={"REDIS_ULR": "x"}):
        assert problems({}) == ["mqworker.E004"]
    with override_settings(MQWORKER={}):
        monkeypatch.delenv("MQWORKER_REDIS_URL", raising=False)
        assert problems({}) == ["mqworker.W001"]


# Commands, admin, databases


def test_manage_py_runs_a_node_and_asks_for_its_status(settings: dict[str, str], tmp_path: Path) -> None:
    """With a namespace of its own, so that the other node has nothing to do with it; from any directory."""
    own = settings | {"MQWORKER_NAMESPACE": "managed", "PYTHONPATH": f"{ROOT}:{ROOT / 'services'}"}
    command = [sys.executable, str(PROJECT / "manage.py"), "mqworker", "run", "--workers", "1"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | own, cwd=tmp_path, stdout=log, stderr=log)
        try:
            wait_until(
                lambda: manage(own, "mqworker", "status", directory=tmp_path).returncode == 0,
                "it is healthy",
                DEADLINE_S,
            )
            assert run_by_shell(own, "add.enqueue(40, 2)", tmp_path) == "42"
        finally:
            process.terminate()
        assert process.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()
    assert manage(own, "mqworker", "status", directory=tmp_path).returncode == 2


def test_manage_py_says_what_is_wrong(settings: dict[str, str], tmp_path: Path) -> None:
    assert "Usage: mqworker" in manage(settings, "mqworker", directory=tmp_path).stdout
    wrong = manage(settings | {"MQWORKER_WORKERS": "many"}, "mqworker", "run", directory=tmp_path)
    assert (wrong.returncode, "MQWORKER_WORKERS: got 'many'" in wrong.stderr) == (1, True)
    assert manage(settings, "check", directory=tmp_path).returncode == 0
    assert manage(settings, "makemigrations", "--check", directory=tmp_path).returncode == 0


def test_call_command_comes_back(settings: dict[str, str]) -> None:
    from django.core.management import CommandError, call_command

    call_command("mqworker", "explain", "queue-full")
    with pytest.raises(CommandError, match="ended with 2"):
        call_command("mqworker", "no-such-command")


def test_a_node_of_another_server_does_not_start(settings: dict[str, str], tmp_path: Path) -> None:
    with RealServer() as other:
        ran = subprocess.run(
            [sys.executable, "-m", "mqworker", "run", APP, "--workers", "1", "--redis-url", other.url],
            env=os.environ | settings,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert ran.returncode == 78
    assert "manage.py mqworker run" in ran.stderr


def test_the_admin_leads_to_the_console_who_may_see_it(settings: dict[str, str]) -> None:
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    client, user = Client(), User.objects.create_user("operator", password="x", is_staff=True)
    client.force_login(user)
    page = "/admin/mqworker/console/"
    assert page not in client.get("/admin/").content.decode()
    assert client.get(page).status_code == 403

    user.user_permissions.add(Permission.objects.get(codename="view_console"))

    assert page in client.get("/admin/").content.decode()
    answer = client.get(page)
    assert (answer.status_code, answer.headers["Location"]) == (302, "https://ops.example.org/mqworker/")
    assert client.get(f"{page}add/").status_code == 403


@pytest.mark.skipif(postgres_folder() is None, reason="PostgreSQL is not installed")
@pytest.mark.parametrize("task", ["process_id", "aprocess_id"])
def test_a_connection_that_was_cut_between_two_tasks(
    settings: dict[str, str], tmp_path: Path, task: str
) -> None:
    """CONN_MAX_AGE is None there: Django would go on using it."""
    with RealPostgres() as postgres:
        url = postgres.new_database()
        name, host, port = re.fullmatch(r".*@/(\w+)\?host=(.+)&port=(\d+)", url).groups()  # type: ignore[union-attr]
        own = settings | {"DJ_POSTGRES": f"{host},{port},{name}", "MQWORKER_NAMESPACE": f"pg-{task}"}
        with RealNode(own["DJ_REDIS_URL"], APP, settings=own | {"MQWORKER_WORKERS": "1"}):
            first = json.loads(run_by_shell(own, f"{task}.enqueue()", tmp_path))
            again = json.loads(run_by_shell(own, f"{task}.enqueue()", tmp_path))
            assert again == first, "the connection is kept"

            postgres.execute(f"SELECT pg_terminate_backend({first[0]})")

            after = json.loads(run_by_shell(own, f"{task}.enqueue()", tmp_path))
            assert (after[0] != first[0], after[1]) == (True, first[1])


def test_records_are_sealed_where_payloads_are(settings: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    own = settings | {"MQWORKER_NAMESPACE": "sealed", "MQWORKER_KEYS": new_key("k1", "encrypt")}
    with RealNode(own["DJ_REDIS_URL"], APP, settings=own | {"MQWORKER_WORKERS": "1"}):
        assert run_by_shell(own, "mail.enqueue('confidential')", tmp_path) == "to confidential"
        assert "confidential" in run_by_shell(own, "fail.enqueue('confidential')", tmp_path)

    with redis.Redis(unix_socket_path=own["DJ_REDIS_URL"].removeprefix("unix://")) as client:
        records = [client.get(key) for key in client.scan_iter("sealed:django:*")]
    assert len(records) == 2
    assert all(record and b"confidential" not in record for record in records)


# The outbox


@pytest.fixture
def outbox(settings: dict[str, str]) -> Iterator[str]:
    """The tables, as a migration makes them; the URL of the database."""
    from django.db import connection

    from mqworker.contrib.django.outbox import create_table, drop_table

    with connection.schema_editor() as editor:
        create_table(None, editor)
    yield f"sqlite:///{settings['DJ_DATABASE']}"
    with connection.schema_editor() as editor:
        drop_table(None, editor)


def test_a_call_in_a_transaction_of_django_is_moved_when_it_commits(
    settings: dict[str, str], outbox: str, orders: Any
) -> None:
    from django.db import connection, transaction

    from mqworker import App
    from mqworker.settings import load_settings
    from mqworker.tasks.outbox.rows import OutboxRows

    app = App("shop", settings=load_settings({"redis_url": settings["DJ_REDIS_URL"]}, environ={}))
    app.outbox()
    task = app.task(name="send", queue="from-django")(print)
    with transaction.atomic():
        orders.create()
        kept = task.using(session=connection).enqueue("kept")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        task.using(session=connection).enqueue("rolled back")
        raise ZeroDivisionError
    rows = OutboxRows.open(outbox)
    rows.identity()
    rows.number_new()

    found = rows.after("from-django", 0, 10, 1_000_000)

    assert [row.call.count(kept.id.encode()) for row in found] == [1]
    rows.close()
    app.close()
