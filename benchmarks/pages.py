"""The pages of a run: tables and charts. `python -m benchmarks.pages FILE FOLDER` makes them anew."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import conditions, table, tables
from benchmarks.results import Json, Results

TITLE = "# Results\n\nWritten by `make bench-peers`; [README.md](README.md) says how to read them.\n"


def write_pages(data: Json, folder: Path) -> None:
    """`results.md` and the charts; without matplotlib, no charts and a line that says so."""
    folder.mkdir(parents=True, exist_ok=True)
    charts = _drawn(data, folder)
    page = folder / "results.md"
    page.write_text(results_page(data, [path.name for path in charts]), encoding="utf-8")
    for path in (page, *charts):
        print(f"wrote {path}")


def _drawn(data: Json, folder: Path) -> list[Path]:
    try:
        from benchmarks.charts import draw_charts  # noqa: PLC0415 - only who draws needs the library
    except ImportError as error:
        print(f"charts: not drawn, {error}; accepted: pip install 'mqworker[bench]'")
        return []
    return draw_charts(data, folder)


def results_page(data: Json, charts: Sequence[str] = ()) -> str:
    """The whole page; of the charts it shows the pictures that every reader can display."""
    pictures = [f"![{name.removesuffix('.png')}]({name})" for name in charts if name.endswith(".png")]
    parts = [TITLE, *pictures, "\n## Beside its peers\n", tables(data), "\n## Conditions\n", conditions(data)]
    if data["own"]:
        parts += ["\n## Beside raw clients\n", _own_tables(data)]
    return "\n".join(parts) + "\n"


def _own_tables(data: Json) -> str:
    return "\n\n".join(
        f"### {made['title']}\n\n{table(('', 'figure', 'note'), made['rows'])}"
        for made_by_measure in data["own"].values()
        for made in made_by_measure
    )


if __name__ == "__main__":
    write_pages(Results(Path(sys.argv[1])).data, Path(sys.argv[2]))
