"""What all pictures share: colours, line styles and figures that need no display.

Colours are those of Okabe and Ito, which colour-blind readers tell apart.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..extras import require
from ..run_files.files import write_file


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
STYLES = ("-", "--", ":", "-.")
MOST_LINES = 12  # that a reader can tell apart in a panel


def need_matplotlib() -> None:
    """Raises `ValueError`, with the fix, where matplotlib is not installed."""
    require("matplotlib", user="a plot")


def line_look(k: int) -> dict[str, Any]:
    """Colour and line style of the `k`-th line of a panel."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": STYLES[k // len(COLOURS) % len(STYLES)]}


def looks(names: Collection[str]) -> list[dict[str, Any]]:
    """Label, colour and line style of a line for each name. More than `MOST_LINES` are all grey, with one label."""
    if len(names) > MOST_LINES:
        return [{"label": None if k else f"each of {len(names)}", "color": "#AAAAAA"} for k in range(len(names))]
    return [{"label": name} | line_look(k) for k, name in enumerate(names)]


def mean_points(lines: Iterable[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    """The mean of all lines at each x, over those that have a point there."""
    found: dict[int, list[float]] = {}
    for x, y in (point for points in lines for point in points):
        found.setdefault(x, []).append(y)
    return [(x, fmean(values)) for x, values in sorted(found.items())]


def new_figure(
    rows: int, columns: int, *, size: tuple[float, float] | None = None, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure and its axes in reading order; `size` in inches."""
    # Without pyplot: it keeps figures in global state and chooses a backend for the whole process.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size or (5.4 * columns, 3.7 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def save_figure(figure: Figure, path: str | os.PathLike) -> None:
    """Write a figure as a PNG file, whole or not at all."""
    write_file(path, lambda aside: figure.savefig(aside, format="png", dpi=120))
