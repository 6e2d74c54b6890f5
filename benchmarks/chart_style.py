"""How the charts look: one colour for us, one for all others, light lines, no frame. The data speaks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

OURS_COLOUR = "#c2410c"
THEIRS_COLOUR = "#3b5b7a"
PALE = 0.35
INK = "#1f2933"
QUIET_INK = "#66717d"
LINE = "#dde3e8"
DOTS_PER_INCH = 160
FEW_DECADES = 200.0

mpl.use("Agg")
mpl.rcParams.update(
    {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": QUIET_INK,
        "axes.edgecolor": LINE,
        "xtick.color": QUIET_INK,
        "ytick.color": INK,
        "svg.fonttype": "none",
        "svg.hashsalt": "mqworker",  # the same data gives the same file
    }
)


def new_chart(title: str, subtitle: str, rows: int, *, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with a title, and one or more panels for so many rows."""
    height = 1.5 + 0.36 * rows
    figure, axes = plt.subplots(1, columns, figsize=(9.0, height), squeeze=False, sharey=columns > 1)
    figure.text(0.02, 1 - 0.28 / height, title, fontsize=14, fontweight="bold", va="center")
    figure.text(0.02, 1 - 0.55 / height, subtitle, fontsize=9.5, color=QUIET_INK, va="center")
    figure.subplots_adjust(left=0.17, right=0.95, top=1 - 0.85 / height, bottom=0.55 / height, wspace=0.12)
    panels = list(axes[0])
    for panel in panels:
        _clear(panel)
    return figure, panels


def name_rows(panel: Axes, labels: Sequence[str], ours: str) -> None:
    """Names from top to bottom, ours in its colour."""
    panel.set_yticks(range(len(labels)), labels)
    panel.set_ylim(len(labels) - 0.5, -0.5)
    for text in panel.get_yticklabels():
        if text.get_text() == ours:
            text.set_color(OURS_COLOUR)
            text.set_fontweight("bold")


def log_axis(panel: Axes, label: str) -> None:
    """A logarithmic scale from left to right, with round numbers."""
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.set_xlim(low / 1.15, high * 1.9)  # room for the figures beside the points
    steps = (1, 2, 5) if high / low < FEW_DECADES else (1,)
    panel.xaxis.set_major_locator(LogLocator(base=10, subs=steps, numticks=12))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(label, fontsize=9)


def short(value: float) -> str:
    """A figure as people say it: 1.2k, 38k, 0.4."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def colour(*, is_ours: bool) -> str:
    """Ours or theirs."""
    return OURS_COLOUR if is_ours else THEIRS_COLOUR


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """As PNG for the eye and SVG for print."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], dpi=DOTS_PER_INCH, facecolor="white", metadata={"Software": None})
    figure.savefig(paths[1], facecolor="white", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return paths


def _clear(panel: Axes) -> None:
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.tick_params(axis="both", which="both", length=0)
    panel.grid(axis="x", color=LINE, linewidth=0.8)
    panel.grid(axis="y", color=LINE, linewidth=0.8, linestyle=(0, (1, 3)))
    panel.set_axisbelow(True)
