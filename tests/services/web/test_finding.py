"""Bulk, edit, strikes and statistics through the console: pages, API, roles, hostile names; all in Redis."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from mqworker.actors.dispatcher.figures import FiguresBook
from mqworker.model.envelope import CallOptions, decode_call, encode_call
from mqworker.model.figures import Figures
from mqworker.model.names import TaskName
from mqworker.operate.audit import read_audit
from mqworker.operate.strikes import add_strike, read_strikes
from mqworker.operate.system import System
from mqworker.queues.work.trace import read_letter
from tests.services.web.conftest import TOKENS, bury
from tests.support.deadline import wait_until
from tests.support.messages import a_message

HOSTILE = '<script>alert("x")</script>../\u202eevil' + "x" * 300


def token(role: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[role]}"}


def outcomes(page: TestClient) -> list[str | None]:
    return [each["outcome"] for each in page.get("/api/v1/bulk").json()["bulks"]]


def test_a_bulk_is_counted_asked_for_done_and_audited(page: TestClient, system: System) -> None:
    bury(system, 120)

    asked = page.get("/bulk", params={"action": "retry", "q": "queue:mail error:ValueError", "rate": "500"})
    begun = page.post("/bulk", data={"action": "retry", "q": "queue:mail error:ValueError", "rate": "500"})
    wait_until(lambda: outcomes(page) == ["120 jobs back in line"], "the bulk is done", 60)

    assert "120 jobs fit." in asked.text
    assert "mqworker bulk retry queue:mail error:ValueError --rate 500" in asked.text
    assert begun.status_code == 303
    assert system.open_queue("mail").counts().ready == 120
    assert read_audit(system)[0].deed.count == 120
    assert "120 jobs back in line" in page.get("/bulk").text


def test_a_bulk_over_the_api_can_be_stopped_and_tells_how_to_go_on(page: TestClient, system: System) -> None:
    bury(system, 300)
    asked = page.get("/api/v1/bulk/preview", params={"action": "drop", "q": "queue:mail"}).json()

    begun = page.post("/api/v1/bulk", json={"action": "drop", "words": "queue:mail", "rate": 1})
    page.post("/api/v1/bulk/stop", json={"id": begun.json()["id"]})
    wait_until(lambda: (outcomes(page)[0] or "").startswith("stopped"), "it has stopped", 60)

    assert (asked["count"], asked["destructive"], begun.status_code) == (300, True, 202)
    dead = system.open_queue("mail").counts().dead
    assert 297 <= dead <= 299
    assert f"--before {begun.json()['command'].split()[-1]}" in read_audit(system)[0].deed.command


@pytest.mark.parametrize(
    "body",
    [
        {"action": "drop", "words": ""},
        {"action": "burn", "words": "queue:mail"},
        {"action": "drop", "words": 7},
        {"action": "drop", "words": "queue:mail", "rate": "quick"},
        {"action": "drop", "words": "queue:mail", "rate": 0},
        {"action": "drop", "words": "state:ready"},
    ],
)
def test_a_bulk_that_cannot_be_meant_is_refused(
    page: TestClient, system: System, body: dict[str, object]
) -> None:
    bury(system)

    answer = page.post("/api/v1/bulk", json=body)

    assert (answer.status_code, "accepted" in answer.json()["error"]) == (400, True)
    assert system.open_queue("mail").counts().dead == 1


def test_roles_are_checked_on_the_server_for_each_of_them(locked: TestClient, system: System) -> None:
    (message,) = bury(system)
    bulk = {"action": "drop", "words": "queue:mail"}
    edit = {"queue": "mail", "id": message, "args": [1]}

    def status(role: str, path: str, body: dict[str, object]) -> int:
        return locked.post(path, json=body, headers=token(role)).status_code

    assert [status(role, "/api/v1/bulk", bulk) for role in ("view", "operate")] == [403, 403]
    assert status("view", "/api/v1/bulk", bulk | {"action": "retry"}) == 403
    assert [status(role, "/api/v1/dead/edit", edit) for role in ("view", "operate")] == [403, 200]
    assert [status(role, "/api/v1/strikes", {"task": "t"}) for role in ("view", "operate")] == [403, 201]
    assert (
        locked.get("/edit", params={"id": message, "queue": "mail"}, headers=token("view")).status_code == 403
    )
    assert system.open_queue("mail").counts().dead == 1


@pytest.mark.parametrize("path", ["/api/v1/search", "/search", "/api/v1/bulk/preview", "/bulk"])
def test_who_may_not_see_arguments_cannot_guess_them_by_searching(
    locked: TestClient, system: System, path: str
) -> None:
    bury(system)
    asked = {"q": "args.password:hunter2", "action": "drop"}

    assert locked.get(path, params=asked, headers=token("view")).status_code == 403
    assert locked.get(path, params=asked, headers=token("operate")).status_code == 200


def test_a_dead_letter_is_edited_in_a_form_without_its_secrets_being_shown(
    page: TestClient, system: System
) -> None:
    (message,) = bury(system)
    form = page.get("/edit", params={"id": message, "queue": "mail"})
    shown = '{"tenant": "other", "password": "•••"}'

    wrong = page.post("/edit", data={"id": message, "queue": "mail", "kwargs": "{", "args": ""})
    done = page.post("/edit", data={"id": message, "queue": "mail", "kwargs": shown, "args": "[]"})

    assert "hunter2" not in form.text
    assert (wrong.status_code, done.status_code) == (400, 303)
    assert "accepted is JSON" in wrong.text
    letter = read_letter(system.open_queue("mail"), message)
    assert letter is not None
    assert letter.message is not None
    assert decode_call(letter.message.body).kwargs["tenant"] == "other"


def test_strikes_are_made_listed_and_removed(page: TestClient, system: System) -> None:
    made = page.post(
        "/strikes", data={"task": "shop.*", "where": "args.tenant=acme tag=import", "until": "2h"}
    )
    (strike,) = read_strikes(system)
    listed = page.get("/strikes").text
    wrong = page.post("/strikes", data={"task": "", "where": "tenant"})
    gone = page.post("/strikes", data={"remove": strike.id})

    assert (made.status_code, wrong.status_code, gone.status_code) == (303, 400, 303)
    assert "shop.* where args.tenant = acme and tag = import" in listed
    assert read_strikes(system) == []


def test_strikes_over_the_api(page: TestClient, system: System) -> None:
    made = page.post("/api/v1/strikes", json={"task": "shop.charge", "where": ["args.tenant=acme"]}).json()

    assert [each["id"] for each in page.get("/api/v1/strikes").json()["strikes"]] == [made["id"]]
    gone = page.request("DELETE", "/api/v1/strikes", json={"id": made["id"]})

    assert gone.status_code == 200
    assert read_strikes(system) == []
    assert page.request("DELETE", "/api/v1/strikes", json={"id": made["id"]}).status_code in {404, 409}


def test_statistics_are_shown_by_task(page: TestClient, system: System) -> None:
    figures = Figures()
    for _ in range(5):
        figures.note("shop.charge", "mail", 12.0, 3.0, "retried")
    book = FiguresBook(system.settings.namespace, "n.1.1", system.store.run)
    book.add(figures.take(), 0)
    book.write(0)

    (row,) = page.get("/api/v1/stats", params={"last": "1d"}).json()["rows"]
    shown = page.get("/stats").text

    assert (row["runs"], row["failed"]) == (5, 5)
    assert "shop.charge" in shown
    assert "Tasks, the last 15 minutes" in page.get("/").text
    assert page.get("/stats", params={"last": "9d"}).status_code == 400
    assert page.get("/stats", params={"last": HOSTILE}).status_code == 400


def test_hostile_words_stay_words_on_every_page(page: TestClient, system: System) -> None:
    add_strike(system, HOSTILE, task="t", where=[f"args.a={HOSTILE}"], reason=HOSTILE)
    bury(system, message=HOSTILE)

    pages = [
        page.get("/strikes"),
        page.get("/bulk", params={"action": "retry", "q": f'error:"{HOSTILE[:40]}"'}),
        page.get("/bulk", params={"action": HOSTILE, "q": HOSTILE}),
        page.get("/edit", params={"id": HOSTILE, "queue": HOSTILE}),
        page.get("/stats", params={"queue": HOSTILE}),
        page.post("/strikes", data={"task": HOSTILE, "where": HOSTILE}),
        page.post("/edit", data={"id": HOSTILE, "queue": HOSTILE, "args": HOSTILE}),
    ]

    for each in pages:
        assert each.status_code < 500
        assert "<script>alert" not in each.text
        # What somebody typed stands as it is in the fields of a form, and nowhere else.
        assert "\u202e" not in re.sub(r'value="[^"]*"|<textarea.*?</textarea>', "", each.text)


def test_tags_are_shown_and_lead_to_others_of_the_same(page: TestClient, system: System) -> None:
    body = encode_call([], {}, CallOptions(tags=("import-7",)))
    message = a_message(body, task=TaskName("shop.send"))
    system.open_queue("mail").enqueue(message)

    found = page.get("/search", params={"q": "tag:import-7"}).text
    shown = page.get("/job", params={"id": message.id, "queue": "mail"}).text

    assert message.id in found
    assert "q=tag%3Aimport-7" in shown
    assert page.get("/api/v1/job", params={"id": message.id}).json()["tags"] == ["import-7"]
