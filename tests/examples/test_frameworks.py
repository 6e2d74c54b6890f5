"""Web frameworks and servers as people run them: over real sockets, with a node beside them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer, free_port

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


def ask(url: str, body: object = None, *, method: str = "GET") -> tuple[int, Any]:
    """The status and the JSON of an answer; status 0 while nobody listens."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback
            text = answer.read().decode()
            return answer.status, json.loads(text) if text[:1] in "{[" else text
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")
    except OSError:
        return 0, None


@contextmanager
def serving(directory: Path, url: str, *command: str, redis_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A web server, until the block ends; it ends at SIGTERM as it should."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=directory,
        env=os.environ | {"MQWORKER_REDIS_URL": redis_url, "PYTHONPATH": f"{directory}:{ROOT}"},
        start_new_session=True,
    )
    try:
        wait_until(lambda: ask(f"{url}/health")[0], "it listens", DEADLINE_S)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(DEADLINE_S)


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


def the_job_ends(url: str, job: str, price: int) -> None:
    wait_until(lambda: ask(f"{url}/orders/{job}")[1]["status"] == "succeeded", "it is priced", DEADLINE_S)
    assert ask(f"{url}/orders/{job}") == (200, {"status": "succeeded", "price": price})


@pytest.mark.parametrize("workers", [1, 2])
def test_fastapi_under_uvicorn(tmp_path: Path, server: RealServer, workers: int) -> None:
    pytest.importorskip("fastapi")
    shutil.copy(ROOT / "examples" / "web_fastapi.py", tmp_path)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ("uvicorn", "web_fastapi:web", "--port", str(port), "--workers", str(workers))
    node = RealNode(server.url, "web_fastapi:tasks", settings={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    with node, serving(tmp_path, url, *command, redis_url=server.url):
        assert ask(f"{url}/health") == (200, {"redis": "ok"})
        for count in range(1, 9):
            status, answer = ask(f"{url}/orders", {"article": "tea", "count": count}, method="POST")
            assert status == 202
            the_job_ends(url, answer["id"], 250 * count)
        assert ask(f"{url}/orders", {"article": "tea", "count": 0}, method="POST")[0] == 422
        status, page = ask(f"{url}/mqworker/")
        assert status == 200
        assert "mqworker" in page
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert ask(f"{url}/health")[0] == 503
        finally:
            os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", ["flask", "gunicorn with preload"])
def test_flask_and_a_fork_after_the_first_use_of_the_producer(
    tmp_path: Path, server: RealServer, kind: str
) -> None:
    pytest.importorskip("flask")
    shutil.copy(ROOT / "examples" / "web_flask.py", tmp_path)
    # Used before the fork: each child must have connections of its own.
    (tmp_path / "preloaded.py").write_text(
        textwrap.dedent(
            """
            from web_flask import price, web

            jobs = [price.delay(number) for number in range(3)]
            """
        )
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    commands = {
        "flask": ("flask", "--app", "web_flask:web", "run", "--port", str(port)),
        "gunicorn with preload": (
            *("gunicorn", "preloaded:web", "--preload", "--workers", "3", "--bind", f"127.0.0.1:{port}"),
        ),
    }
    node = RealNode(server.url, "web_flask:tasks", settings={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    with node, serving(tmp_path, url, *commands[kind], redis_url=server.url):
        ids = [ask(f"{url}/orders/{count}", method="POST")[1]["id"] for count in range(1, 31)]
        assert len(set(ids)) == 30
        for count, job in enumerate(ids, 1):
            the_job_ends(url, job, 250 * count)


RECIPES = {
    "asyncio script": """
        import asyncio
        from recipe_tasks import app, double

        async def main() -> None:
            jobs = await double.aenqueue_many((number,) for number in range(10))
            print(sum([await job.aresult(timeout=30) for job in jobs]))
            await app.aclose()

        asyncio.run(main())
    """,
    "click command": """
        import click
        from recipe_tasks import double

        @click.command()
        @click.argument("most", type=int)
        def command(most: int) -> None:
            click.echo(sum(double.delay(number).result(timeout=30) for number in range(most)))

        command(["10"])
    """,
    "multiprocessing after the first use": """
        import multiprocessing
        from recipe_tasks import double

        def work(number: int) -> int:
            return double.delay(number).result(timeout=30)

        if __name__ == "__main__":
            assert double.delay(1).result(timeout=30) == 2
            with multiprocessing.get_context("fork").Pool(3) as pool:
                total = sum(pool.map(work, range(10)))
            assert double.delay(1).result(timeout=30) == 2  # those of the parent still work
            print(total)
    """,
    "a notebook, where a loop runs already": """
        import asyncio
        from recipe_tasks import double

        async def cell() -> None:
            # A cell may call the sync verbs, which do not touch the loop, or await the others.
            job = double.delay(1)
            total = sum([await (await double.aenqueue(number)).aresult(timeout=30) for number in range(10)])
            assert await job.aresult(timeout=30) == 2
            print(total)
            from recipe_tasks import app
            await app.aclose()

        loop = asyncio.new_event_loop()
        loop.run_until_complete(cell())
        loop.close()
    """,
}
TASKS = """
from mqworker import App

app = App("recipes")


@app.task
def double(number: int) -> int:
    return number * 2
"""


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    directory = tmp_path_factory.mktemp("recipes")
    (directory / "recipe_tasks.py").write_text(TASKS)
    settings = {"PYTHONPATH": f"{directory}:{ROOT}"}
    with RealServer() as server, RealNode(server.url, "recipe_tasks:app", settings=settings):
        yield directory, server.url


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe(recipes: tuple[Path, str], name: str) -> None:
    directory, redis_url = recipes
    script = directory / "recipe.py"
    script.write_text(textwrap.dedent(RECIPES[name]))

    ran = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=directory,
        env=os.environ | {"MQWORKER_REDIS_URL": redis_url, "PYTHONPATH": f"{directory}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert (ran.stdout.strip(), ran.stderr, ran.returncode) == ("90", "", 0)
