"""What happens to a producer that nobody set up, or whose server is away: it says so, and soon."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mqworker import App
from mqworker.errors import ConfigurationError, InvalidArgument, StoreUnavailable
from mqworker.settings import Settings
from mqworker.store.embedded.share import stop_server
from tests.support.real_server import RealServer, free_port

MOST_S = 5.0
"""Three by default; a busy machine has two more."""


def _tasks(url: str) -> dict[str, Callable[[], object]]:
    app = App("shop", redis_url=url)

    @app.task(name="t")
    def t(number: int = 1) -> None: ...

    async def on_a_loop(work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        finally:
            await app.aclose()

    return {
        "delay": lambda: t.delay(1),
        "aenqueue": lambda: asyncio.run(on_a_loop(lambda: t.aenqueue(1))),
        "enqueue_many": lambda: t.enqueue_many([(1,), (2,)]),
        "aenqueue_many": lambda: asyncio.run(on_a_loop(lambda: t.aenqueue_many([(1,)]))),
    }


VERBS = list(_tasks("redis://127.0.0.1:1"))


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_is_not_there_costs_three_seconds_and_nothing_was_stored(verb: str) -> None:
    call = _tasks(f"redis://127.0.0.1:{free_port()}")[verb]

    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="nothing was stored") as caught:
        call()

    assert time.monotonic() - began < MOST_S
    assert not caught.value.maybe_executed


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_hangs_costs_three_seconds_and_it_is_said_that_nobody_knows(verb: str) -> None:
    with RealServer() as server:
        calls = _tasks(server.url)
        calls[verb]()  # connected
        os.kill(server.pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            # A loop of its own has a connection of its own, which is not made: then that much is known.
            text = "nothing was stored" if verb.startswith("a") else "not known whether the call was stored"
            with pytest.raises(StoreUnavailable, match=text) as caught:
                calls[verb]()
        finally:
            os.kill(server.pid, signal.SIGCONT)

        assert time.monotonic() - began < MOST_S
        assert caught.value.maybe_executed is not verb.startswith("a")


def test_a_producer_that_starts_a_server_of_its_own_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App("shop", settings=Settings(data_dir=tmp_path / ".mqworker"))

    @app.task(name="t", queue="mail")
    def t() -> None: ...

    try:
        t.delay()
        t.delay()
        said = [line for line in capsys.readouterr().err.splitlines() if "embedded_server_started" in line]
        assert len(said) == 1
        assert "MQWORKER_REDIS_URL" in json.loads(said[0])["to_do"]

        other = App("shop", settings=Settings(data_dir=tmp_path / ".mqworker"))
        other.job("x").status()
        assert "embedded_server_started" not in capsys.readouterr().err  # it was there
    finally:
        app.close()
        stop_server(tmp_path / ".mqworker")


def test_a_server_of_its_own_can_be_forbidden(tmp_path: Path) -> None:
    app = App("shop", settings=Settings(data_dir=tmp_path / ".mqworker", embedded="never"))

    @app.task(name="t")
    def t() -> None: ...

    with pytest.raises(ConfigurationError, match="MQWORKER_REDIS_URL"):
        t.delay()
    with pytest.raises(ConfigurationError, match="MQWORKER_REDIS_URL"):
        asyncio.run(t.aenqueue())
    assert not (tmp_path / ".mqworker").exists()


def test_a_queue_that_nobody_named_is_warned_of_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    loose, strict = App("shop"), App("shop", queues_known_only=True)
    for app in (loose, strict):
        app.queue("reports")

        @app.task(name="t", queue="mail")
        def t() -> None: ...

        t.using(queue="reports")
    assert "queue_undeclared" not in capsys.readouterr().err

    loose.named("t").using(queue="mial")
    loose.named("t").using(queue="mial")
    with pytest.raises(InvalidArgument, match=r"queue is 'mial'.* did you mean mail\?"):
        strict.named("t").using(queue="mial")

    said = [line for line in capsys.readouterr().err.splitlines() if "queue_undeclared" in line]
    assert len(said) == 1
    assert json.loads(said[0])["hint"] == "did you mean mail?"
