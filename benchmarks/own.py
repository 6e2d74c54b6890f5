"""Runs the measures of the registry, one after the other; one that cannot run costs a line, not the rest."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from benchmarks.registry import OwnMeasure
from benchmarks.table import Table, recorded


def run_own(measures: Iterable[OwnMeasure], rounds: int) -> dict[str, list[Table]]:
    """Run all of them; the tables by the name of the measure."""
    tables_by_name: dict[str, list[Table]] = {}
    for measure in measures:
        with recorded() as tables:
            _run_one(measure, rounds)
        if tables:
            tables_by_name[measure.name] = tables
    return tables_by_name


def _run_one(measure: OwnMeasure, rounds: int) -> None:
    try:
        importlib.import_module(measure.module).run(rounds)
    except ImportError as error:
        print(f"\n{measure.name}: skipped, {error}")
    except Exception as error:  # noqa: BLE001 - a measure runs foreign programs; the others must still get their turn
        print(f"\n{measure.name}: broke off, {type(error).__name__}: {error}")
