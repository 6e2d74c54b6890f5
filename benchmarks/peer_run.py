"""Runs the measures of the peers: in rounds, then step by step, then crashes; each step is kept at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.crash import CrashTurn, crash_turns, measure_crashes
from benchmarks.environments import prepare
from benchmarks.machine import foreign_cpu_percent
from benchmarks.peer import Peer
from benchmarks.results import Results, rounded, values
from benchmarks.round_measures import FIGURES_BY_MEASURE, measure_round
from benchmarks.scale_measures import SCALE_MEASURES
from benchmarks.session import FAILURES, Arrangement, open_session

PEER_MEASURES = (*FIGURES_BY_MEASURE, *SCALE_MEASURES, "crash")


@dataclass(frozen=True, slots=True)
class PeerRun:
    """What to measure, and where it is noted. With `is_resumed`, what is there already stays."""

    peers: Sequence[Peer]
    measures: frozenset[str]
    rounds: int
    results: Results
    is_resumed: bool = False

    def run(self) -> None:
        """Measure all; a peer that fails costs a line, not the run."""
        ready = [peer for peer in self.peers if self._is_ready(peer)]
        if wanted := self.measures & set(FIGURES_BY_MEASURE):
            self._run_rounds(ready, wanted)
        for name in SCALE_MEASURES:
            if name in self.measures:
                self._run_scale(ready, name)
        if "crash" in self.measures:
            self._run_crashes(ready)

    def _is_ready(self, peer: Peer) -> bool:
        """Its environment is there and its producer answers; both are noted."""
        known = self.results.peer(peer.name)
        known["label"] = peer.label
        if not self.is_resumed:
            known["problems"] = []
        try:
            prepare(peer)
            known |= _told_by(peer)
        except FAILURES as error:
            self._note_failure(peer, "", error)
            return False
        self.results.save()
        return True

    def _run_rounds(self, peers: Sequence[Peer], wanted: frozenset[str]) -> None:
        peers = [peer for peer in peers if all(map(peer.takes_part_in, wanted))]
        figures = [figure for measure in wanted for figure in FIGURES_BY_MEASURE[measure]]
        if not self.is_resumed:
            for peer in peers:
                self.results.forget_rounds(peer.name, figures)
        for number in range(self.rounds):
            for peer in peers:
                if not self.results.has_round(peer.name, number, figures):
                    self._run_turn(peer, number, wanted)

    def _run_turn(self, peer: Peer, number: int, wanted: frozenset[str]) -> None:
        self._look_around()
        drained = values(self.results.peer(peer.name), "drain")
        try:
            figures = measure_round(peer, wanted, drained[-1] if drained else None)
        except FAILURES as error:
            self._note_failure(peer, f"round {number + 1}", error)
            return
        self.results.note_round(peer.name, number, figures)
        _say(f"round {number + 1} of {self.rounds}", peer, figures)

    def _run_scale(self, peers: Sequence[Peer], name: str) -> None:
        for peer in peers:
            if not peer.takes_part_in(name) or (self.is_resumed and name in self.results.peer(peer.name)):
                continue
            self._look_around()
            try:
                steps = SCALE_MEASURES[name](peer)
            except FAILURES as error:
                self._note_failure(peer, name, error)
                continue
            self.results.note(peer.name, name, {step: rounded(figures) for step, figures in steps.items()})
            _say(name, peer, {step: figures["drain"] for step, figures in steps.items()})

    def _run_crashes(self, peers: Sequence[Peer]) -> None:
        known = {peer.name: self.results.peer(peer.name).get("crash", {}) for peer in peers}
        turns = [
            turn
            for turn in crash_turns([peer for peer in peers if peer.takes_part_in("crash")])
            if not (self.is_resumed and turn.name in known[turn.peer.name])
        ]
        self._look_around()
        measure_crashes(turns, self._note_crash, self._note_crash_failure)

    def _note_crash(self, turn: CrashTurn, figures: dict[str, float]) -> None:
        known = self.results.peer(turn.peer.name).get("crash", {})
        self.results.note(turn.peer.name, "crash", {**known, turn.name: rounded(figures)})
        _say(f"crash, {turn.name} settings", turn.peer, figures)

    def _note_crash_failure(self, turn: CrashTurn, error: Exception) -> None:
        self._note_failure(turn.peer, f"crash, {turn.name} settings", error)

    def _note_failure(self, peer: Peer, where: str, error: Exception) -> None:
        text = f"{where}: {error}" if where else str(error)
        self.results.note_problem(peer.name, text)
        print(f"  {peer.name}: {text}", flush=True)

    def _look_around(self) -> None:
        self.results.data["foreign_cpu_percent"].append(foreign_cpu_percent())


def _told_by(peer: Peer) -> dict[str, object]:
    """Versions and settings, as the adapter gives them."""
    with open_session(peer) as session:
        about = session.about
    told: dict[str, object] = {
        "versions": dict(about.versions),
        "settings": list(about.settings),
        "bulk": about.bulk,
    }
    if peer.has_safe_variant:
        with open_session(peer, Arrangement(variant="safe")) as session:
            told["safe_settings"] = list(session.about.settings)
    return told


def _say(what: str, peer: Peer, figures: dict[str, float]) -> None:
    shown = ", ".join(f"{name} {value:,.6g}" for name, value in figures.items()) or "does not apply"
    print(f"  {what}: {peer.label}: {shown}", flush=True)
