"""The results: a JSON file, written after every step, so that a run can be resumed or repeated in part.

{"machine": {…}, "foreign_cpu_percent": […], "own": {measure: [table, …]},
 "peers": {name: {"label", "versions", "settings", "problems", "rounds": [{figure: value}, …],
                  "bodies" | "length" | "workers" | "queues": {step: {figure: value}},
                  "crash": {"usual" | "safe": {figure: value}}}}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peer import PEERS

# Any: JSON, whose shape is written above.
Json = dict[str, Any]


class Results:
    """What was measured so far; without a path it is only kept in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.data: Json = _read(path) if path and path.is_file() else {}
        self.data.setdefault("machine", {})
        self.data.setdefault("foreign_cpu_percent", [])
        self.data.setdefault("own", {})
        self.data.setdefault("peers", {})

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".tmp")
        beside.write_text(json.dumps(self.data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        beside.replace(self._path)

    def peer(self, name: str) -> Json:
        """What is known about a peer."""
        empty: Json = {"rounds": [], "problems": []}
        known: Json = self.data["peers"].setdefault(name, empty)
        return known

    def note_round(self, name: str, number: int, figures: Mapping[str, float]) -> None:
        """The figures of one turn."""
        rounds = self.peer(name)["rounds"]
        rounds.extend({} for _ in range(number + 1 - len(rounds)))
        rounds[number] |= rounded(figures)
        self.save()

    def has_round(self, name: str, number: int, figures: Iterable[str]) -> bool:
        """Whether a turn was measured already."""
        rounds = self.peer(name)["rounds"]
        return number < len(rounds) and set(figures) <= set(rounds[number])

    def forget_rounds(self, name: str, figures: Iterable[str]) -> None:
        """Before they are measured anew: old and new rounds must not be mixed."""
        for figure in figures:
            for each in self.peer(name)["rounds"]:
                each.pop(figure, None)

    def note(self, name: str, measure: str, figures: Json) -> None:
        """The figures of a measure that runs once."""
        self.peer(name)[measure] = figures
        self.save()

    def note_own(self, tables_by_measure: Json) -> None:
        """The tables of the measures beside raw clients."""
        self.data["own"] |= tables_by_measure
        self.save()

    def note_problem(self, name: str, text: str) -> None:
        """What went wrong, as the pages will say it."""
        problems = self.peer(name)["problems"]
        if text not in problems:
            problems.append(text)
        self.save()


def _read(path: Path) -> Json:
    try:
        data: Json = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} holds no JSON; accepted: a new file, or one of an earlier run") from error
    if not isinstance(data, dict) or "peers" not in data:
        raise ValueError(f"{path} holds other JSON; accepted: a new file, or one of an earlier run")
    return data


def values(peer: Mapping[str, Any], figure: str) -> tuple[float, ...]:
    """A figure of a peer in each round that has it."""
    return tuple(each[figure] for each in peer["rounds"] if figure in each)


def ratios(ours: Mapping[str, Any], theirs: Mapping[str, Any], figure: str) -> tuple[float, ...]:
    """Ours by theirs, each within one round."""
    pairs = zip(ours["rounds"], theirs["rounds"], strict=False)
    return tuple(a[figure] / b[figure] for a, b in pairs if a.get(figure) and b.get(figure))


def in_order(peers: Mapping[str, Json]) -> list[tuple[str, Json]]:
    """The peers in the order of the table of peers, whatever the order of the file is."""
    return [(peer.name, peers[peer.name]) for peer in PEERS if peer.name in peers]


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Six digits are more than any of this is worth, and files are read by people too."""
    return {name: float(f"{value:.6g}") for name, value in figures.items()}
