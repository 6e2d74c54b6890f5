"""One page, tried as a reader would: its files in a folder, a node, its blocks from top to bottom."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from mqworker.supervisor.status_socket import read_snapshots
from tests.docs.console import commands_of, has_shape
from tests.docs.pages import DOCS, ROOT, Block, blocks_of, node_words
from tests.interop.rsmq_clients import CannotInstall, npm_packages
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port

DEADLINE_S = 120.0
LOOK_AGAIN_S = 20.0
RUNNER = Path(__file__).with_name("python_blocks.py")
WELL_KNOWN_PORTS = ("6390", "1734", "10001")
"""Where pages say that gateways listen; each run has ports of its own instead."""
SERVER_PORT = "6379"

_RUNS_A_NODE = re.compile(r"\s*mqworker (run|serve)\b")
_LOOKS = re.compile(r"mqworker (queue (list|show)|job (show|explain)|dead (list|show))\b")
_LOGGED = re.compile(r"console\.log\(.*\);? +// (.+)")
_LISTENS = re.compile(r"127\.0\.0\.1:(\d+)")


class PageRun:
    """A page in the course of being tried."""

    def __init__(self, page: Path, server: RealServer, npm_cache: Path) -> None:
        self.page = page
        self.left_out: list[str] = []
        """Blocks of JavaScript that this machine cannot run, and why."""
        self._npm_cache = npm_cache
        self.folder = Path(tempfile.mkdtemp(prefix="mqw-docs-"))
        self.blocks = [block for block in blocks_of(page) if block.exemption is None]
        self._running: list[subprocess.Popen[bytes]] = []
        self._program: subprocess.Popen[str] | None = None
        self._server = server
        self._ports = {SERVER_PORT: str(server.port)}
        self._ports |= {port: str(free_port()) for port in WELL_KNOWN_PORTS}
        self._is_own_setup = any(
            block.marker == "background" and "mqworker run" in block.code for block in self.blocks
        )
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        self._namespace = re.sub(r"[^a-z0-9]", "", name.lower())[:32]

    def run(self) -> None:
        """Everything, in order."""
        modules = self._write_files()
        if not self._is_own_setup and self._wants_node(modules):
            words = node_words(self.page) or [f"{modules[0]}:app"]
            self._start(["run", *words], self.folder / "node.log")
        for block in self.blocks:
            if block.language == "console":
                self._run_console(block)
            elif block.language == "javascript":
                self._run_javascript(block)
            elif block.is_run and block.title is None:
                self._run_python(block, modules)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._program is not None:
            self._program.kill()
            self._program.communicate()
        for process in reversed(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL if not self._is_own_setup else signal.SIGTERM)
        for process in self._running:
            process.wait(DEADLINE_S)
        if self._is_own_setup:
            self._mqworker("redis", "--stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_files(self) -> list[str]:
        """Blocks with a title are files; several of one title are one. The modules, the first one first."""
        text_by_name: dict[str, str] = {}
        for block in self.blocks:
            if block.title is not None and block.language != "console":
                text_by_name[block.title] = text_by_name.get(block.title, "") + self._local(block.code) + "\n"
        for name, text in text_by_name.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        modules = [
            name for name in text_by_name if name.endswith(".py") and not name.startswith(("test_", "conf"))
        ]
        return [name.removesuffix(".py") for name in modules]

    def _wants_node(self, modules: list[str]) -> bool:
        is_used = any(block.is_run and block.title is None for block in self.blocks)
        return bool(modules) and is_used

    def _run_python(self, block: Block, modules: list[str]) -> None:
        """All Python blocks of a page are one program: each knows what those before it said."""
        if self._program is None:
            self._program = subprocess.Popen(
                [sys.executable, str(RUNNER), *modules[:1]],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        sent = {
            "page": str(self.page.relative_to(ROOT)),
            "line": block.line,
            "code": self._local(block.code),
            "raises": _raises(block),
        }
        self._program.stdin.write(json.dumps(sent) + "\n")
        self._program.stdin.flush()
        ready, _, _ = select.select([self._program.stdout], [], [], DEADLINE_S)
        line = self._program.stdout.readline() if ready else ""
        assert line, f"{block.place}: no answer\n{self._logs()}"
        answer = json.loads(line)
        assert answer["is_well"], f"{block.place}\n{answer['output']}\n{self._logs()}"

    def _run_javascript(self, block: Block) -> None:
        """A program of its own, with the packages that its first line names; what it prints stands behind."""
        try:
            modules = npm_packages_of(block, self._npm_cache)
        except CannotInstall as reason:
            self.left_out.append(f"{block.place}: {reason}")
            return
        script = self.folder / "block.js"
        script.write_text(self._local(block.code), encoding="utf-8")
        environment = self._environment() | {"NODE_PATH": str(modules)}
        done = self._finish(["node", script.name], environment)
        expected = [found[1].strip() for found in _LOGGED.finditer(block.code)]
        assert done.returncode == 0, f"{block.place}\n{done.stdout}{done.stderr}\n{self._logs()}"
        assert has_shape(tuple(expected), done.stdout), f"{block.place}\n{done.stdout}{done.stderr}"

    def _run_console(self, block: Block) -> None:
        commands = commands_of(block.code)
        assert commands, f"{block.place}: no line begins with '$ '"
        for position, command in enumerate(commands):
            text = self._local(command.text)
            if block.marker == "background":
                self._start_in_background(text, block)
                continue
            wanted_exit = _exit_code(block) if position == len(commands) - 1 else 0
            expected = tuple(self._local(line) for line in command.output)
            self._run_command(text, expected, wanted_exit, block)

    def _run_command(self, text: str, expected: tuple[str, ...], wanted_exit: int, block: Block) -> None:
        """A reader who looks too early looks again; anything else is typed once."""
        ends_at = time.monotonic() + (LOOK_AGAIN_S if _LOOKS.match(text) else 0)
        while True:
            done = self._finish(["bash", "-c", text])
            is_well = done.returncode == wanted_exit and has_shape(expected, done.stdout + done.stderr)
            if is_well or time.monotonic() >= ends_at:
                break
        assert is_well, (
            f"{block.place}: $ {text}\nends with {done.returncode}, the page says {wanted_exit}; it prints\n"
            f"{done.stdout}{done.stderr}\n{self._logs()}"
        )

    def _start_in_background(self, text: str, block: Block) -> None:
        log = self.folder / f".background-{len(self._running)}.log"
        if _RUNS_A_NODE.match(text):
            self._start(text.split("#", maxsplit=1)[0].split()[1:], log)
            return
        self._popen(["bash", "-c", text], log)
        assert self._running[-1].poll() is None, block.place

    def _start(self, words: list[str], log: Path) -> None:
        """A node, until it is complete; a gateway, until it listens."""
        already = self._complete_nodes()
        if words[0] == "run" and "--workers" not in words:
            words = [*words, "--workers", "1"]
        process = self._popen([sys.executable, "-m", "mqworker", *words], log)

        def is_there() -> bool:
            assert process.poll() is None, log.read_text()
            return self._complete_nodes() > already

        wait_until(is_there, f"{' '.join(words)} is complete", DEADLINE_S)
        for port in _LISTENS.findall(" ".join(words)):
            wait_until(lambda port=port: _listens(int(port)), f"port {port} listens", DEADLINE_S)

    def _complete_nodes(self) -> int:
        snapshots = read_snapshots(self.folder / ".mqworker", 5.0).values()
        return sum(1 for snapshot in snapshots if snapshot and snapshot["complete"])

    def _popen(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def _finish(
        self, command: list[str], environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment or self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def _mqworker(self, *words: str) -> None:
        self._finish([sys.executable, "-m", "mqworker", *words])

    def _environment(self) -> dict[str, str]:
        """Ours without settings of mqworker; pages that start everything themselves begin with nothing."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        environment["COLUMNS"] = "100"
        environment["PYTHONWARNINGS"] = "error::SyntaxWarning"
        if not self._is_own_setup:
            environment |= {"MQWORKER_REDIS_URL": self._server.url, "MQWORKER_NAMESPACE": self._namespace}
        return environment

    def _local(self, text: str) -> str:
        """The text with ports of this run in place of the well-known ones."""
        return re.sub(r"\b\d{4,5}\b", lambda found: self._ports.get(found[0], found[0]), text)

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-3_000:] for path in sorted(self.folder.glob("*.log")))


def npm_packages_of(block: Block, cache: Path) -> Path:
    """Where the packages are that its first line names; raises `CannotInstall`."""
    first = block.code.splitlines()[0]
    packages = first.removeprefix("// npm install ").split() if first.startswith("// npm install ") else []
    if not packages and shutil.which("node") is None:
        raise CannotInstall("Node.js is not on this machine")
    name = re.sub(r"[^a-z0-9.]+", "-", " ".join(packages)) or "none"
    return npm_packages(cache / name, *packages) if packages else cache


def _raises(block: Block) -> str | None:
    return (
        block.marker.removeprefix("raises ") if block.marker and block.marker.startswith("raises ") else None
    )


def _exit_code(block: Block) -> int:
    return int(block.marker.removeprefix("exit ")) if block.marker and block.marker.startswith("exit ") else 0


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
