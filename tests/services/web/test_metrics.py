"""The console tells Prometheus and autoscalers of the system, as every node does."""

from __future__ import annotations

from starlette.testclient import TestClient

from mqworker.operate.system import System
from mqworker.settings import Settings
from mqworker_services.web.asgi import console
from tests.services.web.conftest import TOKENS, bury
from tests.support.messages import a_message
from tests.support.monitored_node import CONTENT_TYPE, parsed, value
from tests.support.real_server import free_port


def test_the_console_tells_of_the_system(page: TestClient, system: System) -> None:
    bury(system, 3)

    answer = page.get("/metrics")

    values = parsed(answer.text)
    assert answer.headers["content-type"] == CONTENT_TYPE
    assert value(values, "mqworker_queue_messages", queue="mail", state="dead") == 3
    assert value(values, "mqworker_messages_total", queue="mail", event="buried") == 3
    assert not [key for key in values if key[0].startswith(("mqworker_actor", "mqworker_worker"))]


def test_the_console_tells_how_many_workers_are_wanted(page: TestClient, system: System) -> None:
    system.open_queue("mail").enqueue(a_message())

    told = page.get("/scale/mail", params={"target_wait_s": "5"})
    refused = page.get("/scale/mail", params={"target_wait_s": "-1"})

    assert (told.json()["ready"], told.json()["workers"]) == (1, 1)
    assert refused.status_code == 400
    assert "accepted: a number from 0.1 to 3600" in refused.text


def test_both_want_a_token_where_there_are_tokens(locked: TestClient) -> None:
    bearer = {"authorization": f"Bearer {TOKENS['view']}"}

    assert [locked.get(path).status_code for path in ("/metrics", "/scale/mail")] == [401, 401]
    assert [locked.get(path, headers=bearer).status_code for path in ("/metrics", "/scale/mail")] == [
        200,
        200,
    ]


def test_without_redis_the_console_says_so() -> None:
    nowhere = Settings(redis_url=f"redis://127.0.0.1:{free_port()}")
    with TestClient(console(nowhere)) as page:
        answer = page.get("/metrics")

    assert parsed(answer.text) == {("mqworker_redis_up", ()): 0.0}
