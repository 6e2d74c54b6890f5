"""Finding and acting as a person does it: Chromium, the console as a process, and what is so in Redis."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from mqworker.actors.dispatcher.figures import FiguresBook
from mqworker.model.clock import SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import decode_call
from mqworker.model.figures import Figures
from mqworker.model.names import MessageId, TaskName
from mqworker.operate.audit import read_audit
from mqworker.operate.strikes import add_strike, read_strikes
from mqworker.operate.system import System, opened
from mqworker.queues.work.trace import read_letter
from mqworker.settings import Settings
from mqworker.tasks.context import Context, current
from mqworker.tasks.running.job_log import JobLogs
from tests.services.web.conftest import bury
from tests.services.web.web_browser import Browser
from tests.support.deadline import wait_until
from tests.support.real_node import ROOT
from tests.support.real_server import RealServer, free_port

DEADLINE_S = 60.0
HOSTILE = "<script>alert(1)</script>../\u202eevil"


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with (
        RealServer() as server,
        opened(Settings(redis_url=server.url), client_name="mqw-test", retry_for_ms=0) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def origin(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    origin = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "mqworker", "web", "--listen", origin.removeprefix("http://")],
        env=os.environ
        | {"PYTHONPATH": f"{ROOT}:{ROOT / 'services'}", "MQWORKER_REDIS_URL": str(system.settings.redis_url)},
        cwd=tmp_path_factory.mktemp("console"),
        stdin=subprocess.DEVNULL,
    )

    def answers() -> bool:
        try:
            return httpx2.get(f"{origin}/").status_code == 200
        except httpx2.TransportError:
            return False

    wait_until(answers, "the console answers", DEADLINE_S)
    yield origin
    process.terminate()
    process.wait(10)


@pytest.fixture(scope="module")
def browser(origin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened_browser = Browser(origin, str(tmp_path_factory.mktemp("profile")))
    yield opened_browser
    opened_browser.close()


@pytest.fixture(autouse=True)
def _no_complaints(browser: Browser, origin: str) -> Iterator[None]:
    browser.complaints()
    browser.hosts()
    yield
    assert browser.complaints() == []
    assert browser.hosts() <= {origin.removeprefix("http://")}


def fill(system: System) -> MessageId:
    """Dead letters, figures, a strike and what a task logged; all with hostile names where names are free."""
    message = bury(system, 3, message=HOSTILE, note=HOSTILE)[0]
    add_strike(system, HOSTILE, task="shop.*", where=[f"args.tenant={HOSTILE}"], until="2h", reason=HOSTILE)
    figures, chance = Figures(), random.Random(7)  # noqa: S311 - a picture, no secret
    for task in ("shop.send", "shop.charge", "images.resize"):
        for _ in range(chance.randint(100, 900)):
            outcome = "retried" if chance.random() < 0.03 else "succeeded"
            figures.note(task, "mail", chance.expovariate(1 / 40), chance.expovariate(1 / 12), outcome)
    book = FiguresBook(system.settings.namespace, "n.1.1", system.store.run)
    book.add(figures.take(), 0)
    book.write(0)
    logs = JobLogs(system.open_queue, SystemClock(), 50)
    delivery = Delivery(1, message, TaskName("shop.send"), b"", enqueued_at_ms=0)
    token = current.set(Context(delivery, "mail"))
    for number in range(12):
        logs.note("info", f"page {number} of {HOSTILE}", {"tenant": "acme"})
    current.reset(token)
    logs.send()
    return message


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_fit_every_window_without_a_complaint(
    browser: Browser, system: System, scheme: str
) -> None:
    message = fill(system)
    browser.prefer(scheme)
    shots = os.environ.get("CONSOLE_SHOTS")

    for width in (400, 1_600):
        browser.resize(width, 900)
        for name, path in {
            "stats": "/stats",
            "strikes": "/strikes",
            "bulk": "/bulk?action=retry&q=queue:mail&rate=50",
            "edit": f"/edit?id={message}&queue=mail",
            "job": f"/job?id={message}",
            "search": "/search?q=state:dead",
        }.items():
            browser.open(path)
            assert browser.too_wide() == [], (path, width)
            assert "<script>alert" not in browser.value_of("document.body.innerHTML")
            if shots:
                browser.driver.save_screenshot(str(Path(shots) / f"{name}-{width}-{scheme}.png"))
    browser.resize(1_600, 1_000)


def test_dead_letters_that_a_search_found_go_back_slowly(browser: Browser, system: System) -> None:
    bury(system, 40, queue="slow")

    browser.open("/search?q=queue:slow%20state:dead")
    browser.click("#bulk-actions a")
    browser.wait_for("40 jobs fit.")
    browser.value_of("document.querySelector('[name=rate]').value = '200'")
    browser.click("#bulk button")
    wait_until(lambda: system.open_queue("slow").counts().ready == 40, "all are back", DEADLINE_S)
    wait_until(lambda: read_audit(system)[0].deed.count == 40, "it is audited", DEADLINE_S)
    browser.open("/bulk")

    browser.wait_for("40 jobs back in line")
    assert "--rate 200" in read_audit(system)[0].deed.command


def test_a_dead_letter_gets_other_arguments(browser: Browser, system: System) -> None:
    (message,) = bury(system, 1, queue="edited")

    browser.open(f"/job?id={message}&queue=edited")
    browser.click("a[href*='/edit?']")
    browser.wait_for("Arguments by name")
    browser.value_of(
        "(area => { area.value = area.value.replace('acme', 'other') })"
        "(document.querySelector('[name=kwargs]'))"
    )
    browser.click("form.wideform button.primary")
    browser.wait_for("has other arguments now")

    letter = read_letter(system.open_queue("edited"), message)
    assert letter is not None
    assert letter.message is not None
    assert decode_call(letter.message.body).kwargs == {"tenant": "other", "password": "hunter2"}


def test_calls_are_struck_and_let_go_again(browser: Browser, system: System) -> None:
    known = {strike.id for strike in read_strikes(system)}

    browser.open("/strikes")
    browser.value_of("document.querySelector('[name=task]').value = 'shop.mail'")
    browser.value_of("document.querySelector('[name=where]').value = 'args.tenant=acme'")
    browser.click("form.wideform button")
    browser.wait_for("shop.mail where args.tenant = acme")
    (made,) = [strike for strike in read_strikes(system) if strike.id not in known]
    browser.click(f"form:has([value='{made.id}']) button")

    wait_until(lambda: made.id not in {each.id for each in read_strikes(system)}, "it is gone", DEADLINE_S)


def test_figures_are_drawn(browser: Browser, system: System) -> None:
    fill(system)

    browser.open("/stats")

    browser.wait_for("images.resize")
    browser.wait_until("document.querySelectorAll('.plot canvas').length === 2")
