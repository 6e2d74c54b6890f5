"""The console as a person uses it: Chromium against a running node whose workers are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from mqworker import App, chain, group
from mqworker.model.instant import After
from mqworker.model.names import TaskName
from mqworker.operate.audit import read_audit
from mqworker.operate.causes import read_causes
from mqworker.operate.schedules import read_schedule
from mqworker.operate.system import System, opened
from mqworker.settings import Settings
from tests.services.web.web_browser import Browser
from tests.support.deadline import wait_until
from tests.support.messages import a_message
from tests.support.real_node import ROOT, RealNode
from tests.support.real_server import RealServer, free_port

APP = """
import time
from mqworker import App, Context, Retry

app = App("shop")

@app.task
def price(item: int) -> int:
    return item * 2

@app.task(queue="images")
def resize(image: int) -> None:
    time.sleep(60)

@app.task(queue="long")
def watch(ctx: Context, camera: int, password: str) -> None:
    ctx.progress(1, 4)
    time.sleep(5)

@app.task(rate="1/h", queue="slow")
def mail(tenant: str) -> None: ...

@app.schedule("0 3 1 1 *", name="yearly")
def yearly() -> None: ...

@app.task(retry=Retry(max=2, first=0.05))
def charge(order: int, tenant: str) -> None:
    raise ValueError(f"order {order} has no address <script>alert(1)</script>")
"""
DEADLINE_S = 60.0


class Scene:
    """A server, a node with two workers, and the console; all of them processes."""

    def __init__(self, server: RealServer, node: RealNode, system: System) -> None:
        self.server, self.node, self.system = server, node, system
        self.origin = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start_console(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mqworker", "web", "--listen", self.origin.removeprefix("http://")],
            env=os.environ
            | {"PYTHONPATH": f"{ROOT}:{ROOT / 'services'}", "MQWORKER_REDIS_URL": self.server.url},
            cwd=self.node.directory,
            stdin=subprocess.DEVNULL,
        )
        wait_until(self._answers, "the console answers", DEADLINE_S)

    def stop_console(self) -> int:
        """TERM; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(10)

    @property
    def console_title(self) -> str:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/cmdline").read_text().rstrip("\0")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"{self.origin}/").status_code == 200
        except httpx2.TransportError:
            return False


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with RealServer() as server:
        node = RealNode(server.url, "shop:app", settings={"MQWORKER_WORKERS": "2", "MQWORKER_NODE": "web-1"})
        (node.directory / "shop.py").write_text(APP)
        settings = Settings(redis_url=server.url)
        with node, opened(settings, client_name="mqw-test", retry_for_ms=0) as system:
            made = Scene(server, node, system)
            try:
                made.start_console()
                enqueue(system, "charge", 5)
                enqueue(system, "price", 200)
                wait_until(
                    lambda: system.open_queue("default").counts().dead == 5, "five are dead", DEADLINE_S
                )
                yield made
            finally:
                made.close()


@pytest.fixture(scope="module")
def browser(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened_browser = Browser(scene.origin, str(tmp_path_factory.mktemp("profile")))
    yield opened_browser
    opened_browser.close()


@pytest.fixture(autouse=True)
def _no_complaints(browser: Browser, scene: Scene) -> Iterator[None]:
    """Whatever a test does: nothing is logged, and nobody but the console is asked for anything."""
    browser.complaints()
    browser.hosts()
    yield
    assert browser.complaints() == []
    assert browser.hosts() <= {scene.origin.removeprefix("http://")}


def console_idle_s(server: RealServer) -> int:
    """For how long the console has sent nothing to Redis."""
    with server.client() as client:
        clients = [each for each in client.client_list() if each["name"].startswith("mqworker-console")]
    return min(int(each["idle"]) for each in clients)


def enqueue(system: System, task: str, count: int, queue: str = "default", **options: object) -> list[str]:
    from mqworker.model.envelope import encode_call  # noqa: PLC0415 - only here

    bodies = [
        encode_call([number], {"tenant": "acme"} if task == "charge" else {}) for number in range(count)
    ]
    messages = [a_message(body, task=TaskName(f"shop.{task}"), **options) for body in bodies]
    system.open_queue(queue).enqueue(*messages)
    return [message.id for message in messages]


def front(scene: Scene) -> App:
    return App("front", settings=scene.system.settings)


def a_workflow(scene: Scene) -> str:
    app = front(scene)
    price = app.named("shop.price")
    job = chain(group(price.s(number) for number in range(9)), price.si(1)).enqueue()
    app.close()
    return str(job.id)


@pytest.mark.parametrize("width", [400, 800, 1_600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_its_window_without_a_complaint(
    browser: Browser, scene: Scene, width: int, scheme: str
) -> None:
    (cause,) = read_causes(scene.system).causes
    browser.resize(width, 900)
    browser.prefer(scheme)

    for path in (
        "/",
        "/queue?name=default",
        f"/job?id={cause.ids[0]}",
        "/search",
        "/search?q=state:succeeded",
        "/dead",
        "/audit",
        "/schedules",
        "/schedule?name=shop/yearly",
        "/workflows",
        f"/workflow?id={a_workflow(scene)}",
        "/limits",
        "/models",
        "/gateways",
        "/accidents",
    ):
        browser.open(path)

        assert browser.too_wide() == [], (path, width)
        assert "mqworker" in browser.text()
    browser.resize(1_600, 1_000)


def test_the_console_is_called_so_where_processes_are_listed(scene: Scene) -> None:
    assert scene.console_title == "mqworker: web"


def test_in_a_narrow_window_the_pages_are_in_a_menu_that_keys_open(browser: Browser) -> None:
    browser.resize(400, 900)
    browser.open("/")
    browser.wait_until("document.querySelector('.top').getBoundingClientRect().height < 100")

    browser.value_of("document.querySelector('button.menu').focus()")
    browser.keys("\ue007")
    browser.wait_until("document.querySelector('nav').getBoundingClientRect().height > 100")
    is_whole = (
        "each => each.getClientRects().length === 1 && each.getBoundingClientRect().right <= innerWidth"
    )
    assert browser.value_of(f"[...document.querySelectorAll('nav a')].every({is_whole})")
    browser.value_of("document.querySelector('nav a[data-key=l]').focus()")
    browser.keys("\ue007")

    browser.wait_for("Limits and fairness")
    browser.resize(1_600, 1_000)
    browser.wait_until("document.querySelector('button.menu').offsetWidth === 0")


def test_the_overview_is_live_and_tells_of_a_killed_worker(browser: Browser, scene: Scene) -> None:
    browser.open("/")
    browser.wait_for("live")
    browser.wait_for("worker:1")
    assert browser.value_of("document.querySelectorAll('.plot canvas').length") == 2
    (held,) = enqueue(scene.system, "resize", 1, "images")
    browser.wait_for(held)  # what a worker runs appears by itself

    scene.node.kill("worker:0")
    scene.node.kill("worker:1")

    browser.wait_for("SIGKILL")
    scene.system.store.run(scene.system.open_queue("images").calls.request_cancel(held))  # type: ignore[arg-type]


def test_a_key_pauses_and_goes_on(browser: Browser, scene: Scene) -> None:
    browser.open("/")
    browser.wait_for("live")

    browser.keys("p")
    browser.wait_for("paused")
    enqueue(scene.system, "price", 1, "late", due=After(3_600_000))
    assert "late" not in browser.text()
    browser.keys("p")

    browser.wait_for("late")


def test_while_the_tab_is_hidden_nobody_asks_redis(browser: Browser, scene: Scene) -> None:
    browser.open("/")
    browser.wait_for("live")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true}),"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"

    browser.value_of(f"({hide % 'true'} {tell})")

    wait_until(lambda: console_idle_s(scene.server) >= 4, "the console asks for nothing", DEADLINE_S)
    browser.value_of(f"({hide % 'false'} {tell})")
    wait_until(lambda: console_idle_s(scene.server) <= 1, "it asks again", DEADLINE_S)


def test_a_job_is_found_by_its_argument_with_the_keyboard_alone(browser: Browser, scene: Scene) -> None:
    browser.open("/")
    browser.keys("/")
    browser.keys("args.tenant:acme state:dead", "\ue007")

    browser.wait_for("5 fit")
    browser.click("#results a.id")

    browser.wait_for("dead since")
    browser.wait_for("has no address <script>")  # as text: the page is not harmed
    assert browser.text().count("retried") >= 2
    assert scene.system.open_queue("default").counts().dead == 5


def test_a_queue_is_paused_and_resumed(browser: Browser, scene: Scene) -> None:
    browser.open("/queue?name=default")
    browser.click("a.button[hx-get*=pause]")
    browser.wait_for("mqworker queue pause default")
    browser.keys("\ue007")  # Enter: what does no harm has the focus

    browser.wait_for("queue default is paused")
    assert scene.system.open_queue("default").counts().is_paused
    browser.click("a.button[hx-get*=resume]")
    browser.wait_for("mqworker queue resume default")
    browser.click("dialog button")

    browser.wait_for("hands out messages again")
    assert not scene.system.open_queue("default").counts().is_paused


def test_a_waiting_job_is_cancelled(browser: Browser, scene: Scene) -> None:
    (waiting,) = enqueue(scene.system, "price", 1, due=After(3_600_000))
    browser.open(f"/job?id={waiting}")
    browser.wait_for("delayed until")
    browser.click("a.button.danger")
    browser.wait_for(f"mqworker job cancel {waiting} -q default")
    browser.keys("\ue007")  # Enter: what destroys has not the focus

    assert scene.system.open_queue("default").find(waiting).state == "delayed"
    browser.click("a.button.danger")
    browser.wait_for(f"mqworker job cancel {waiting} -q default")
    browser.click("dialog button.danger")

    browser.wait_for(f"{waiting} of queue default is cancelled")
    assert scene.system.open_queue("default").find(waiting).state == "cancelled"


def test_dead_letters_are_retried_and_dropped_as_a_group(browser: Browser, scene: Scene) -> None:
    browser.open("/dead")
    browser.wait_for("shop.py")
    browser.click("a.button[hx-get*=retry-cause]")
    browser.wait_for("5 dead letters of queue default died of this cause")
    browser.click("dialog button.primary")

    browser.wait_for("5 dead letters of queue default back in line")
    wait_until(
        lambda: scene.system.open_queue("default").counts().totals["buried"] == 10, "dead again", DEADLINE_S
    )
    browser.open("/dead")
    browser.click("a.button[hx-get*=drop-cause]")
    browser.wait_for("mqworker dead drop --cause")
    browser.click("dialog button.danger")

    browser.wait_for("5 dead letters of queue default thrown away")
    assert scene.system.open_queue("default").counts().dead == 0
    assert [noted.deed.action for noted in read_audit(scene.system)][:2] == ["drop-cause", "retry-cause"]
    browser.open("/audit")
    assert "mqworker dead retry --cause" in browser.text()


def test_a_refused_action_is_told_in_the_dialog(browser: Browser, scene: Scene) -> None:
    (waiting,) = enqueue(scene.system, "price", 1, due=After(3_600_000))
    browser.open(f"/job?id={waiting}")
    browser.wait_for("live")
    browser.keys("p")  # or the button would be gone by itself
    browser.wait_for("paused")
    scene.system.open_queue("default").cancel(waiting)

    browser.click("a.button.danger")

    browser.wait_for("there is nothing to cancel")
    complaints = browser.complaints()  # a browser notes each answer of 400 and more
    assert all("404" in each or "409" in each for each in complaints), complaints


def test_a_schedule_is_paused_resumed_and_run_now(browser: Browser, scene: Scene) -> None:
    browser.open("/schedules")
    browser.wait_for("shop/yearly")
    browser.click("a.button[hx-get*=pause-schedule]")
    browser.wait_for("mqworker schedule pause shop/yearly")
    browser.click("dialog button")

    browser.wait_for("schedule shop/yearly is paused")
    assert read_schedule(scene.system, "shop/yearly")[1].paused_at_ms is not None
    browser.open("/schedule?name=shop/yearly")
    browser.click("a.button[hx-get*=run-schedule]")
    browser.wait_for("mqworker schedule run-now shop/yearly")
    browser.click("dialog button")
    browser.wait_for("the call of schedule shop/yearly is job")
    browser.click("a.button[hx-get*=resume-schedule]")
    browser.wait_for("mqworker schedule resume shop/yearly")
    browser.click("dialog button")

    browser.wait_for("fires again")
    assert read_schedule(scene.system, "shop/yearly")[1].paused_at_ms is None
    actions = [noted.deed.action for noted in read_audit(scene.system)][:3]
    assert actions == ["resume-schedule", "run-schedule", "pause-schedule"]


def test_a_workflow_is_drawn_and_found_by_its_id_among_jobs(browser: Browser, scene: Scene) -> None:
    flow = a_workflow(scene)
    browser.open(f"/job?id={flow}")

    browser.wait_for("10 members: 10 succeeded")  # live: it ends while one looks
    assert browser.value_of("document.querySelectorAll('.graph .box').length") == 2
    assert browser.value_of("location.pathname") == "/workflow"


def test_a_limit_tells_who_waits_and_when_the_next_may_start(browser: Browser, scene: Scene) -> None:
    app = front(scene)
    for _ in range(3):
        app.send("shop.mail", "acme")
    app.close()
    browser.open("/limits")

    browser.wait_for("2 wait, for 1 combination of limits")
    browser.wait_for("in 59 min")


def test_what_a_worker_runs_is_shown_with_its_progress_and_secrets_masked(
    browser: Browser, scene: Scene
) -> None:
    app = front(scene)
    app.send("shop.watch", 7, password="hunter2")  # noqa: S106 - made up
    app.close()
    browser.open("/")

    browser.wait_for("password=***")
    browser.wait_for("25 %")
    assert "hunter2" not in browser.text()


def test_a_killed_worker_stands_among_the_accidents(browser: Browser, scene: Scene) -> None:
    browser.open("/accidents")
    browser.wait_for("live")
    (held,) = enqueue(scene.system, "resize", 1, "images")
    wait_until(lambda: scene.system.open_queue("images").counts().leased == 1, "it runs", DEADLINE_S)

    for worker in ("worker:0", "worker:1"):
        scene.node.kill(worker)

    browser.wait_for(held)
    browser.wait_for("runs again, alone in a worker")
    scene.system.store.run(scene.system.open_queue("images").calls.request_kill(held))  # type: ignore[arg-type]


def test_while_redis_is_away_a_page_keeps_its_last_picture(browser: Browser, scene: Scene) -> None:
    browser.open("/schedules")
    browser.wait_for("live")
    scene.server.pause()
    try:
        browser.wait_for("No Redis")
        assert "shop/yearly" in browser.text()
    finally:
        scene.server.resume()

    browser.wait_until("document.getElementById('pulse').textContent === 'live'")


def test_while_redis_is_away_the_page_says_so_and_recovers(browser: Browser, scene: Scene) -> None:
    browser.open("/")
    browser.wait_for("live")
    scene.server.pause()
    try:
        browser.wait_for("No Redis")
        browser.wait_for("the last picture")
        assert "default" in browser.text()
    finally:
        scene.server.resume()

    browser.wait_until("document.getElementById('pulse').textContent === 'live'")


def test_the_console_stops_at_once_though_a_tab_is_open(browser: Browser, scene: Scene) -> None:
    browser.open("/")
    browser.wait_for("live")

    assert scene.stop_console() in {0, -15}
    scene.start_console()
    browser.open("/")
    browser.wait_for("live")
    browser.complaints()  # the broken stream


def test_what_is_sent_for_a_page_is_small(scene: Scene) -> None:
    paths = ["/", "/static/console.css", "/static/console.js"]
    vendor = Path(ROOT / "services/mqworker_services/web/static/vendor")
    paths += [f"/static/vendor/{file.name}" for file in vendor.iterdir() if file.suffix in {".js", ".css"}]

    total = sum(len(httpx2.get(f"{scene.origin}{path}").content) for path in paths)

    assert total <= 200_000
