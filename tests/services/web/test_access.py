"""Roles, tokens and sessions: checked on the server for every request."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from mqworker.errors import ConfigurationError
from mqworker.operate.system import System
from mqworker.settings import Settings
from mqworker_services.web.access import COOKIE, MOST_SESSIONS_EACH, SESSION_S, Access, read_tokens
from mqworker_services.web.asgi import console
from mqworker_services.web.server import access_for, parse_listen
from tests.services.web.conftest import TOKENS, bury


def tokens_of(directory: Path, *roles: str) -> Access:
    file = directory / "tokens"
    file.write_text("".join(f"{role} {role}-person {TOKENS[role]}\n" for role in roles))
    return read_tokens(file)


def log_in(client: TestClient, role: str) -> None:
    answer = client.post("/login", data={"token": TOKENS[role], "back": "/dead"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/dead")


def test_nobody_sees_anything_without_a_token(locked: TestClient) -> None:
    assert locked.get("/").headers["location"] == "/login?back=/"
    assert locked.get("/live?path=/").status_code == 401
    assert locked.get("/api/v1/system").status_code == 401
    assert locked.get("/api/v1/system", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert (
        locked.post("/act", data={"action": "pause", "queue": "mail"})
        .headers["location"]
        .startswith("/login")
    )
    assert locked.get("/login").status_code == 200


def test_the_cookie_is_for_this_site_alone(locked: TestClient) -> None:
    answer = locked.post("/login", data={"token": TOKENS["view"]})

    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", COOKIE))
    assert TOKENS["view"] not in cookie


@pytest.mark.parametrize(
    ("role", "action", "status"),
    [
        ("view", "pause", 403),
        ("view", "drop", 403),
        ("operate", "pause", 303),
        ("operate", "drop", 403),
        ("admin", "drop", 303),
    ],
)
def test_each_role_does_what_it_may(
    locked: TestClient, system: System, role: str, action: str, status: int
) -> None:
    (dead,) = bury(system)
    log_in(locked, role)

    answer = locked.post("/act", data={"action": action, "queue": "mail", "what": dead})
    by_token = locked.post(
        "/api/v1/actions",
        json={"action": action, "queue": "mail", "what": dead},
        headers={"authorization": f"Bearer {TOKENS[role]}"},
    )

    assert answer.status_code == status
    assert (by_token.status_code == 403) == (status == 403)
    counts = system.open_queue("mail").counts()
    is_done = counts.is_paused if action == "pause" else counts.dead == 0
    assert is_done == (status == 303)


def test_arguments_are_hidden_from_who_may_only_look(locked: TestClient, system: System) -> None:
    (dead,) = bury(system, tenant="zebra-7")
    log_in(locked, "view")

    assert "zebra-7" not in locked.get(f"/job?id={dead}").text
    assert locked.get(f"/api/v1/job?id={dead}").json()["arguments"] is None
    log_in(locked, "operate")
    assert "zebra-7" in locked.get(f"/job?id={dead}").text


def test_wrong_tokens_are_throttled(locked: TestClient) -> None:
    answers = [locked.post("/login", data={"token": f"guess-{n}"}).status_code for n in range(12)]

    assert answers == [403] * 10 + [429] * 2


def test_wrong_tokens_from_one_address_lock_out_nobody_elsewhere(system: System, tmp_path: Path) -> None:
    app = console(system.settings, access=tokens_of(tmp_path, "admin"))
    with (
        TestClient(app, follow_redirects=False, client=("2001:db8::1", 1)) as stranger,
        TestClient(app, follow_redirects=False, client=("2001:db8:1::1", 1)) as bob,
    ):
        for number in range(12):
            stranger.post("/login", data={"token": f"guess-{number}"})

        assert stranger.post("/login", data={"token": TOKENS["admin"]}).status_code == 429
        assert bob.post("/login", data={"token": TOKENS["admin"]}).status_code == 303


def test_who_logs_in_again_and_again_ends_only_sessions_of_its_own(tmp_path: Path) -> None:
    access = tokens_of(tmp_path, "admin", "view")
    session = access.log_in(TOKENS["admin"], "a", 0.0)

    marks = [access.log_in(TOKENS["view"], "b", 1.0) for _ in range(MOST_SESSIONS_EACH + 5)]

    assert access.identify(bearer=None, session=session, now_s=2.0) is not None
    living = [access.identify(bearer=None, session=mark, now_s=2.0) is not None for mark in marks]
    assert living == [False] * 5 + [True] * MOST_SESSIONS_EACH


def test_a_session_ends_after_a_day(tmp_path: Path) -> None:
    access = tokens_of(tmp_path, "admin")
    session = access.log_in(TOKENS["admin"], "a", 0.0)

    assert access.identify(bearer=None, session=session, now_s=SESSION_S - 1) is not None
    assert access.identify(bearer=None, session=session, now_s=SESSION_S) is None


def test_a_body_of_another_type_or_without_its_length_is_refused(locked: TestClient) -> None:
    parts = locked.post("/login", files={"token": ("x", TOKENS["admin"])})
    pieces = locked.post(
        "/login",
        content=iter([b"token=", TOKENS["admin"].encode()]),
        headers={
            "content-type": "application/x-www-form-urlencoded",
            "content-length": "5",
            "transfer-encoding": "chunked",
        },
    )

    assert parts.status_code == pieces.status_code == 400
    assert "application/x-www-form-urlencoded" in parts.text


def test_logging_out_ends_the_session_and_not_only_the_cookie(locked: TestClient) -> None:
    log_in(locked, "view")
    session = locked.cookies[COOKIE]
    locked.post("/logout")

    locked.cookies.set(COOKIE, session)
    assert locked.get("/").status_code == 303


@pytest.mark.parametrize("text", ["", "root ann 0123456789abcdef", "view ann short", "view 0123456789abcdef"])
def test_a_file_that_does_not_fit_is_refused_without_showing_a_token(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)

    with pytest.raises(ConfigurationError, match="role name token") as told:
        read_tokens(file)
    assert "0123456789abcdef" not in str(told.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])  # noqa: S104 - refused is the point
def test_an_address_that_others_reach_needs_tokens(host: str) -> None:
    with pytest.raises(ConfigurationError, match="web_tokens"):
        access_for(Settings(), host, f"{host}:8780")


@pytest.mark.parametrize("listen", ["8780", "host:", ":1", "host:99999", "host:http"])
def test_where_to_listen_is_checked(listen: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        parse_listen(listen)
