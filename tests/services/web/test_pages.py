"""The pages without a browser: what they say, what they refuse, and that no name can harm them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from mqworker import App
from mqworker.model.names import QueueName
from mqworker.operate.audit import read_audit
from mqworker.operate.causes import read_causes
from mqworker.operate.system import System
from mqworker.settings import Settings
from mqworker_services.web.access import read_tokens
from mqworker_services.web.asgi import console
from mqworker_services.web.guard import HEADERS
from tests.services.web.conftest import bury
from tests.support.command_line import NODE, a_child
from tests.support.messages import a_message
from tests.support.real_server import RealServer

SYSTEM_PAGES = ["/schedules", "/workflows", "/limits", "/models", "/gateways", "/accidents"]
PAGES = ["/", "/queue?name=mail", "/search", "/dead", "/audit", *SYSTEM_PAGES]
HOSTILE = [
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "\u202egnp.exe",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='x",
    "{{ 7 * 7 }}",
    "x" * 10_000,
    "new\nline\x1b[2J",
]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_there_with_headers_that_forbid_what_it_does_not_need(
    page: TestClient, system: System, path: str
) -> None:
    bury(system)

    answer = page.get(path)

    assert answer.status_code == 200, answer.text
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=|javascript:|https?://", answer.text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_on_every_page(
    page: TestClient, system: System, web_server: RealServer, name: str
) -> None:
    (dead,) = bury(system, message=name, tenant=name)
    with web_server.client() as client:
        client.sadd("mqw:queues", name)
        children = [a_child(name, last_exit=name, state=name), a_child("worker:0", role="worker")]
        snapshot = {"node": name, "app": name, "pid": 1, "children": children}
        client.sadd("mqw:nodes", name)
        client.set(f"mqw:node:{name}", json.dumps(snapshot), px=60_000)
    paths = [
        *PAGES,
        f"/job?id={dead}",
        f"/queue?name={quote(name)}",
        f"/search?q={quote(name)}",
        f"/job?id={quote(name)}",
    ]

    for path in paths:
        answer = page.get(path)

        assert answer.status_code < 500, (path, answer.text)
        for sign in ("<script>alert", "<img src=x", ">49<"):
            assert sign not in answer.text, path
        seen = re.sub(r"<[^>]*>", "", answer.text)  # what stands in attributes is not shown
        assert not re.search(r"[\u202e\x1b]|x{600}", seen), path


def test_the_overview_shows_the_verdict_in_words_and_every_process(
    page: TestClient, system: System, web_server: RealServer
) -> None:
    system.open_queue("mail").enqueue(a_message())
    system.open_queue("mail").claim(consumer=f"{NODE}.ab12.1")
    children = [
        a_child("dispatcher", role="dispatcher", facts={"queues": ["mail"], "workers": {"worker:0": 1}}),
        a_child("worker:0", role="worker", pid=4_713, restarts=2, last_exit="killed by SIGKILL"),
    ]
    with web_server.client() as client:
        client.sadd("mqw:nodes", NODE)
        client.set(
            f"mqw:node:{NODE}", json.dumps({"node": NODE, "pid": 4_711, "children": children}), px=15_000
        )

    text = page.get("/").text

    assert "Healthy" in text
    assert all(each in text for each in ("supervisor", "4711", "4713", "killed by SIGKILL", "In hand now: 1"))


def test_a_job_page_explains_first_and_masks_secrets(page: TestClient, system: System) -> None:
    (dead,) = bury(system, message="token=abc123")

    text = page.get(f"/job?id={dead}").text

    assert text.index("dead since") < text.index("Attempts") < text.index("Arguments")
    assert "acme" in text
    assert "hunter2" not in text
    assert "abc123" not in text


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/queue?name=nowhere", 404, "there is no queue"),
        ("/job?id=nobody", 404, "no message nobody"),
        ("/job?id=%00", 400, "accepted are"),
        ("/search?q=colour:red", 400, "accepted are"),
        ("/search?q=x&cursor=zzz", 400, "cursor"),
        ("/nowhere", 404, "no such page"),
        ("/confirm?action=explode&queue=mail", 400, "accepted are pause"),
        ("/live?path=/secret", 400, "accepted are /, /queue"),
        ("/static/../access.py", 404, "no such page"),
    ],
)
def test_what_is_not_there_is_said_so(
    page: TestClient, system: System, path: str, status: int, told: str
) -> None:
    bury(system)

    answer = page.get(path)

    assert (answer.status_code, told in answer.text) == (status, True), answer.text


def test_an_action_asks_first_shows_its_command_and_is_written_down(page: TestClient, system: System) -> None:
    bury(system, 3)
    (cause,) = read_causes(system).causes
    asked = {"action": "drop-cause", "queue": "mail", "what": cause.id, "back": "/dead"}

    question = page.get("/confirm", params=asked).text
    assert "3 dead letters of queue mail died of this cause" in question
    assert f"mqworker dead drop --cause {cause.id} -q mail" in question
    assert system.open_queue("mail").counts().dead == 3  # asking changes nothing

    answer = page.post("/act", data=asked, headers={"sec-fetch-site": "same-origin"})

    assert answer.status_code == 303
    assert "3 dead letters of queue mail thrown away" in page.get(answer.headers["location"]).text
    assert system.open_queue("mail").counts().dead == 0
    (noted,) = read_audit(system)
    assert (noted.deed.who, noted.deed.action, noted.deed.count) == ("local", "drop-cause", 3)
    assert "thrown away" in page.get("/audit").text


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_a_page_of_another_site_cannot_act(page: TestClient, system: System, headers: dict[str, str]) -> None:
    bury(system)

    for path in ("/act", "/api/v1/actions", "/login", "/logout"):
        assert page.post(path, data={"action": "pause", "queue": "mail"}, headers=headers).status_code == 403
    assert not system.open_queue("mail").counts().is_paused


def test_get_does_not_act(page: TestClient, system: System) -> None:
    bury(system)

    assert page.get("/act", params={"action": "pause", "queue": "mail"}).status_code == 405
    assert not system.open_queue("mail").counts().is_paused


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8780", "127.0.0.1.evil.example", ""])
def test_another_host_name_is_refused_against_rebinding(page: TestClient, host: str) -> None:
    assert page.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x"]
)
def test_one_is_never_sent_elsewhere(page: TestClient, system: System, back: str) -> None:
    bury(system)

    answer = page.post("/act", data={"action": "pause", "queue": "mail", "back": back})

    assert answer.headers["location"].startswith("/?note=")


def test_without_redis_the_last_picture_stays_with_its_age() -> None:
    with RealServer() as server:
        settings = Settings(redis_url=server.url, connect_timeout_s=0.5, read_timeout_s=0.5)
        with TestClient(console(settings)) as page:
            queue = QueueName("mail")
            page.app.state.console.system.open_queue(queue).enqueue(a_message())  # type: ignore[attr-defined]
            assert "Down" in page.get("/").text  # no node beats
            server.kill()
            page.app.state.console.gallery.forget()  # type: ignore[attr-defined]

            text, api = page.get("/").text, page.get("/api/v1/system")

    assert "No Redis" in text
    assert "the last picture" in text
    assert "mail" in text
    assert (api.status_code, "error" in api.json()) == (503, True)


def test_it_can_be_mounted_below_another_path(system: System) -> None:
    bury(system)
    app = Starlette(routes=[Mount("/ops", console(system.settings))])
    with TestClient(app, follow_redirects=False) as page:
        text = page.get("/ops/").text
        links = set(re.findall(r'(?:href|src|action|data-live)="([^"#]+)', text))

        assert all(link.startswith("/ops/") for link in links), links
        assert all(page.get(link).status_code == 200 for link in links if "/live" not in link)


def test_below_another_path_the_login_is_for_that_path_alone(system: System, tmp_path: Path) -> None:
    token = "x" * 20
    (tmp_path / "tokens").write_text(f"admin ann {token}\n")
    app = Starlette(routes=[Mount("/ops", console(system.settings, access=read_tokens(tmp_path / "tokens")))])
    with TestClient(app, follow_redirects=False) as page:
        assert page.get("/ops/").headers["location"] == "/ops/login?back=/"

        answer = page.post("/ops/login", data={"token": token, "back": "/dead"})
        cookie = answer.headers["set-cookie"].lower()

        assert (answer.status_code, answer.headers["location"]) == (303, "/ops/dead")
        assert "path=/ops/;" in cookie
        assert all(word in cookie for word in ("httponly", "samesite=strict"))
        assert page.get("/ops/").status_code == 200
        assert "path=/ops/" in page.post("/ops/logout").headers["set-cookie"].lower()
        assert page.get("/ops/").status_code == 303


def test_a_page_and_all_that_it_loads_are_at_most_200_kb(page: TestClient, system: System) -> None:
    bury(system, 40)
    static = set(re.findall(r'(?:href|src)="(/static/[^"]+)', page.get("/").text))

    total = sum(_bytes_sent(page, path) for path in static)

    assert len(static) == 6
    for path in (*PAGES, "/stats", "/strikes", "/bulk"):
        assert total + _bytes_sent(page, path) <= 200_000, path


def _bytes_sent(page: TestClient, path: str) -> int:
    with page.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
        assert answer.status_code == 200, path
        return len(b"".join(answer.iter_raw()))


def test_schedules_as_data_are_shown_by_the_page_and_told_apart(page: TestClient, system: System) -> None:
    app = App("shop", settings=system.settings)
    task = app.task(name="t.report")(lambda: None)
    for number in range(130):
        app.schedules.put(f"acme/s{number:03}", task.s(), every=3600 + number)
    app.schedules.put("zoo/nightly", task.s(), cron="0 3 * * *", timezone="Europe/Berlin")
    app.schedules.run_now("zoo/nightly")
    app.close()

    first, second = page.get("/schedules"), page.get("/schedules?offset=100")
    of_one = page.get("/schedules?prefix=acme/")
    behind = page.get("/schedules?prefix=acme/&after=acme/s099")
    one = page.get("/schedule?name=zoo/nightly").text
    told = page.get("/api/v1/schedules?prefix=zoo/").json()
    strange = page.get("/schedules?offset=-1&after=%22%3E%00&prefix=%ff")

    rows = [each.text.count('scope="row"') for each in (first, second, of_one, behind)]
    assert rows == [100, 31, 100, 30]
    assert "31 more fire later" in first.text
    assert "run by hand" in one
    assert "delete-schedule" in one
    assert [each["owner"] for each in told["schedules"]] == ["data"]
    assert strange.status_code == 200
