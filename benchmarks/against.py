"""Two checkouts in one run: this one, and another revision by turns, as ratios within each round.

`python -m benchmarks --against REV` is the guard before a commit that touches the route of a message. The
programs that measure are those of this checkout for both; only `mqworker` itself differs.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.peer import OURS, PEER_BY_NAME, Peer
from benchmarks.report import spread, table
from benchmarks.round_measures import FIGURES_BY_MEASURE, measure_round
from benchmarks.scale_measures import SCALE_MEASURES
from benchmarks.session import FAILURES

ROOT = Path(__file__).parents[1]
MEASURES = ("enqueue", "drain", "latency", "startup", "idle", "bodies")
"""What is compared unless `--only` says otherwise."""
TOLERANCE = 0.05
"""Less than that is noise on any machine that does something else as well."""
_LESS_IS_BETTER = ("_us", "_p50", "_p95", "_p99", "_s", "_mib", "_percent", "bytes_per_task")
_NOT_COMPARED = ("_max", "_rate", "_processes", "_missing", "_twice")
Figures = dict[str, float]


class RevisionUnknown(Exception):
    """There is no such revision here; the text says so in one line."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of both checkouts, by round; a ratio above 1 says that this one is better."""

    figure: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def verdict(self) -> str:
        """Worse or better only where every round says so, and the median by more than the tolerance."""
        if median(self.ratios) < 1 - TOLERANCE and max(self.ratios) < 1:
            return "worse"
        if median(self.ratios) > 1 + TOLERANCE and min(self.ratios) > 1:
            return "better"
        return "same"


def compare(ours: Sequence[Figures], theirs: Sequence[Figures]) -> list[Comparison]:
    """Figure by figure, from the rounds of both; what only one of them has is left out."""
    names = dict.fromkeys(name for each in ours for name in each if not name.endswith(_NOT_COMPARED))
    found = []
    for name in names:
        pairs = [
            (ours_now[name], theirs_now[name])
            for ours_now, theirs_now in zip(ours, theirs, strict=True)
            if ours_now.get(name) and theirs_now.get(name)
        ]
        if pairs:
            is_less_better = name.endswith(_LESS_IS_BETTER)
            ratios = tuple(b / a if is_less_better else a / b for a, b in pairs)
            found.append(Comparison(name, tuple(a for a, _ in pairs), tuple(b for _, b in pairs), ratios))
    return found


def comparison_table(comparisons: Sequence[Comparison], revision: str) -> str:
    """Both, and the ratio; above 1 this checkout is the better one, whatever the figure is."""
    return table(
        ("figure", "here", revision, "here is", "verdict"),
        [
            (
                each.figure,
                spread(each.ours, _digits(each.ours)),
                spread(each.theirs, _digits(each.theirs)),
                spread(each.ratios, 2),
                each.verdict,
            )
            for each in comparisons
        ],
    )


def run_against(revision: str, only: Sequence[str], rounds: int) -> list[Comparison]:
    """Measure both by turns, in changing order; raises RevisionUnknown."""
    measures = frozenset(only or MEASURES)
    with checkout_of(revision) as folder:
        here = PEER_BY_NAME[OURS]
        there = replace(here, name=f"{OURS}@{revision}", label=revision, checkout=str(folder))
        found: dict[str, list[Figures]] = {here.name: [], there.name: []}
        for number in range(rounds):
            # Whoever comes second finds a warmer machine: it is not always the same one.
            for peer in (here, there) if number % 2 == 0 else (there, here):
                found[peer.name].append(_measured(peer, measures))
                print(f"  round {number + 1} of {rounds}: {peer.label} is measured", flush=True)
    return compare(found[here.name], found[there.name])


@contextmanager
def checkout_of(revision: str) -> Iterator[Path]:
    """The files of a revision in a folder of their own."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", revision, "mqworker", "services"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        reason = (archive.stderr.decode(errors="replace").strip().splitlines() or ["git said nothing"])[-1]
        raise RevisionUnknown(
            f"--against is {revision!r}; accepted is a revision of this repository: {reason}"
        )
    with tempfile.TemporaryDirectory(prefix="mqw-against-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder)


def _measured(peer: Peer, measures: frozenset[str]) -> Figures:
    figures: Figures = {}
    try:
        if in_rounds := measures & set(FIGURES_BY_MEASURE):
            figures |= measure_round(peer, in_rounds, None)
        for name, measure in SCALE_MEASURES.items():
            if name in measures:
                figures |= {f"{name}: {step}": each["drain"] for step, each in measure(peer).items()}
    except FAILURES as error:
        print(f"  {peer.label}: {error}", flush=True)
    return figures


def _digits(numbers: Sequence[float]) -> int:
    return 0 if median(numbers) >= 100 else 3
