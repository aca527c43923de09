"""Plots of a run, saved as PNG files. `diagnostics` computes all numbers.

Each role has its own panel; on a dataset, there is one. Members of one role differ in colour and then in line style.
Triangles on the axis mark replacements.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..diagnostics import RoundSummary, solve_rate_matrix
from ..diagnostics.dynamics import MemberSummary
from .drawing import COLOURS, MOST_LINES, line_look, looks, mean_points, need_matplotlib, new_figure, save_figure
from .family_tree import plot_family_tree
from .probes import plot_probes


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ROLES = {"teachers": ("teacher", "shared"), "students": ("student", "shared")}
MEASURES = {
    "ast_nodes": "AST nodes",
    "ast_depth": "AST depth",
    "lines": "lines",
    "cyclomatic": "cyclomatic complexity",
    "halstead_volume": "Halstead volume (bits)",
    "cognitive": "cognitive complexity",
}
SHARE = (-0.03, 1.03)  # limits of an axis of shares
WINDOW = 9  # rounds of the running mean, drawn when a run is long enough to need one


def save_plots(
    history: Sequence[RoundSummary], folder: str | os.PathLike, *, probes: Sequence[Mapping] = ()
) -> list[str]:
    """Draws every plot for which `history` has data.

    Args:
        history (`Sequence[RoundSummary]`): Rounds, in order.
        folder (`str`): Output folder; created if missing.
        probes (`Sequence[Mapping]`, *optional*): Probes of the run, in order.

    Returns:
        `list[str]`: Paths of the files written.

    Raises:
        ValueError: If there is no round, or matplotlib is not installed.
    """
    if not history:
        raise ValueError("there are no rounds to plot")
    need_matplotlib()
    paths = []
    figures = {name: draw(history) for name, draw in PLOTS.items()} | {"probes": plot_probes(probes)}
    for name, figure in figures.items():
        if figure is not None:
            paths.append(os.path.join(folder, f"{name}.png"))
            save_figure(figure, paths[-1])
    return paths


def plot_success(history: Sequence[RoundSummary]) -> Figure | None:
    """Validity of the teachers' proposals, and matched solve rate of the students; nothing without teachers."""
    if not history[-1].teachers:
        return None
    figure, (left, right) = new_figure(1, 2)
    _member_lines(left, history, "teachers", lambda member: member.validity)
    _member_lines(right, history, "students", lambda member: member.solve_rate)
    _finish(left, history, title="Valid proposals, per teacher", label="share of proposals", limits=SHARE)
    _finish(right, history, title="Matched solve rate, per student", label="mean over task types", limits=SHARE)
    return figure


def plot_solve_rates(history: Sequence[RoundSummary]) -> Figure | None:
    """Solve rates of all members together: matched games by task type, and fill-ins."""
    types = sorted({name for summary in history for name in summary.solve_rates})
    filled = _points(history, lambda s: s.fill_rate)
    if not types and not filled:
        return None
    figure, (left, right) = new_figure(1, 2)
    smooth = is_long(history)
    for k, name in enumerate(types):
        points = _points(history, lambda s, name=name: s.solve_rates.get(name))
        _line(left, points, label=name, smooth=smooth, **line_look(k))
    headline, solved = (_points(history, pick) for pick in (lambda s: s.solve_rate, lambda s: s.solve_rate_filled))
    _line(left, headline, color="#000000", label="mean over types", linewidth=2.2, smooth=smooth, raw=False)
    _line(right, filled, color=COLOURS[0], label="share of attempts", smooth=smooth)
    _line(right, solved, color=COLOURS[1], label="of them solved", smooth=smooth)
    _finish(left, history, title="Matched solve rate, by task type", label="share of attempts", limits=SHARE)
    _finish(right, history, title="Tasks filled in from the buffer", label="share", limits=SHARE)
    return figure


def plot_weights(history: Sequence[RoundSummary]) -> Figure | None:
    """Size and effective rank of the members' updates, and cosines within a role, in rounds that measured them."""
    measured = [s for s in history if any(member.delta_norm is not None for member in s.members)]
    if not measured:
        return None
    roles, (figure, axes) = panels(history), new_figure(2, 2)
    for axis, (role, named) in zip(axes, roles.items()):
        _member_lines(axis, measured, role, lambda member: member.delta_norm, smooth=False)
        _finish(axis, history, title=f"Update of the {named}", label="Frobenius norm of dW", smooth=False)
    ranks, cosines, *empty = axes[len(roles) :]
    _member_lines(ranks, measured, "students", lambda member: member.effective_rank, smooth=False)
    title = f"Effective rank, per {roles['students'].removesuffix('s')}"
    _finish(ranks, history, title=title, label="mean over matrices", smooth=False)
    for k, role in enumerate(name for name in ROLES if any(name in s.cosines for s in measured)):
        for kind, style in (("mean", "-"), ("min", ":"), ("max", ":")):
            points = [(s.round + 1, s.cosines[role][kind]) for s in measured if role in s.cosines]
            label = role if kind == "mean" else None
            _line(cosines, points, color=COLOURS[k], label=label, linestyle=style, smooth=False)
    if cosines.lines:
        title = "Cosine between two updates of a role"
        _finish(cosines, history, title=title, label="mean, min and max", smooth=False)
    else:  # one member in each role
        empty.append(cosines)
    for axis in empty:
        axis.set_visible(False)
    return figure


def plot_rewards(history: Sequence[RoundSummary]) -> Figure:
    """Mean reward of every member."""
    return _by_role(history, lambda member: member.reward, title="Reward of the", label="mean reward of a row")


def plot_lengths(history: Sequence[RoundSummary]) -> Figure:
    """Mean completion length of every member."""
    return _by_role(
        history, lambda member: member.length, title="Response length of the", label="tokens per completion"
    )


def plot_ratings(history: Sequence[RoundSummary]) -> Figure:
    """What members are compared by, with its uncertainty: TrueSkill mean, or on a dataset the running mean reward."""
    roles, title, label = panels(history), "Ratings", "TrueSkill mu, band of one sigma"
    if not history[-1].teachers:
        title, label = "Running reward", "mean reward of the last rounds, band of one standard error"
    figure, axes = new_figure(1, len(roles), sharey=True)
    for axis, (role, named) in zip(axes, roles.items()):
        series = _series(history, role, _rating)
        for look, points in zip(looks(series) if len(series) <= MOST_LINES else (), series.values()):
            rounds, values = zip(*points)
            low, high = [mu - sigma for mu, sigma in values], [mu + sigma for mu, sigma in values]
            axis.fill_between(rounds, low, high, color=look["color"], alpha=0.12, linewidth=0)
        _member_lines(axis, history, role, lambda member: member.mu, smooth=False)
        _finish(axis, history, title=f"{title} of the {named}", label=label, smooth=False)
    return figure


def _rating(member: MemberSummary) -> tuple[float | None, float | None] | None:
    return None if member.mu is None else (member.mu, member.sigma)


def plot_complexity(history: Sequence[RoundSummary]) -> Figure | None:
    """Mean complexity of the programs that teachers wrote themselves, in valid proposals; one panel per measure."""
    measures = [name for name in MEASURES if any(name in summary.complexity for summary in history)]
    if not measures:
        return None
    figure, axes = new_figure(-(-len(measures) // 3), min(len(measures), 3))
    for k, (axis, name) in enumerate(zip(axes, measures)):
        points = _points(history, lambda s, name=name: s.complexity.get(name))
        _line(axis, points, smooth=is_long(history), **line_look(k))
        _finish(axis, history, title=f"Proposed programs: {MEASURES[name]}", label="mean of the round")
    for axis in axes[len(measures) :]:
        axis.set_visible(False)
    return figure


def plot_coverage(history: Sequence[RoundSummary]) -> Figure | None:
    """Cells of the task space visited so far, by all teachers together and by each."""
    points = _points(history, lambda s: s.coverage.get("filled"))
    if not points:
        return None
    figure, (axis,) = new_figure(1, 1)
    _line(axis, points, color="#000000", label="all", linewidth=2, smooth=False)
    teachers = history[-1].teachers
    for name, look in zip(teachers, looks(teachers)):
        own = _points(history, lambda s, key=f"filled/{name}": s.coverage.get(key))
        _line(axis, own, smooth=False, **look)
    _finish(axis, history, title="Coverage of the task space", label="cells visited", smooth=False)
    return figure


def plot_matrix(history: Sequence[RoundSummary]) -> Figure | None:
    """Matched solve rate of every pair of current members over their last rounds; nothing without teachers."""
    last = history[-1]
    if not last.teachers:
        return None
    rates = [[float("nan") if rate is None else rate for rate in row] for row in solve_rate_matrix(last)]
    wide, high = len(last.students), len(last.teachers)
    figure, (axis,) = new_figure(1, 1, size=(max(5.4, 2 + 0.3 * wide), max(3.7, 1.2 + 0.25 * high)))
    picture = axis.imshow(rates, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axis.set_xticks(range(len(last.students)), last.students, rotation=45, ha="right")
    axis.set_yticks(range(len(last.teachers)), last.teachers)
    for row, values in enumerate(rates):
        for column, value in enumerate(values if max(wide, high) <= MOST_LINES else ()):
            text = "-" if value != value else f"{100 * value:.0f}%\n{last.window_attempts[row][column]}"
            dark = value == value and value < 0.5
            axis.text(column, row, text, ha="center", va="center", color="white" if dark else "black", fontsize=8)
    told = "Matched solve rate and attempts" if max(wide, high) <= MOST_LINES else "Matched solve rate"
    axis.set_title(f"{told}, teacher (row), student (column)", fontsize=10)
    figure.colorbar(picture, ax=axis, label="solve rate")
    return figure


PLOTS: dict[str, Callable[[Sequence[RoundSummary]], Figure | None]] = {
    "success": plot_success,
    "solve_rates": plot_solve_rates,
    "rewards": plot_rewards,
    "ratings": plot_ratings,
    "response_length": plot_lengths,
    "complexity": plot_complexity,
    "coverage": plot_coverage,
    "matrix": plot_matrix,
    "weights": plot_weights,
    "family_tree": plot_family_tree,
}
"""File name without suffix -> function from rounds to a figure, or to `None` where the data are missing."""


def is_long(history: Sequence[RoundSummary]) -> bool:
    """Whether a run is so long that curves are running means."""
    return len(history) > 3 * WINDOW


def running_mean(values: Sequence[float], window: int = WINDOW) -> list[float]:
    """Mean over the last `window` values up to each point."""
    return [sum(values[max(i - window + 1, 0) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def panels(history: Sequence[RoundSummary]) -> dict[str, str]:
    """Role that has a panel -> its name in titles. On a dataset there are no teachers, and students are members; a
    single agent has one curve for both roles."""
    if history[-1].members[0].role == "shared":
        return {"students": "agent"}
    return {role: role for role in ROLES} if history[-1].teachers else {"students": "members"}


def _by_role(
    history: Sequence[RoundSummary], pick: Callable[[MemberSummary], object], *, title: str, label: str
) -> Figure:
    """A panel for each role with a line for each member."""
    roles = panels(history)
    figure, axes = new_figure(1, len(roles))
    for axis, (role, named) in zip(axes, roles.items()):
        _member_lines(axis, history, role, pick)
        _finish(axis, history, title=f"{title} {named}", label=label)
    return figure


def _points(history: Sequence[RoundSummary], pick: Callable[[RoundSummary], float | None]) -> list[tuple]:
    """Points (round, value), without rounds that have no value."""
    return [(summary.round + 1, value) for summary in history if (value := pick(summary)) is not None]


def _series(history: Sequence[RoundSummary], role: str, pick: Callable[[MemberSummary], object]) -> dict[str, list]:
    """Member -> points (round, value), for the members of a role, without those that have no value."""
    series: dict[str, list] = {}
    for summary in history:
        for member in summary.members:
            value = pick(member)
            if member.role in ROLES[role] and value is not None:
                series.setdefault(member.name, []).append((summary.round + 1, value))
    return series


def _member_lines(
    axis: Axes, history: Sequence[RoundSummary], role: str, pick: Callable, *, smooth: bool = True
) -> None:
    series = _series(history, role, pick)
    long = smooth and is_long(history)
    for points, look in zip(series.values(), looks(series)):
        _line(axis, points, smooth=long, **look)
    if len(series) > (2 if smooth else MOST_LINES):
        everybody = mean_points(series.values())
        _line(axis, everybody, color="#000000", label="mean", linewidth=2.2, smooth=long, raw=False)


def _line(
    axis: Axes,
    points: Sequence[tuple],
    *,
    color: str,
    label: str | None = None,
    linestyle: str = "-",
    linewidth: float = 1.4,
    smooth: bool,
    raw: bool = True,
) -> None:
    """Draws points, if there are any; `smooth` replaces them by their running mean, `raw` shows them behind it."""
    if not points:
        return
    rounds, values = zip(*points)
    if smooth:
        if raw:
            axis.plot(rounds, values, color=color, alpha=0.18, linewidth=0.8)
        values = running_mean(values)
    look = {"color": color, "linestyle": linestyle, "linewidth": linewidth, "markersize": 3}
    axis.plot(rounds, values, label=label, marker="o" if len(values) <= 12 else None, **look)


def _finish(
    axis: Axes,
    history: Sequence[RoundSummary],
    *,
    title: str,
    label: str,
    limits: tuple[float, float] | None = None,
    smooth: bool = True,
) -> None:
    from matplotlib.ticker import MaxNLocator

    marks = [summary.round + 1 for summary in history if summary.events]
    if marks:
        look = {"marker": "^", "color": "#555555", "linestyle": "none", "markersize": 5, "clip_on": False}
        place = axis.get_xaxis_transform()
        axis.plot(marks, [0.0] * len(marks), transform=place, label="replacement", **look)
    if limits:
        axis.set_ylim(*limits)
    axis.set_title(title, fontsize=10)
    smoothed = f", running mean of {WINDOW}" if smooth and is_long(history) else ""
    axis.set_xlabel(f"round{smoothed}", fontsize=9)
    axis.set_ylabel(label, fontsize=9)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7, ncols=2, framealpha=0.7)
