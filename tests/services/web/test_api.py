"""The JSON API says what the pages say."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from mqworker.operate.system import System
from mqworker_services.web.openapi import openapi_document
from tests.services.web.conftest import bury
from tests.support.command_line import CommandLine
from tests.support.messages import a_message
from tests.support.real_server import RealServer


def test_the_system_has_the_shape_of_the_status_document(
    page: TestClient, system: System, web_server: RealServer
) -> None:
    bury(system)
    line = CommandLine(web_server)
    line.add_node("mail")
    status = json.loads(line.type("status", "--json").output)
    line.store.close()

    told = page.get("/api/v1/system").json()

    assert set(status) <= set(told)
    assert set(status["queues"][0]) == set(told["queues"][0])
    assert set(status["nodes"][0]) == set(told["nodes"][0])
    assert set(status["nodes"][0]["children"][0]) == set(told["nodes"][0]["children"][0])


def test_a_job_is_found_and_told(page: TestClient, system: System) -> None:
    (dead,) = bury(system)

    found = page.get("/api/v1/search", params={"q": "args.tenant:acme"}).json()
    told = page.get("/api/v1/job", params={"id": dead}).json()

    assert ([job["id"] for job in found["jobs"]], found["cursor"]) == ([dead], None)
    assert (told["state"], told["task"], told["arguments"]["kwargs"]["password"]) == (
        "dead",
        "shop.send",
        "***",
    )
    assert [attempt["outcome"] for attempt in told["attempts"]] == ["buried"]


def test_an_action_is_previewed_and_done(page: TestClient, system: System) -> None:
    system.open_queue("mail").enqueue(a_message())
    asked = {"action": "pause", "queue": "mail"}

    assert page.get("/api/v1/actions/preview", params=asked).json()["command"] == "mqworker queue pause mail"
    assert page.post("/api/v1/actions", json=asked).json() == {"outcome": "queue mail is paused"}
    assert page.get("/api/v1/queue", params={"name": "mail"}).json()["paused"] is True
    assert page.get("/api/v1/audit").json()["deeds"][0]["action"] == "pause"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"action": 7}', "application/json"),
        (b"action=pause&queue=mail", "application/x-www-form-urlencoded"),
        (b" " * 30_000, "application/json"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(page: TestClient, body: bytes, kind: str) -> None:
    answer = page.post("/api/v1/actions", content=body, headers={"content-type": kind})

    assert (answer.status_code, "error" in answer.json()) == (400, True)


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1001"])
def test_a_limit_is_checked(page: TestClient, limit: str) -> None:
    assert page.get("/api/v1/search", params={"limit": limit}).status_code == 400


def test_the_openapi_document_names_every_route(page: TestClient) -> None:
    told = page.get("/api/v1/openapi.json").json()

    assert told == json.loads(json.dumps(openapi_document("")))
    served = {route.path for route in page.app.routes if route.path.startswith("/api/")}  # type: ignore[attr-defined]
    assert set(told["paths"]) == served - {"/api/v1/openapi.json"}
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            given = [each for each in operation.get("parameters", ()) if each["required"]]
            params = {each["name"]: "1" for each in given if each["in"] == "query"}
            answer = page.request(
                method,
                path.replace("{name}", "shop.nobody"),
                params=params,
                json={} if method == "post" else None,
            )
            assert str(answer.status_code) in operation["responses"], (path, answer.text)
