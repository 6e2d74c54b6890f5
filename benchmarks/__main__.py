"""`python -m benchmarks`: measure mqworker on this machine, beside raw clients or beside its peers."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from benchmarks.against import RevisionUnknown, comparison_table, run_against
from benchmarks.machine import busy_line, describe_machine, foreign_cpu_percent
from benchmarks.own import run_own
from benchmarks.pages import write_pages
from benchmarks.peer import PEERS
from benchmarks.peer_run import PeerRun
from benchmarks.plan import EVERYONE, make_plan, measure_names
from benchmarks.report import tables
from benchmarks.results import Results
from benchmarks.round_measures import FIGURES_BY_MEASURE
from benchmarks.scale_measures import SCALE_MEASURES

PEER_NAMES = [*(peer.name for peer in PEERS), EVERYONE]


@click.command()
@click.option(
    "--only", multiple=True, type=click.Choice(measure_names()), help="Just this measure; repeatable."
)
@click.option("--peer", "peers", multiple=True, type=click.Choice(PEER_NAMES), help="This peer; repeatable.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100), help="Turns of each.")
@click.option(
    "--json",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the figures here, step by step.",
)
@click.option("--resume", "is_resumed", is_flag=True, help="Measure only what the JSON file does not have.")
@click.option(
    "--pages",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write tables and charts into this folder.",
)
@click.option(
    "--against", metavar="REV", help="Compare with this revision of mqworker, by turns; exit 1 if worse."
)
def main(
    only: tuple[str, ...],
    peers: tuple[str, ...],
    rounds: int,
    file: Path | None,
    pages: Path | None,
    *,
    against: str | None,
    is_resumed: bool,
) -> None:
    """Measure mqworker on this machine.

    Without options: the quick measures of mqworker, some minutes. With --peer all: every measure of every
    peer, each in an environment of its own, about twenty-five minutes. With --against: this checkout beside
    another revision.
    """
    if against is not None:
        _compare(against, only, rounds)
        return
    began = time.monotonic()
    plan, results = make_plan(only, peers), _opened(file, is_resumed=is_resumed)
    print("\n".join(f"{name}: {value}" for name, value in results.data["machine"].items()))
    _say_if_busy([foreign_cpu_percent()])
    if plan.peer_measures:
        PeerRun(plan.peers, plan.peer_measures, rounds, results, is_resumed=is_resumed).run()
        print(f"\n{tables(results.data)}")
    results.note_own(
        {name: [asdict(table) for table in made] for name, made in run_own(plan.own, rounds).items()}
    )
    _say_if_busy(results.data["foreign_cpu_percent"])
    print(f"\ntook {(time.monotonic() - began) / 60:.1f} minutes")
    if pages is not None:
        write_pages(results.data, pages)


def _compare(revision: str, only: tuple[str, ...], rounds: int) -> None:
    refused = sorted(set(only) - {*FIGURES_BY_MEASURE, *SCALE_MEASURES})
    if refused:
        raise click.UsageError(
            f"--only is {', '.join(refused)}; accepted with --against are "
            f"{', '.join([*FIGURES_BY_MEASURE, *SCALE_MEASURES])}"
        )
    _say_if_busy([foreign_cpu_percent()])
    try:
        comparisons = run_against(revision, only, rounds)
    except RevisionUnknown as error:
        raise click.UsageError(str(error)) from error
    print(f"\n{comparison_table(comparisons, revision)}")
    worse = [each.figure for each in comparisons if each.verdict == "worse"]
    if worse or not comparisons:
        print(f"\nworse than {revision}: {', '.join(worse)}" if worse else "\nnothing could be compared")
        raise SystemExit(1)
    print(f"\nnothing is worse than {revision}")


def _opened(file: Path | None, *, is_resumed: bool) -> Results:
    if is_resumed and file is None:
        raise click.UsageError("--resume: got no --json FILE to resume from")
    try:
        results = Results(file)
    except ValueError as error:
        raise click.UsageError(f"--json: {error}") from error
    results.data["machine"] = describe_machine()
    if not is_resumed:
        results.data["foreign_cpu_percent"] = []
    return results


def _say_if_busy(samples: list[float]) -> None:
    if line := busy_line(samples):
        print(f"note: {line}", flush=True)


if __name__ == "__main__":
    main()
