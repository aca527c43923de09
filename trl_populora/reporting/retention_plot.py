"""The picture of a retention test: each operator's way back to the level of a clone."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .drawing import line_look, need_matplotlib, new_figure, save_figure


def save_retention_plot(curves: Sequence[Any], path: str | os.PathLike) -> str:
    """Draw the mean difference between child and clone over seeds, per operator, and a band: the mean over operators
    of [`standard_errors`].

    Args:
        curves (`Sequence[RetentionCurve]`): One or more per operator, asked at the same rounds.
        path (`str`): PNG file to write.

    Returns:
        `str`: The path.

    Raises:
        ValueError: If there is no curve, or matplotlib is not installed.
    """
    if not curves:
        raise ValueError("there are no curves to plot")
    need_matplotlib()
    figure, (axes,) = new_figure(1, 1, size=(9, 4.5))
    axes.axhline(0, color="black", linewidth=0.8)
    by_operator: dict[str, list[Any]] = {}
    for curve in curves:
        by_operator.setdefault(curve.operator, []).append(curve)
    for i, (name, own) in enumerate(by_operator.items()):
        difference = 100 * np.mean([curve.difference for curve in own], axis=0)
        axes.plot(own[0].rounds, difference, label=name, **line_look(i))
    others = [own for name, own in by_operator.items() if name != "clone"]  # which differs from itself by 0
    if others:
        error = 100 * np.mean([standard_errors(own) for own in others], axis=0)
        axes.fill_between(curves[0].rounds, -error, error, color="black", alpha=0.08, label="standard error (tasks)")
    axes.set_xlabel("training rounds since birth")
    axes.set_ylabel("child minus clone, points of pass@1")
    axes.legend(fontsize=8, ncols=2)
    save_figure(figure, path)
    return str(path)


def standard_errors(curves: Sequence[Any]) -> np.ndarray:
    """One standard error of the mean difference of an operator's curves, for each round, by the spread over tasks."""
    return np.linalg.norm([curve.standard_error for curve in curves], axis=0) / len(curves)
