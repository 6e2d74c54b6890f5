"""A proxy that says who somebody is; roles on every new action; the console below another path."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from mqworker import App
from mqworker.errors import ConfigurationError
from mqworker.model.envelope import decode_call
from mqworker.operate.schedules import read_schedule
from mqworker.operate.system import System
from mqworker.tasks.published_tasks import publish_tasks
from mqworker.tasks.schedules.schedule import publish_schedules
from mqworker_services.web.access import Access, Identity, Role, TrustedProxy
from mqworker_services.web.asgi import console
from mqworker_services.web.guard import HEADERS
from mqworker_services.web.server import proxy_of
from tests.services.web.conftest import TOKENS

PROXY = TrustedProxy("x-user", frozenset({"10.0.0.1"}))


@pytest.fixture
def shop(system: System) -> Iterator[App]:
    app = App("shop", settings=system.settings)
    app.schedule("0 3 * * *", name="nightly")(app.task(name="shop.report")(lambda: None))

    @app.task(name="shop.charge")
    def charge(order: int, amount: float = 1.0) -> None: ...

    publish_schedules(app)
    publish_tasks(app)
    yield app
    app.close()


def bearer(role: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[role]}"}


@pytest.mark.parametrize(
    ("client", "headers", "who"),
    [
        ("10.0.0.1", {"x-user": "ann"}, Identity("ann", Role.VIEW)),
        ("10.0.0.1", {"x-user": "ann", "x-mqworker-role": "admin"}, Identity("ann", Role.ADMIN)),
        ("10.0.0.1", {"x-user": "ann", "x-mqworker-role": "root"}, None),
        ("10.0.0.1", {"x-user": " "}, None),
        ("10.0.0.1", {"x-user": "a\x1bn"}, None),
        ("10.0.0.1", {"x-user": "a" * 201}, None),
        ("10.0.0.2", {"x-user": "ann", "x-mqworker-role": "admin"}, None),
        (None, {"x-user": "ann"}, None),
    ],
)
def test_only_the_proxy_says_who_somebody_is(
    client: str | None, headers: dict[str, str], who: Identity | None
) -> None:
    assert PROXY.identity(client, headers) == who


def test_the_header_lets_in_by_its_role_and_from_elsewhere_nobody(system: System) -> None:
    for address, status in (("10.0.0.1", 200), ("10.0.0.9", 401)):
        app = console(system.settings, access=Access(proxy=PROXY))
        with TestClient(app, follow_redirects=False, client=(address, 5)) as page:
            assert page.get("/api/v1/system", headers={"x-user": "ann"}).status_code == status
            assert page.get("/api/v1/system").status_code == 401
            asked = {"action": "pause", "queue": "mail"}
            assert page.post("/api/v1/actions", json=asked, headers={"x-user": "ann"}).status_code in {
                401,
                403,
            }


@pytest.mark.parametrize(
    ("header", "addresses"),
    [("x-user", []), (None, ["10.0.0.1"]), ("x user", ["10.0.0.1"]), ("x-user", ["proxy"])],
)
def test_a_header_without_an_address_is_refused(header: str | None, addresses: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="belong together"):
        proxy_of(header, addresses)
    assert proxy_of(None, []) is None


@pytest.mark.parametrize("action", ["pause-schedule", "resume-schedule", "run-schedule"])
def test_a_viewer_may_not_touch_a_schedule(
    locked: TestClient, system: System, shop: App, action: str
) -> None:
    asked = {"action": action, "queue": "default", "what": "shop/nightly"}

    assert locked.post("/api/v1/actions", json=asked, headers=bearer("view")).status_code == 403
    assert read_schedule(system, "shop/nightly")[1].paused_at_ms is None
    assert shop.work_queue().counts().ready == 0
    assert locked.post("/api/v1/actions", json=asked, headers=bearer("operate")).status_code == 200


def test_a_task_is_enqueued_over_http_with_checked_arguments(locked: TestClient, shop: App) -> None:
    place = "/api/v1/tasks/shop.charge/enqueue"
    call = {"args": [7], "kwargs": {"amount": 2.5}, "id": "order-7", "delay": 60}

    first = locked.post(place, json=call, headers=bearer("operate"))
    again = locked.post(place, json=call, headers=bearer("operate"))

    assert (first.status_code, first.json()) == (201, {"id": "order-7", "queue": "default", "is_new": True})
    assert (again.status_code, again.json()["is_new"]) == (200, False)
    assert shop.work_queue().find("order-7").state == "delayed"  # type: ignore[arg-type]
    assert locked.post(place, json=call, headers=bearer("view")).status_code == 403
    told = locked.get("/api/v1/tasks", headers=bearer("view")).json()["tasks"]
    assert [task["name"] for task in told] == ["shop.charge", "shop.report"]


OWN = f"00-{1:032x}-{2:016x}-01"
OTHER = f"00-{3:032x}-{4:016x}-01"


@pytest.mark.parametrize(
    ("sent", "body", "stored"),
    [
        ({"traceparent": OWN, "tracestate": "a=b"}, {}, {"traceparent": OWN, "tracestate": "a=b"}),
        ({"traceparent": OWN}, {"headers": {"colour": "red"}}, {"colour": "red", "traceparent": OWN}),
        ({"traceparent": OWN}, {"headers": {"traceparent": OTHER}}, {"traceparent": OTHER}),
        ({"traceparent": "<script>"}, {}, {}),
        ({"traceparent": f"00-{0:032x}-{2:016x}-01"}, {}, {}),
    ],
)
def test_the_trace_of_a_request_goes_on_in_the_message(
    locked: TestClient, shop: App, sent: dict[str, str], body: dict[str, object], stored: dict[str, str]
) -> None:
    call = {"args": [7], **body}

    answer = locked.post(
        "/api/v1/tasks/shop.charge/enqueue", json=call, headers={**bearer("operate"), **sent}
    )

    (delivery,) = shop.work_queue().claim(1)
    assert (answer.status_code, delivery.id) == (201, answer.json()["id"])
    assert decode_call(delivery.body).headers == stored


@pytest.mark.parametrize(
    ("task", "body", "answered"),
    [
        ("shop.charge", {}, (400, "missing a required argument")),
        ("shop.charge", {"args": ["seven"]}, (400, "accepted is int")),
        ("shop.charge", {"args": 7}, (400, "args is a list")),
        ("shop.charge", {"args": [1], "colour": 1}, (400, "accepted are args")),
        ("shop.charge", {"args": [1], "delay": "soon"}, (400, "accepted is int or float")),
        ("shop.charge", {"args": [1], "priority": 99}, (400, "priority")),
        ("shop.charge", {"args": [1], "id": "<script>"}, (400, "id is")),
        ("shop.chrage", {"args": [1]}, (404, "did you mean shop.charge")),
    ],
)
def test_a_call_that_does_not_fit_is_told_what_does(
    page: TestClient, shop: App, task: str, body: dict[str, object], answered: tuple[int, str]
) -> None:
    status, told = answered
    answer = page.post(f"/api/v1/tasks/{task}/enqueue", json=body)

    assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text
    assert shop.work_queue().counts().ready == 0


def test_below_another_path_links_cookies_and_policy_are_right_on_every_page(
    system: System, shop: App
) -> None:
    del shop
    access = Access(
        {b"x": Identity("nobody", Role.VIEW)}, proxy=TrustedProxy("x-user", frozenset({"testclient"}))
    )
    app = Starlette(routes=[Mount("/ops", console(system.settings, access=access))])
    headers = {"x-user": "ann", "x-mqworker-role": "admin"}
    with TestClient(app, follow_redirects=False, headers=headers) as page:
        for path in ("/", "/schedules", "/schedule?name=shop/nightly", "/workflows", "/limits", "/models",
                     "/gateways", "/accidents", "/dead", "/audit"):  # fmt: skip
            answer = page.get(f"/ops{path}")
            links = set(re.findall(r'(?:href|src|action|data-live|hx-get)="([^"#]+)', answer.text))
            assert answer.status_code == 200
            assert all(link.startswith("/ops/") for link in links), links
            assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]
        asked = {"action": "pause-schedule", "queue": "default", "what": "shop/nightly", "back": "/schedules"}
        assert page.post("/ops/act", data=asked).headers["location"].startswith("/ops/schedules?note=")
