"""Figures in the style of the pages: lines over rounds, and matrices. Missing values are gaps.

Colours are names in `page.css`. It has a set for the light theme and one for the dark theme. Both are made from the
colours of Okabe and Ito, which colour-blind readers can distinguish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .formats import is_missing, written


if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = tuple(f"var(--c{k})" for k in range(8))
DASHES = ("solid", "dash", "dot", "dashdot")
INK = "var(--ink)"
SEQUENTIAL = tuple((k / 4, f"var(--s{k})") for k in range(5))
"""Low to high: of shares."""
DIVERGING = ((0.0, "var(--d0)"), (0.5, "var(--d1)"), (1.0, "var(--d2)"))
"""Below, at and above zero."""
MAX_FRAMES = 60
TURNED = 8
"""Columns beyond which their labels may be turned."""
MAX_POINTS = 400
Points = Sequence[tuple[float, float | None]]


def look(k: int) -> dict[str, str]:
    """Colour and dash pattern of the `k`-th line of a figure."""
    return {"color": COLOURS[k % len(COLOURS)], "dash": DASHES[k // len(COLOURS) % len(DASHES)]}


def new_figure(*, x: str = "", y: str = "", **layout: Any) -> go.Figure:
    """A figure without traces, with axis titles and other settings of the layout."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(xaxis={"title": {"text": x}}, yaxis={"title": {"text": y}})
    return figure.update_layout(**layout)


def line_figure(
    lines: Mapping[str, Points],
    *,
    x: str = "round",
    y: str = "",
    share: bool = False,
    looks: Mapping[str, Mapping[str, Any]] | None = None,
    bands: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,
    marks: Sequence[float] = (),
    width: float = 1.6,
) -> go.Figure:
    """A figure with named lines.

    Args:
        lines (`Mapping[str, Sequence[tuple]]`): Name -> points (x, value). `None` and NaN are gaps. If there are
            more than `MAX_POINTS` points, an evenly spread part of them is drawn, with the last.
        x, y (`str`, *optional*): Titles of the axes.
        share (`bool`, *optional*): Whether values are shares, shown in percent on an axis that begins at 0.
        looks (`Mapping[str, Mapping]`, *optional*): Name -> plotly settings of the line, which replace the usual
            colour and dash pattern.
        bands (`Mapping[str, Sequence[tuple]]`, *optional*): Name -> points (x, low, high) of the area behind a line.
        marks (`Sequence[float]`, *optional*): Positions on the x axis of thin vertical lines, such as replacements.
        width (`float`, *optional*): Width of the lines, in pixels.
    """
    figure = new_figure(x=x, y=y, hovermode="x unified")
    for k, (name, points) in enumerate(lines.items()):
        line = {**look(k), "width": width, **(looks or {}).get(name, {})}
        if bands and name in bands:
            _band(figure, thinned(bands[name]), name, line["color"])
        xs, ys = zip(*thinned(points)) if points else ((), ())
        ys = [None if is_missing(value) else value for value in ys]
        mode = "lines+markers" if sum(value is not None for value in ys) <= 12 else "lines"
        form = "%{y:.0%}" if share else "%{y:.4~g}"
        figure.add_scatter(
            x=list(xs), y=ys, name=name, mode=mode, line=line, marker={"size": 5}, hovertemplate=form, legendgroup=name
        )
    style = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": "var(--mark)", "width": 1}}
    # together: add_shape would copy those before it
    figure.update_layout(shapes=[{**style, "x0": mark, "x1": mark} for mark in thinned(marks, 100)])
    if share:
        known = [value for points in lines.values() for _, value in points if value is not None and value == value]
        top = min(max(1.15 * max(known, default=1.0), 0.1), 1.03)
        figure.update_yaxes(range=[-0.03 * top, top], tickformat=".0%")
    rounds = [place for points in lines.values() for place, _ in points]
    if rounds and max(rounds) - min(rounds) <= 8:
        figure.update_xaxes(dtick=1)
    return figure


def matrix_figure(
    frames: Mapping[str, Sequence[Sequence[float | None]]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    notes: Mapping[str, Sequence[Sequence[str]]] | None = None,
    diverging: float | None = None,
    kind: str = "share",
    unit: str = "",
) -> go.Figure:
    """A figure of one matrix, or of several with a slider that starts at the last.

    Args:
        frames (`Mapping[str, Sequence]`): Name of the frame, such as its round -> values, shape `(rows, columns)`. If
            there are more than `MAX_FRAMES`, an evenly spread part of them is shown, with the last.
        rows, columns (`Sequence[str]`): Names of rows and columns. The first row is at the top.
        notes (`Mapping[str, Sequence]`, *optional*): Frame -> a text for each value, shown under the pointer.
        diverging (`float`, *optional*): The largest absolute value of a colour scale with its middle at 0. If unset,
            the scale goes from 0 to 1.
        kind (`str`, *optional*): How values are written ([`Column`]).
        unit (`str`, *optional*): Title of the scale.
    """
    import plotly.graph_objects as go

    chosen = thinned(list(frames), MAX_FRAMES)
    turned = 7 * max(map(len, columns), default=0) if len(columns) > TURNED else 0  # pixels of labels
    low = 0 if diverging is None else -diverging

    def trace(name: str) -> go.Heatmap:
        values = [[None if is_missing(value) else value for value in row] for row in frames[name]]
        small = len(rows) * len(columns) <= 400
        return go.Heatmap(
            z=values,
            x=list(columns),
            y=list(rows),
            text=[[written(value, kind) if value is not None else "" for value in row] for row in values],
            texttemplate="%{text}" if small else None,
            customdata=notes[name] if notes else [["" for _ in row] for row in values],
            hovertemplate="%{y} × %{x}: %{text}<br>%{customdata}<extra></extra>",
            zmin=low,
            zmax=1 if diverging is None else diverging,
            colorscale=SEQUENTIAL if diverging is None else DIVERGING,
            colorbar={"title": {"text": unit, "side": "right"}, "thickness": 10, "outlinewidth": 0}
            | ({"tickformat": ".0%"} if kind == "share" else {}),
            xgap=2,
            ygap=2,
        )

    figure = go.Figure(trace(chosen[-1]))
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    figure.update_xaxes(showgrid=False, ticks="", type="category")
    if len(chosen) > 1:
        figure.frames = [go.Frame(name=name, data=[trace(name)]) for name in chosen]
        still = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
        steps = [{"label": name, "method": "animate", "args": [[name], still]} for name in chosen]
        figure.update_layout(
            sliders=[
                {
                    "steps": steps,
                    "active": len(steps) - 1,
                    "currentvalue": {"prefix": "round "},
                    "pad": {"t": 34 + turned},
                }
            ]
        )
    return figure


def thinned(values: Sequence, most: int = MAX_POINTS) -> list:
    """At most this many of the values, evenly spread, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(k * (len(values) - 1) / (most - 1))] for k in range(most)]


def _band(figure: go.Figure, points: Sequence[tuple[float, float, float]], name: str, colour: str) -> None:
    known = [point for point in points if not any(map(is_missing, point))]
    if not known:
        return
    xs, lows, highs = zip(*known)
    figure.add_scatter(
        x=[*xs, *reversed(xs)],
        y=[*highs, *reversed(lows)],
        fill="toself",
        fillcolor=colour,
        opacity=0.12,
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        legendgroup=name,
        mode="lines",
    )
