"""Every example runs as its first lines say: a node in one terminal, the script in another, in a folder."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.deadline import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEADLINE_S = 30.0

# What the script tells its reader, line by line; of one that is not named here, anything will do.
EXPECTED = {
    "quickstart": [r"\w+ → Hello, world!", r"Hello, reader 999!"],
    "retries": [
        r"order 7 charged at attempt 3",
        r"ready after 4 looks",
        r"given up at once \(not_retried\): CardRefused: order 8: the card was reported stolen",
        r"retries.charge_stolen_card is a dead letter; .*",
    ],
    "rate_limits": [
        r"18 mails enqueued; meanwhile price\(21\) = 42",
        *[rf"  +\d\.\d s: +{sent} sent, the last one 'mail \d to \w+'" for sent in (6, 12, 18)],
        # At 5 a second, of which the first goes at once, six take a second.
        r"18 mails in (0\.9|[1-9]\.\d) s: six to each customer, one every fifth of a second",
    ],
    # Some are in line before the others come; the rest of the flood waits for its turn.
    "fair_share": [r"gold and small are done; of the flood 1?\d?\d of 200 were made meanwhile"],
    "async_crawler": [r"200 pages, 199 links in \d+\.\d s; one after the other it takes 40 s"],
}
WITHOUT_A_NODE = {"demo", "shop", "testing_an_app", "spark_million", "web_fastapi", "web_flask"}
"""Starts its own; is the tasks of that one; needs none; is run by tests/pipeline; by test_frameworks.py."""
WITH_A_NODE = sorted({path.stem for path in EXAMPLES.glob("*.py")} - WITHOUT_A_NODE)

# The demo with fewer of the tasks that take their time by design: retried ones and limited ones.
DEMO_WITH = {
    "TASKS = 6_000": "TASKS = 5_190",
    "for order in range(500)": "for order in range(50)",
    "for number in range(200)": "for number in range(20)",
    "for page in range(200)": "for page in range(20)",
}


@pytest.mark.parametrize("name", WITH_A_NODE)
def test_an_example_does_what_it_says(name: str, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / f"{name}.py", tmp_path)

    with node(name, tmp_path):
        output = run_script(tmp_path / f"{name}.py")

    lines = output.splitlines()
    expected = EXPECTED.get(name, [".+"])
    assert len(lines) >= len(expected), output
    for line, pattern in zip(lines, expected, strict=False):
        assert re.fullmatch(pattern, line), output


def test_the_example_of_tests_passes_under_pytest(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "testing_an_app.py", tmp_path)

    assert "2 passed" in run_script(tmp_path / "testing_an_app.py")


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo, in a folder, with fewer tasks."""
    shutil.copy(EXAMPLES / "shop.py", tmp_path)
    text = (EXAMPLES / "demo.py").read_text()
    for old, new in DEMO_WITH.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "demo.py").write_text(text)
    return tmp_path / "demo.py"


def test_the_demo_loses_nothing_although_workers_are_killed(demo: Path) -> None:
    output = run_script(demo)

    assert output.count("kill -9") == 2
    assert "\r" not in output
    assert "\x1b" not in output, "a log has plain lines"
    progress = re.findall(r"(?m)^ +\d+\.\d s +[\d,]+ of 5,190 done", output)
    assert 2 <= len(progress) <= DEADLINE_S + 2, "a line a second at the most"
    assert "make demo-web" in output.splitlines()[-1]
    assert "Nothing was lost." in output
    assert "price(4999, 2) = 9998" in output
    assert "5,190 enqueued, 5,150 succeeded" in output


@pytest.mark.parametrize("no_color", ["", "1"])
def test_the_demo_moves_on_a_terminal_and_has_colours_unless_they_are_unwanted(
    demo: Path, no_color: str
) -> None:
    shown = on_terminal(demo, {"TERM": "xterm-256color", "NO_COLOR": no_color})

    assert re.search(r"\x1b\[4A", shown), "lines are drawn over"
    assert bool(re.search(r"\x1b\[\d+m", shown)) is (no_color == "")
    assert "default" in shown
    assert "█" in shown
    assert shown.count("kill -9") == 2
    assert "Nothing was lost." in shown


def on_terminal(script: Path, variables: dict[str, str]) -> str:
    """What it writes to a terminal, when it ends well."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, script.name],
        cwd=script.parent,
        env=environment() | variables,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal whose last writer has gone
        while part := os.read(ours, 65_536):
            shown += part
    os.close(ours)
    assert running.wait(DEADLINE_S) == 0, shown.decode()
    return shown.decode()


@contextmanager
def node(name: str, folder: Path) -> Iterator[None]:
    """`mqworker run NAME:app` in that folder, until the block ends."""
    command = [sys.executable, "-m", "mqworker", "run", f"{name}:app", "--workers", "1"]
    log = folder / "node.log"
    with log.open("wb") as output:
        running = subprocess.Popen(command, cwd=folder, env=environment(), stdout=output, stderr=output)
    try:
        wait_until(
            lambda: (folder / ".mqworker").exists() or running.poll() is not None,
            "the node began",
            DEADLINE_S,
        )
        yield
        assert running.poll() is None, log.read_text()
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(timeout=DEADLINE_S)


def run_script(script: Path) -> str:
    """What it prints, when it ends well."""
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=script.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    """Ours without settings of mqworker: examples begin with nothing."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")}
