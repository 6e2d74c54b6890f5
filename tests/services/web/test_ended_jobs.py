"""Jobs that have ended, on the console: run again with other arguments, and found in the lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from mqworker import App
from mqworker.model.envelope import decode_call
from mqworker.model.settlement import Ack, Run
from mqworker.operate.system import System
from mqworker.tasks.published_tasks import publish_tasks
from mqworker_services.web.asgi import console
from tests.services.web.conftest import TOKENS


@pytest.fixture
def done(system: System) -> Iterator[str]:
    """A job of a published task that succeeded."""
    app = App("shop", settings=system.settings)
    charge = app.task(name="shop.charge", queue="mail")(lambda order: order)
    publish_tasks(app)
    yield charge.enqueue(7).id
    app.close()


def settle(system: System) -> None:
    line = system.open_queue("mail")
    line.settle(*[Ack(each, b"\xc0", Run("worker:0", "node-1", 5, run_ms=3.0)) for each in line.claim(10)])


def test_a_job_that_ended_is_run_again_by_a_form(page: TestClient, system: System, done: str) -> None:
    settle(system)
    where = {"id": done, "queue": "mail"}

    job, form = page.get("/job", params=where), page.get("/rerun", params=where)
    wrong = page.post("/rerun", data={**where, "args": "[", "kwargs": "{}"})
    right = page.post("/rerun", data={**where, "args": "[8]", "kwargs": "{}"})

    assert f"/rerun?id={done}&amp;queue=mail" in job.text
    assert "shop.charge" in form.text
    assert (wrong.status_code, right.status_code) == (400, 303)
    (delivery,) = system.open_queue("mail").claim()
    assert decode_call(delivery.body).args == [8]
    assert f"runs again as {delivery.id}" in page.get(right.headers["location"]).text


def test_over_the_api_arguments_are_asked_for_and_checked(
    page: TestClient, system: System, done: str
) -> None:
    settle(system)

    without = page.post("/api/v1/jobs/rerun", json={"id": done})
    wrong = page.post("/api/v1/jobs/rerun", json={"id": done, "kwargs": {"wrong": 1}})
    right = page.post("/api/v1/jobs/rerun", json={"id": done, "kwargs": {"order": 9}})

    assert (without.status_code, wrong.status_code, right.status_code) == (409, 400, 200)
    assert "its arguments are not kept" in without.json()["error"]
    assert "runs again as" in right.json()["outcome"]


def test_who_only_looks_runs_nothing_again(locked: TestClient, system: System, done: str) -> None:
    settle(system)
    headers = {"authorization": f"Bearer {TOKENS['view']}"}

    asked = locked.get("/rerun", params={"id": done}, headers=headers)
    sent = locked.post("/api/v1/jobs/rerun", json={"id": done, "args": [1]}, headers=headers)

    assert (asked.status_code, sent.status_code) == (403, 403)
    assert system.open_queue("mail").counts().ready == 0


def test_what_redis_has_forgotten_is_shown_from_the_lake_and_marked_so(
    system: System, done: str, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'mqworker[lake]'")
    from mqworker_services.pipeline.archive import ArchivePlan, archive_once  # noqa: PLC0415 - see above
    from mqworker_services.pipeline.engine import LocalEngine  # noqa: PLC0415 - as above
    from mqworker_services.pipeline.lake import Lake  # noqa: PLC0415 - as above

    settle(system)
    settings = replace(system.settings, lake=str(tmp_path / "lake"))
    archive_once(LocalEngine(), ArchivePlan(settings, Lake.at(str(settings.lake))), lambda *_: None)
    system.store.send([("FLUSHALL",)], None)

    with TestClient(console(settings, hosts={"testserver"})) as page:
        job = page.get("/job", params={"id": done})
        found = page.get("/search", params={"q": "state:succeeded"})
        further = page.get("/search", params={"q": "state:succeeded", "cursor": "lake:0:0"})
        gone = page.get("/job", params={"id": "nobody"})

    assert "from the lake" in job.text
    assert "worker:0 of node-1" in job.text
    assert "Look in the lake" in found.text
    assert done in further.text
    assert "of the lake: that is all" in further.text
    assert gone.status_code == 404
