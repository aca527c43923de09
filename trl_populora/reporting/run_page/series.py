"""Curves over the rounds of a run, in the style of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...diagnostics import RoundSummary
from ...diagnostics.dynamics import MemberSummary
from ..drawing import MOST_LINES
from ..page.figures import Points, line_figure, look, thinned
from ..page.formats import is_missing
from ..plots import ROLES, WINDOW, is_long, running_mean


if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..played_run import PlayedRun

MAX_LINES = 16
"""Members of a role that a figure draws; of more an even choice."""
SMOOTHED = f" Running mean of {WINDOW} rounds."
MARKED = " Thin vertical lines are replacements."


def of_rounds(history: Sequence[RoundSummary], pick: Callable[[RoundSummary], float | None]) -> Points:
    """Points (round, value). Rounds are counted from 1."""
    return [(summary.round + 1, pick(summary)) for summary in history]


def of_members(
    history: Sequence[RoundSummary], role: str, pick: Callable[[MemberSummary], float | None]
) -> dict[str, Points]:
    """Member -> points (round, value), for the members of a role of `ROLES` that have a value."""
    series: dict[str, list] = {}
    for summary in history:
        for member in summary.members:
            if member.role in ROLES[role]:
                series.setdefault(member.name, []).append((summary.round + 1, pick(member)))
    return {name: points for name, points in with_points(series).items() if name in thinned(list(series), MAX_LINES)}


def smooth(points: Points) -> Points:
    """The running mean, without missing values."""
    known = [(number, value) for number, value in points if value is not None and not is_missing(value)]
    return list(zip([number for number, _ in known], running_mean([value for _, value in known])))


def curves(run: PlayedRun, lines: Mapping[str, Points], *, smoothed: bool = True, **options: Any) -> go.Figure:
    """A figure of lines over the rounds, with marks at replacements; smoothed in a long run."""
    if smoothed and is_long(run.history):
        lines = {name: smooth(points) for name, points in lines.items()}
    figure = line_figure(lines, marks=run.births, **options)
    if len(lines) > MOST_LINES:  # a legend would take most of the figure; the pointer tells the name
        figure.update_layout(showlegend=False, hovermode="closest")
    return figure


def colours(run: PlayedRun) -> dict[str, dict[str, str]]:
    """Member -> colour and dash, which depend on its place in its role. They are the same in all figures."""
    places: dict[str, int] = {}
    found: dict[str, dict[str, str]] = {}
    for member in (member for summary in run.history for member in summary.members):
        if member.name not in found:
            found[member.name] = look(places.get(member.role, 0))
            places[member.role] = places.get(member.role, 0) + 1
    return found


def rating_digits(run: PlayedRun) -> int:
    """Digits after the point of what members are compared by: a rating, or on a dataset a mean reward."""
    return 1 if run.self_play else 2


def with_points(lines: Mapping[str, Points]) -> dict[str, Points]:
    """The lines that have at least one value."""
    return {name: points for name, points in lines.items() if not all(is_missing(value) for _, value in points)}
