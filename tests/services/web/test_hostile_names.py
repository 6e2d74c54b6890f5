"""Names that somebody else chose, planted wherever a page shows one: text on every page, and never more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from mqworker import App, Fair, Rate, chain, group
from mqworker.model.clock import SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId, TaskName
from mqworker.model.value_codec import pack
from mqworker.operate.strikes import add_strike
from mqworker.operate.system import System
from mqworker.queues.work.accidents import Accident, LostRun, note_call
from mqworker.queues.work.keys import schedules_key
from mqworker.tasks.context import Context, current
from mqworker.tasks.running.job_log import JobLogs
from mqworker.tasks.schedules.schedule import publish_schedules
from tests.services.web.conftest import bury
from tests.services.web.test_pages import HOSTILE, PAGES
from tests.support.messages import a_message
from tests.support.real_server import RealServer


@pytest.fixture
def app(system: System) -> Iterator[App]:
    made = App("shop", settings=system.settings)
    yield made
    made.close()


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_wherever_it_is_planted_a_hostile_name_is_only_text(
    page: TestClient, system: System, app: App, web_server: RealServer, name: str
) -> None:
    (dead,) = bury(system, message=name, note=name)
    flow = _plant_work(app, name)
    _plant_schedule(app, web_server, name)
    _plant_rest(system, dead, name)
    paths = [
        *PAGES,
        "/bulk",
        "/stats",
        "/strikes",
        "/bulk?action=retry&q=queue:mail",
        f"/job?id={dead}",
        f"/edit?id={dead}&queue=mail",
        f"/workflow?id={flow}",
        f"/schedule?name={quote(f'shop/{name}')}",
        *(f"/{path}={quote(name)}" for path in ("schedule?name", "workflow?id", "stats?queue", "dead?queue")),
    ]

    for path in paths:
        answer = page.get(path)

        assert answer.status_code < 500, (path, answer.text)
        for sign in ("<script>alert", "<img src=x", ">49<", "' onmouseover='x"):
            assert sign not in answer.text, path
        seen = re.sub(r"<textarea.*?</textarea>|<[^>]*>", "", answer.text, flags=re.DOTALL)
        assert not re.search(r"[\u202e\x1b]|x{600}", seen), path


def test_what_was_planted_is_really_shown(
    page: TestClient, system: System, app: App, web_server: RealServer
) -> None:
    name = "a<b>c"
    (dead,) = bury(system, message=name, note=name)
    flow = _plant_work(app, name)
    _plant_schedule(app, web_server, name)
    _plant_rest(system, dead, name)

    # Tenants are not: what is not a plain name is stored as its hash.
    for path in ("/accidents", "/strikes", f"/job?id={dead}"):
        assert "a&lt;b&gt;c" in page.get(path).text, path
    assert page.get(f"/workflow?id={flow}").status_code == 200
    # Nor are schedules: what has a name that no app may give one is passed over, and told of.
    assert "cannot be read" in page.get("/schedules").text
    assert page.get(f"/schedule?name={quote(f'shop/{name}')}").status_code == 404


def _plant_work(app: App, name: str) -> MessageId:
    """A tenant that waits for its limit and its turn, and a workflow on its arguments."""
    report = app.task(
        name="shop.report", queue="fair", rate=Rate("1/m", key="{tenant}"), fair_by=Fair("{tenant}")
    )(lambda tenant: tenant)
    report.enqueue_many([(name[:200],)] * 3)
    app.work_queue("fair").store.run(app.work_queue("fair").calls.admit(100))
    return chain(group(report.s(name) for _ in range(3)), report.si(name)).enqueue().id


def _plant_schedule(app: App, server: RealServer, name: str) -> None:
    """Published as usual, then renamed by another program: our own names are checked."""
    app.schedule("* * * * *", name="planted")(app.task(name="shop.tick")(lambda: None))
    publish_schedules(app)
    with server.client() as client:
        for field, value in client.hgetall(schedules_key("mqw")).items():
            renamed = field.replace(b"planted", name.encode())
            client.hset(schedules_key("mqw"), renamed, value)
            client.zadd(f"mqw:{{{schedules_key('mqw')}}}:due", {renamed: 0})


def _plant_rest(system: System, dead: MessageId, name: str) -> None:
    run = LostRun(name, name, name, 1, name, name)
    accident = Accident(name, name, f"{name}: {name}", 1, (run,))
    system.store.run(note_call("mqw", "1", accident))
    add_strike(
        system, name, task="shop.*", where=[f"args.tenant={name[:200]}"], until="2h", reason=name[:200]
    )
    body = pack([[], {}, {"tags": ["kept", name]}])  # by another producer: our own tags are checked
    system.open_queue("mail").enqueue(a_message(body, task=TaskName("shop.send")))
    logs = JobLogs(system.open_queue, SystemClock(), 50)
    token = current.set(Context(Delivery(1, dead, TaskName("shop.send"), b"", enqueued_at_ms=0), "mail"))
    logs.note(name, name, {"tenant": name})
    current.reset(token)
    logs.send()
