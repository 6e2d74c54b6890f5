"""Actors without Redis, for tests of the supervisor: they write a journal, and misbehave when told to.

`ChildStart.app` carries what each of them does, as `dispatcher=busy,worker:0=crash`; most misdeeds are done
in the first generation only, so that a test can see the second one do better.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mqworker.actors.actor import SUPERVISOR, ActorLoop, Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import (
    Attach,
    CancelDelivery,
    ConsumerGone,
    ConsumerStarted,
    Drain,
    KillWorker,
    Mail,
    PeerAttached,
    RetireWorker,
    WorkerExited,
)
from mqworker.actors.mailbox import Mailbox
from mqworker.errors import ConfigurationError
from mqworker.log import get_logger
from mqworker.model.clock import SystemClock
from mqworker.supervisor.child_plan import ChildPlan, Role, StartFunction, Topology


def topology(workers: int) -> Topology:
    """The shape of the real one."""
    return (
        (ChildPlan("broker", Role.ACTOR, main),),
        (ChildPlan("heartbeat_reaper", Role.REAPER, main), ChildPlan("rate_limiter", Role.ACTOR, main)),
        (ChildPlan("dispatcher", Role.DISPATCHER, main, peers=("rate_limiter",)),),
        tuple(
            ChildPlan(f"worker:{number}", Role.WORKER, main, peers=("dispatcher",))
            for number in range(workers)
        ),
    )


def main(control: Mailbox, start: ChildStart) -> int:
    """Do as `app` says, then be an actor."""
    deed = dict(pair.split("=") for pair in (start.app or "").split(",") if pair).get(start.name, "")
    note(start, "started", start.generation, os.getpid(), start.consumer)
    before_ready: dict[str, StartFunction] = {
        "refuse": _refuse,
        "crash": _crash,
        "never_ready": _never_ready,
        "garbage": _send_garbage,
        "half_frame": _send_half_a_frame,
    }
    if deed in before_ready and (start.generation == 1 or deed in {"refuse", "crash"}):
        return before_ready[deed](control, start)
    if deed == "refuse_later" and start.generation > 1:
        return _refuse(control, start)
    actor = FakeActor(start, deed if start.generation == 1 or deed == "always_busy" else "")
    ActorLoop(actor, control, SystemClock(), get_logger(actor=start.name)).run()
    note(start, "ended", start.generation)
    return 0


def note(start: ChildStart, *words: object) -> None:
    """One line into the journal; a single write survives a kill and is not mixed with others."""
    line = " ".join(map(str, [start.name, *words])) + "\n"
    journal = os.open(journal_path(start.settings.data_dir), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, line.encode())
    os.close(journal)


def journal_path(directory: Path) -> Path:
    """Where the lines go."""
    return directory / "journal"


class FakeActor:
    """Notes its mail, answers questions, and knows a few ways to misbehave."""

    def __init__(self, start: ChildStart, deed: str) -> None:
        self.name = start.name
        self.is_done = False
        self._start = start
        self._deed = deed
        self._turns = 0
        self._peers: list[str] = []

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        del now_ms
        match mail:
            case PeerAttached(peer):
                self._peers.append(peer)
                note(self._start, "attached", peer)
                return [Post(peer, CancelDelivery("question"))] if peer == "rate_limiter" else []
            case CancelDelivery("question"):  # any mail that both could send
                return [Post(sender, CancelDelivery("answer"))]
            case CancelDelivery():
                note(self._start, "answered", self._start.generation)
            case RetireWorker(worker):
                note(self._start, "retire", worker)
                return [Post(worker, Drain(0))]
            case Drain():
                note(self._start, "drain", mail.grace_ms)
                self.is_done = self._deed != "stubborn"
            case WorkerExited(worker, cause):
                self._deed = ""
                note(self._start, "worker_exited", worker, cause)
            case ConsumerStarted(consumer) | ConsumerGone(consumer):
                note(self._start, type(mail).__name__, consumer)
            case _:
                pass
        return []

    def turn(self, now_ms: int) -> Sequence[Post]:
        del now_ms
        self._turns += 1
        match self._deed:
            case "busy" | "always_busy" if self._turns > 1:
                while True:
                    pass
            case "exit":
                os._exit(3)
            case "exit_78" if self._turns > 1:
                os._exit(78)
            case "killer" if "worker:1" in self._peers:
                # Again and again until it is heard, as the real one does.
                return [Post(SUPERVISOR, KillWorker("worker:0", "hard time-out"))]
            case _:
                return []

    def next_turn_in_ms(self, now_ms: int) -> int:
        del now_ms
        if self._deed == "killer":
            return 2
        if self._deed == "exit_78":
            return 100
        return 1_000 if not self._deed or self._turns > 1 else 0

    def watched(self) -> Iterable[Watched]:
        return ()

    def facts(self) -> dict[str, Any]:
        return {"peers": self._peers}


def _refuse(control: Mailbox, start: ChildStart) -> int:
    del control
    raise ConfigurationError(f"app: {start.name} finds no such thing")


def _crash(control: Mailbox, start: ChildStart) -> int:
    del control
    raise RuntimeError(f"{start.name} cannot be")


def _never_ready(control: Mailbox, start: ChildStart) -> int:
    del control, start
    time.sleep(600)
    return 0


def _send_garbage(control: Mailbox, start: ChildStart) -> int:
    os.write(control.fileno(), b"\x00garbage, nothing but garbage")
    return _never_ready(control, start)


def _send_half_a_frame(control: Mailbox, start: ChildStart) -> int:
    del start
    control.send(Attach("x"))
    os.write(control.fileno(), b"\xa9Q\x00\x00\x01\x00half")
    os.abort()
