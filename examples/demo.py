"""`make demo`: a node, thousands of tasks of every kind, a kill -9 in the middle, and the status screen.

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
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
TASKS = 6_000


def main() -> int:
    """Show it."""
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

    began = time.monotonic()
    prices = shop.price.enqueue_many([(item, 2) for item in range(5_000)])
    shop.resize.enqueue_many([(image,) for image in range(60)])
    shop.charge.enqueue_many([(order,) for order in range(500)])
    shop.refuse.enqueue_many([(order,) for order in range(40)])
    shop.send_mail.enqueue_many([(f"customer{number}@example.org",) for number in range(200)])
    shop.fetch.enqueue_many([(page,) for page in range(200)])
    say(f"Enqueued {TASKS:,} tasks: quick, slow, failing, hopeless, rate-limited and async ones")

    queues = {name: shop.app.work_queue(name) for name in ("default", "images", "mail")}
    killed = 0
    while True:
        counts = {name: queue.counts() for name, queue in queues.items()}
        done = sum(count.totals.get("succeeded", 0) for count in counts.values())
        retried = sum(count.totals.get("retried", 0) for count in counts.values())
        dead = sum(count.dead for count in counts.values())
        print(f"\r  {done:>5,} done   {retried:>5,} retried   {dead:>3} dead ", end="", flush=True)
        if done + dead >= TASKS:
            break
        if node.poll() is not None:
            print(
                f"\nthe node ended with exit code {node.returncode}:\n{Path('node.log').read_text()[-2000:]}"
            )
            return 1
        if killed < 2 and done > (killed + 1) * 1_500:
            killed += kill_a_worker(node.pid)
        time.sleep(0.1)
    print(f"in {time.monotonic() - began:.1f} s")

    say("Nothing was lost. A result, and why a hopeless one is dead:")
    print(f"  price(4999, 2) = {prices[-1].result(timeout=5)}")
    letter = queues["default"].dead_letters(0, 1)[0]
    print(f"  {letter.message and letter.message.task}: {letter.error}: {letter.error_message}")
    say("The status screen (mqworker status):")
    sys.stdout.flush()
    mqworker("status").wait()
    if "--web" not in sys.argv:
        say("The same in a browser, live: make demo-web; beside a node of your own: mqworker web")
    return 0


def watch() -> None:
    """The console, until Ctrl-C."""
    say("The console, until Ctrl-C: why 40 are dead, who was killed, what each job went through")
    with contextlib.suppress(KeyboardInterrupt):
        mqworker("web").wait()


def kill_a_worker(supervisor: int) -> int:
    """SIGKILL for a process that runs tasks, as the kernel does it when memory runs out."""
    import psutil  # noqa: PLC0415 - only the demo needs it

    workers = [child for child in psutil.Process(supervisor).children() if child.status() != "zombie"]
    if not workers:
        return 0
    victim = workers[-1]
    victim.kill()
    print(f"\n  kill -9 {victim.pid}: the last process that the supervisor started, a worker")
    return 1


def mqworker(
    *arguments: str, stdout: int | None = None, stderr: IO[bytes] | None = None
) -> "subprocess.Popen[bytes]":
    """The command line, as a user types it."""
    return subprocess.Popen([sys.executable, "-m", "mqworker", *arguments], stdout=stdout, stderr=stderr)


def say(text: str) -> None:
    """A line of the story."""
    print(f"\n● {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
