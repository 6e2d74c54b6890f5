"""`make demo`: a node, thousands of tasks of every kind, a kill -9 in the middle, and the status screen.

On a terminal progress moves, in colour unless NO_COLOR is set; elsewhere it is a line now and then.
`make demo-web` then opens the console on it, and stays until Ctrl-C.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
TASKS = 6_000
QUEUES = ("default", "images", "mail")
FACTS = 64
"""Characters of a line of progress without its bar."""


def main() -> int:
    """Show it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the node is stopped in any case
    with tempfile.TemporaryDirectory(prefix="mqworker-demo-") as folder:
        shutil.copy(HERE / "shop.py", folder)
        os.chdir(folder)
        sys.path.insert(0, folder)
        say("Starting a node: supervisor, actors, two workers and an embedded server (mqworker run shop:app)")
        with Path("node.log").open("wb") as log:
            node = mqworker("run", "shop:app", "--workers", "2", stderr=log)
        try:
            failed = show(node)
            if not failed and "--web" in sys.argv:
                watch()
            return failed
        finally:
            node.send_signal(signal.SIGTERM)
            node.wait(timeout=20)
            mqworker("redis", "--stop", stdout=subprocess.DEVNULL).wait()  # nobody comes back to this folder


def show(node: "subprocess.Popen[bytes]") -> int:
    """Enqueue, watch, kill, count."""
    import shop  # noqa: PLC0415 - it is in the demo's folder

    progress = Progress(sys.stdout)
    prices = shop.price.enqueue_many([(item, 2) for item in range(5_000)])
    shop.resize.enqueue_many([(image,) for image in range(60)])
    shop.charge.enqueue_many([(order,) for order in range(500)])
    shop.refuse.enqueue_many([(order,) for order in range(40)])
    shop.send_mail.enqueue_many([(f"customer{number}@example.org",) for number in range(200)])
    shop.fetch.enqueue_many([(page,) for page in range(200)])
    say(f"Enqueued {TASKS:,} tasks: quick, slow, failing, hopeless, rate-limited and async ones")

    queues = {name: shop.app.work_queue(name) for name in QUEUES}
    killed = 0
    while True:
        counts = {name: queue.counts() for name, queue in queues.items()}
        rows = {name: Row(each.totals, each.leased, each.dead) for name, each in counts.items()}
        done = sum(row.ended for row in rows.values())
        progress.update(rows, is_last=done >= TASKS)
        if done >= TASKS:
            break
        if node.poll() is not None:
            log = Path("node.log").read_text(encoding="utf-8")[-2000:]
            say(f"The node ended with exit code {node.returncode}:\n{log}")
            return 1
        if killed < 2 and done > (killed + 1) * 1_500 and (victim := kill_a_worker(node.pid)):
            killed += 1
            progress.note(f"kill -9 {victim}: a worker; what it had begun runs again, one by one at first")
        time.sleep(0.1)

    say("Nothing was lost. A result, and why a hopeless one is dead:")
    print(f"  price(4999, 2) = {prices[-1].result(timeout=5)}")
    letter = queues["default"].dead_letters(0, 1)[0]
    print(f"  {letter.message and letter.message.task}: {letter.error}: {letter.error_message}")
    say("The status screen (mqworker status):")
    mqworker("status").wait()
    if "--web" not in sys.argv:
        say("The same in a browser, live: make demo-web; beside a node of your own: mqworker web")
    return 0


class Row:
    """How far one queue has come."""

    def __init__(self, totals: Mapping[str, int], running: int, dead: int) -> None:
        self.enqueued, self.retried = totals.get("enqueued", 0), totals.get("retried", 0)
        self.ended = totals.get("succeeded", 0) + dead
        self.running, self.dead = running, dead


class Progress:
    """What is shown while tasks run: lines that are drawn over on a terminal, else one a second."""

    def __init__(self, screen: IO[str]) -> None:
        self._screen = screen
        # A line that is too long for the terminal would wrap, and the next one be drawn at the wrong place.
        is_wide = shutil.get_terminal_size().columns >= FACTS + 8
        self._is_live = screen.isatty() and os.environ.get("TERM", "dumb") != "dumb" and is_wide
        self._began = time.monotonic()
        self._drawn, self._next_s = 0, 0.0

    def update(self, rows: dict[str, Row], *, is_last: bool) -> None:
        """Show where it is now."""
        at_s = time.monotonic() - self._began
        if self._is_live:
            lines = [_bar(name, row) for name, row in rows.items()]
            self._draw([*lines, f"  {styled('2', self._summary(rows, at_s))}"])
            self._drawn = 0 if is_last else len(rows) + 1
        elif is_last or at_s >= self._next_s:
            self._next_s = at_s + 1
            print(f"  {self._summary(rows, at_s)}", file=self._screen, flush=True)

    def note(self, text: str) -> None:
        """A line that stays, above those that move."""
        self._draw([f"  {styled('31', text)}"])
        self._drawn = 0

    def _draw(self, lines: list[str]) -> None:
        """Over what was drawn last, in one write: nothing flickers."""
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        end = "\x1b[K\n" if self._is_live else "\n"
        self._screen.write(up + "".join(line + end for line in lines) + ("\x1b[J" if self._is_live else ""))
        self._screen.flush()

    def _summary(self, rows: dict[str, Row], at_s: float) -> str:
        done, retried, dead = (
            sum(getattr(row, name) for row in rows.values()) for name in ("ended", "retried", "dead")
        )
        return f"{at_s:4.1f} s  {done:>5,} of {TASKS:,} done  {retried:>3,} retried  {dead:>2,} dead"


def _bar(name: str, row: Row) -> str:
    width = min(40, shutil.get_terminal_size().columns - FACTS)
    full = width * row.ended // max(1, row.enqueued)
    bar = styled("32", "█" * full) + styled("2", "░" * (width - full))
    facts = [f"{row.ended:>5,} of {row.enqueued:,}", f"{row.running} running"]
    facts += [f"{row.retried:,} retried"] if row.retried else []
    facts += [styled("31", f"{row.dead} dead")] if row.dead else []
    return f"  {name:<8} {bar} {'  '.join(facts)}"


def styled(code: str, text: str) -> str:
    """In colour where that is wanted: on a terminal, and without NO_COLOR."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{text}\x1b[0m" if wanted else text


def watch() -> None:
    """The console, until Ctrl-C."""
    say("The console, until Ctrl-C: why 40 are dead, who was killed, what each job went through")
    with contextlib.suppress(KeyboardInterrupt):
        mqworker("web").wait()


def kill_a_worker(supervisor: int) -> int | None:
    """SIGKILL for a process that runs tasks, as the kernel does it when memory runs out; its id."""
    import psutil  # noqa: PLC0415 - only the demo needs it

    children = psutil.Process(supervisor).children()
    workers = [child for child in children if child.status() != "zombie"]
    if not workers:
        return None
    victim = workers[-1]  # the supervisor starts workers last
    victim.kill()
    return victim.pid


def mqworker(
    *arguments: str, stdout: int | None = None, stderr: IO[bytes] | None = None
) -> "subprocess.Popen[bytes]":
    """The command line, as a user types it."""
    return subprocess.Popen([sys.executable, "-m", "mqworker", *arguments], stdout=stdout, stderr=stderr)


def say(text: str) -> None:
    """A line of the story."""
    print(f"\n{styled('1', f'● {text}')}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
