"""The environments of the peers: a virtualenv or a folder of Node modules each, built once, outside git."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer import Peer

FOLDER = Path(__file__).parents[1] / ".mqworker" / "peers"
INSTALL_LIMIT_S = 600


class PeerUnavailable(Exception):
    """A peer cannot be measured here; the text says why in one line."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the programs of a peer are."""

    interpreter: str
    folder: Path

    def program(self, name: str) -> str:
        """`python` and `node` are the interpreter; `bin/x` is a program that was installed with the peer."""
        return str(self.folder / name) if name.startswith("bin/") else self.interpreter


def prepare(peer: Peer) -> Environment:
    """The environment of a peer, installed if it is not there yet; raise PeerUnavailable if that fails."""
    folder = FOLDER / peer.folder
    if peer.is_node:
        return _prepare_node(peer, folder)
    if not peer.requirements:
        return Environment(sys.executable, Path(sys.prefix))
    python = folder / "bin" / "python"
    if not _is_installed(peer, folder):
        print(f"{peer.name}: installing {' '.join(peer.requirements)}", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *peer.requirements])
        _note_installed(peer, folder)
    return Environment(str(python), folder)


def _prepare_node(peer: Peer, folder: Path) -> Environment:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise PeerUnavailable("skipped, it needs node and npm on the PATH")
    if not _is_installed(peer, folder):
        print(f"{peer.name}: installing {' '.join(peer.requirements)}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ("--no-audit", "--no-fund", "--no-save", "--silent")
        _run([npm, "install", "--prefix", str(folder), *quiet, *peer.requirements])
        _note_installed(peer, folder)
    return Environment(node, folder)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PeerUnavailable(f"skipped, it could not be installed: {last_line}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"skipped, it could not be installed: {error}") from error


def _is_installed(peer: Peer, folder: Path) -> bool:
    stamp = folder / "installed.txt"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == "\n".join(peer.requirements)


def _note_installed(peer: Peer, folder: Path) -> None:
    (folder / "installed.txt").write_text("\n".join(peer.requirements), encoding="utf-8")
