"""Who solves whose tasks: the matrix of solve rates, and its differences from what ratings predict, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...diagnostics import RoundSummary
from ...diagnostics.dynamics import solve_rate_matrix
from ..page import Plot, Section
from ..page.figures import MAX_FRAMES, matrix_figure, thinned
from ..page.formats import is_missing, written
from .series import SMOOTHED, curves, is_long, of_rounds, with_points


if TYPE_CHECKING:
    from ..played_run import PlayedRun


def games(run: PlayedRun) -> Section:
    """The section on games. It is empty if no member proposes tasks."""
    return Section("games", "Games", [*_matrices(run), *_rates(run)] if run.self_play else [])


def _matrices(run: PlayedRun) -> list[Plot]:
    last = run.last
    # After a resume with other members, the matrix has another shape. The slider shows only the newest shape.
    same = [s for s in run.history if (s.teachers, s.students) == (last.teachers, last.students)]
    shown = thinned(same, MAX_FRAMES)
    if not last.teachers or not last.students:
        return []
    height = max(300, min(90 + 34 * len(last.teachers) + 60, 640))
    notes = {
        _name(s): [
            [f"{solved} of {n} attempts" for n, solved in zip(*pair)]
            for pair in zip(s.window_attempts, s.window_solved)
        ]
        for s in shown
    }
    slider = " Move the slider to go back in time." if len(shown) > 1 else ""
    plots = [
        Plot(
            "matrix",
            matrix_figure(
                {_name(s): solve_rate_matrix(s) for s in shown},
                rows=last.teachers,
                columns=last.students,
                notes=notes,
                unit="solved",
            ),
            "Solve rate of every student on every teacher's tasks",
            "Each cell is the share of attempts solved over the last ten rounds in which the two met; empty if they "
            f"have not met. A light row is a teacher whose tasks are too hard for all students. A dark row is a "
            f"teacher whose tasks are too easy.{slider}",
            height=height,
        )
    ]
    residuals = {_name(s): s.residuals for s in shown if s.residuals}
    if residuals:
        known = [abs(v) for matrix in residuals.values() for row in matrix for v in row if not is_missing(v)]
        plots.append(
            Plot(
                "residual",
                matrix_figure(
                    residuals,
                    rows=last.teachers,
                    columns=last.students,
                    notes={_name(s): _played(s) for s in shown},
                    diverging=max(max(known, default=0.1), 0.1),
                    kind="signed",
                    unit="teacher wins",
                ),
                "What ratings miss",
                "The teacher's observed share of wins in the last meetings minus the share that the ratings "
                "predicted. Blue: this teacher is harder for this student than predicted. Orange: easier. If strong "
                "colours stay, members beat each other in cycles, which one number per member cannot describe.",
                height=height,
            )
        )
    return plots


def _name(summary: RoundSummary) -> str:
    return str(summary.round + 1)


def _played(summary: RoundSummary) -> list[list[str]]:
    return [[f"{written(float(n), 'number', 0)} games" for n in row] for row in summary.games]


def _rates(run: PlayedRun) -> list[Plot]:
    history, plots = run.history, []
    how = SMOOTHED if is_long(history) else ""
    kinds = sorted({kind for summary in history for kind in summary.solve_rates})
    by_type = {kind: of_rounds(history, lambda s, kind=kind: s.solve_rates.get(kind)) for kind in kinds}
    if by_type:
        plots.append(
            Plot(
                "types",
                curves(run, by_type, share=True),
                "Solve rate by task type",
                f"Share of the attempts at teachers' tasks that solved them. Types differ in difficulty.{how}",
                height=260,
            )
        )
    filled = with_points(
        {
            "share of attempts": of_rounds(history, lambda s: s.fill_rate),
            "of them solved": of_rounds(history, lambda s: s.solve_rate_filled),
        }
    )
    if filled:
        plots.append(
            Plot(
                "fill-ins",
                curves(run, filled, share=True),
                "Tasks filled in from the buffer",
                "If a teacher has too few valid proposals, students get older tasks from the buffer. Many fill-ins "
                "mean few games."
                f"{how}",
                height=260,
            )
        )
    residual = with_points({"residual": of_rounds(history, lambda s: s.residual)})
    if residual:
        plots.append(
            Plot(
                "residual-size",
                curves(run, residual, smoothed=False),
                "Size of what ratings miss",
                "Root mean square of the residuals of pairs with 32 games or more. Near 0, one number per member "
                "describes the results of the last meetings.",
                height=260,
            )
        )
    return plots
