"""Tags, strikes, log lines and statistics on a whole node, as an operator meets them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mqworker import App
from mqworker.settings import Settings
from mqworker.tasks.task import Task
from tests.support.command_line import CommandLine
from tests.support.deadline import wait_until
from tests.support.real_node import DEADLINE_S, RealNode
from tests.support.real_server import RealServer

APP = """
import logging, pathlib
from mqworker import App, Context

app = App("shop")
HERE = pathlib.Path(__file__).parent

@app.task(name="shop.charge", tags=["money"])
def charge(tenant: str, amount: int = 1) -> None:
    with (HERE / "charged").open("a") as file:
        file.write(f"{tenant}\\n")

@app.task(name="shop.talk", retry=0)
async def talk(ctx: Context, words: int) -> None:
    for number in range(words):
        logging.getLogger("shop").info("word %d, token=abc123", number)
    ctx.log.info("said", words=words)
    raise ValueError("nobody listens")
"""


@dataclass
class Shop:
    """A node, a producer that knows its tasks by name, and an operator."""

    node: RealNode
    app: App
    line: CommandLine
    charge: Task[..., None]
    talk: Task[..., None]

    def charged(self) -> list[str]:
        file = self.node.directory / "charged"
        return file.read_text().split() if file.exists() else []

    def type(self, *words: str) -> str:
        result = self.line.type(*words)
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with RealServer() as server:
        node = RealNode(server.url, "shop_app:app", settings={"MQWORKER_WORKERS": "2"})
        (node.directory / "shop_app.py").write_text(APP)
        app = App("shop", settings=Settings(redis_url=server.url))
        charge = app.task(name="shop.charge", tags=["money"])(_charge)
        talk = app.task(name="shop.talk", retry=0)(_talk)
        line = CommandLine(server)
        with node:
            yield Shop(node, app, line, charge, talk)
        line.store.close()
        app.close()


def _charge(tenant: str, amount: int = 1) -> None:
    raise NotImplementedError((tenant, amount))


def _talk(words: int) -> None:
    raise NotImplementedError(words)


def test_a_struck_call_is_not_run_and_comes_back_when_the_strike_is_lifted(shop: Shop) -> None:
    shop.type("strike", "add", "--task", "shop.charge", "--where", "args.tenant=acme", "--until", "2h")
    (strike,) = json.loads(shop.type("strike", "list", "--json"))["strikes"]
    struck = "error:Struck args.tenant:acme"

    def is_struck() -> bool:
        # By position and by name: workers obey within two seconds, so some may run before that.
        shop.charge.enqueue("acme")
        shop.charge.enqueue(tenant="acme")
        return len(json.loads(shop.type("job", "list", "error:Struck", "--json"))["jobs"]) > 3

    wait_until(is_struck, "calls are struck", DEADLINE_S)
    before = shop.charged().count("acme")
    jobs = [shop.charge.enqueue("acme"), shop.charge.enqueue(tenant="acme", amount=3)]
    shop.charge.enqueue("other").result(timeout=DEADLINE_S)
    for job in jobs:
        wait_until(lambda job=job: "dead" in shop.type("job", "show", job.id), "it is struck", DEADLINE_S)

    assert shop.charged().count("acme") == before
    shop.type("strike", "remove", strike["id"])
    wait_until(lambda: _is_run(shop, "acme"), "calls run again", DEADLINE_S)
    told = shop.type("bulk", "retry", *struck.split(), "--yes")

    assert "back in line" in told
    wait_until(lambda: shop.charged().count("acme") > before + 1, "what was skipped runs", DEADLINE_S)


def _is_run(shop: Shop, tenant: str) -> bool:
    before = shop.charged().count(tenant)
    job = shop.charge.enqueue(tenant)
    wait_until(
        lambda: shop.charged().count(tenant) > before or "dead" in shop.type("job", "show", job.id),
        "it ended",
        DEADLINE_S,
    )
    return shop.charged().count(tenant) > before


def test_what_a_task_logged_is_shown_with_its_job(shop: Shop) -> None:
    job = shop.talk.using(tags=["acme"]).enqueue(3)

    wait_until(lambda: "said words=3" in shop.type("job", "show", job.id), "the lines are there", DEADLINE_S)
    told = shop.type("job", "show", job.id)

    assert "word 2, token=" in told
    assert "abc123" not in told
    assert "tags          acme" in told
    assert json.loads(shop.type("job", "show", job.id, "--json", "--args"))["log"][0]["attempt"] == 1


def test_jobs_are_found_by_tag_while_they_live_and_after_they_ended(shop: Shop) -> None:
    job = shop.charge.using(tags=["import-7"]).enqueue("tagged")
    job.result(timeout=DEADLINE_S)

    found = json.loads(shop.type("job", "list", "state:succeeded", "tag:import-7", "tag:money", "--json"))

    assert [each["id"] for each in found["jobs"]] == [job.id]
    assert found["jobs"][0]["tags"] == ["money", "import-7"]


def test_statistics_tell_of_runs_by_task(shop: Shop) -> None:
    shop.charge.enqueue("counted").result(timeout=DEADLINE_S)

    wait_until(
        lambda: json.loads(shop.type("stats", "--json", "-t", "charge"))["rows"],
        "figures are kept",
        DEADLINE_S,
    )
    (row,) = json.loads(shop.type("stats", "--json", "--last", "1d", "-t", "charge"))["rows"]
    screen = shop.type("stats")

    assert row["task"] == "shop.charge"
    assert row["runs"] >= 1
    assert row["run_ms"][1] is not None
    assert "shop.charge" in screen
