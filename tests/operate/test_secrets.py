"""Secret arguments are shown by nothing: not by position, not in errors, not by an editor."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from mqworker import App, Secret
from mqworker.cli.main import mqworker
from mqworker.model.envelope import decode_call
from mqworker.operate.documents import job_document
from mqworker.operate.edit import edit_letter, editable
from mqworker.operate.held import read_held
from mqworker.operate.job_view import read_job
from mqworker.operate.system import System
from mqworker.queues.work.snapshots import read_system
from mqworker.queues.work.trace import read_letter
from mqworker.redaction import MASK
from mqworker.settings import Settings
from mqworker.tasks.published_tasks import publish_tasks
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

WORD, PIN, KEY, EXTRA = "hunter2 'quoted'/", "sesame-1234", "k3y-of-the-house", "spare-token-9"


@pytest.fixture
def app(server: RealServer, system: System) -> App:
    """With a task that tells everything it was given."""
    del system  # flushed before
    app = App("shop", settings=Settings(redis_url=server.url))

    @app.task(name="login", retry=0)
    def login(
        user: str, password: str, key: Secret[str], *tokens: str, note: Secret[str | None] = None
    ) -> None:
        raise ValueError(f"{user} {password!r} {key} {tokens} {note}")

    publish_tasks(app)
    return app


def bury(app: App) -> str:
    job = app.send("login", "ann", WORD, KEY, EXTRA, note=PIN)
    HandWorker(app).run_all()
    return str(job.id)


def assert_hidden(text: str) -> None:
    for secret in (WORD, "hunter2", PIN, KEY, EXTRA):
        assert secret not in text, text


def test_positional_arguments_are_masked_by_the_parameters_that_workers_published(
    app: App, server: RealServer, system: System
) -> None:
    message = bury(app)

    for words in (["dead", "show"], ["job", "show"]):
        for more in ([], ["--json"]):
            arguments = [*words, message, "--args", "--redis-url", server.url, *more]
            shown = CliRunner().invoke(mqworker, arguments)
            assert shown.exit_code == 0, shown.output
            assert_hidden(shown.output)
            assert "ann" in shown.output
    document = job_document(read_job(system, message, None), has_arguments=True)
    assert document["arguments"] == {"args": ["ann", MASK, MASK, MASK], "kwargs": {"note": MASK}}
    app.close()


def test_events_are_stored_without_the_values(app: App, server: RealServer) -> None:
    bury(app)

    with server.client() as client:
        events = client.xrange("mqw:{default}:events")
    assert_hidden(str(events))
    app.close()


def test_what_runs_is_shown_without_them(app: App, system: System) -> None:
    app.send("login", "ann", WORD, KEY)
    system.open_queue("default").claim()

    jobs = read_held(system.store, read_system(system.store, "mqw"))

    assert_hidden(str([job.arguments for job in jobs]))
    app.close()


def test_an_editor_that_did_not_see_them_does_not_change_them(app: App, system: System) -> None:
    message = bury(app)
    shown = editable(system, "default", message)
    assert_hidden(str(shown))
    shown["args"][0] = "bob"

    edit_letter(
        system, "default", message, "ann", args=json.dumps(shown["args"]), kwargs=json.dumps(shown["kwargs"])
    )

    letter = read_letter(system.open_queue("default"), message)  # type: ignore[arg-type]
    assert letter is not None
    assert letter.message is not None
    call = decode_call(letter.message.body)
    assert (call.args, call.kwargs) == (["bob", WORD, KEY, EXTRA], {"note": PIN})
    assert_hidden(letter.error_message + letter.traceback)
    assert letter.error_message == "ann \"***\" *** ('***',) ***"
    app.close()


def test_the_default_of_a_secret_parameter_is_not_published(server: RealServer, system: System) -> None:
    del system
    app = App("shop", settings=Settings(redis_url=server.url))
    app.task(name="t")(lambda password="swordfish": password)

    publish_tasks(app)

    with server.client() as client:
        assert b"swordfish" not in client.hget("mqw:tasks", "shop")
    app.close()
