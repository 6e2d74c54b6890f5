"""The crash: SIGKILL for all processes of a peer at a quarter of the tasks, restart, and count.

Most peers wait long before they give out again what was lost. So one peer at a time drains, and while it only
waits for the rest, the next one has its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock

from benchmarks.figures import NS_PER_S, never_ran, ran_twice
from benchmarks.peer import Peer
from benchmarks.producer import PeerFailed
from benchmarks.session import FAILURES, Arrangement, Session, open_session

TASKS = 2_000
BODY = "1 ms CPU"
"""Long enough that a quarter is not over before the signal arrives, short enough to drain in a second."""
START_LIMIT_S = 60.0
PATIENCE_S = 100.0
QUIET_S = 3.0
AT_ONCE = 24
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class CrashTurn:
    """One peer with one set of settings."""

    peer: Peer
    variant: str

    @property
    def name(self) -> str:
        """How the results call it."""
        return "safe" if self.variant == "safe" else "usual"


def crash_turns(peers: Iterable[Peer]) -> list[CrashTurn]:
    """Each peer with its usual settings, and with those that survive a crash where they are others."""
    turns: list[CrashTurn] = []
    for peer in peers:
        turns.append(CrashTurn(peer, peer.variant))
        if peer.has_safe_variant:
            turns.append(CrashTurn(peer, "safe"))
    return turns


def measure_crashes(
    turns: Iterable[CrashTurn],
    note: Callable[[CrashTurn, Figures], None],
    note_failure: Callable[[CrashTurn, Exception], None],
) -> None:
    """Crash them all; each figure is noted as soon as it is there."""
    busy = Lock()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        turn_by_future = {threads.submit(_crash, turn, busy): turn for turn in turns}
        for future in as_completed(turn_by_future):
            try:
                note(turn_by_future[future], future.result())
            except FAILURES as error:
                note_failure(turn_by_future[future], error)


def _crash(turn: CrashTurn, busy: Lock) -> Figures:
    with ExitStack() as stack:
        with busy:
            session = stack.enter_context(
                open_session(turn.peer, Arrangement(body=BODY, variant=turn.variant))
            )
            numbers = session.fill(TASKS)
            done_at_kill = _kill_at_quarter(session, numbers)
            restarted_at_ns = time.monotonic_ns()
            session.start_workers()
            _wait_until_quiet(session, numbers)
        session.wait_until_run(numbers, PATIENCE_S)
        return {"done_at_kill": done_at_kill, **_counted(session, numbers, restarted_at_ns)}


def _kill_at_quarter(session: Session, numbers: range) -> int:
    workers = session.start_workers()
    if not session.wait_until_some_run(numbers, TASKS // 4, START_LIMIT_S):
        raise PeerFailed(f"a quarter of {TASKS:,} tasks did not run within {START_LIMIT_S:.0f} s")
    workers.kill()
    return session.board.done(numbers.start, numbers.stop)


def _wait_until_quiet(session: Session, numbers: range) -> None:
    """Until all ran, or nothing more happens for some seconds."""
    seen, seen_at = -1, 0.0

    def is_quiet() -> bool:
        nonlocal seen, seen_at
        done = session.board.done(numbers.start, numbers.stop)
        if done != seen:
            seen, seen_at = done, time.monotonic()
        return done == len(numbers) or time.monotonic() - seen_at > QUIET_S

    session.wait_for(is_quiet, PATIENCE_S)


def _counted(session: Session, numbers: range, restarted_at_ns: int) -> Figures:
    runs = session.board.runs(numbers.start, numbers.stop)
    last_ns = max(session.board.ran_at(numbers.start, numbers.stop))
    return {
        "not_run": never_ran(runs),
        "twice": ran_twice(runs),
        "last_back_s": (last_ns - restarted_at_ns) / NS_PER_S,
    }
