"""Differences between arms in an exam, with its questions as a second unit of chance beside the seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ..reporting.over_seeds import Reach, over_questions
from ..reporting.played_run import PlayedRun
from ..run_files.layout import EVALUATION_FOLDER, TABLE_SUFFIX
from ..run_files.run import AVERAGE, BASE


COMPARED = ("mean", AVERAGE)
"""Scores of an exam whose difference between arms has an interval over questions."""


def with_questions(
    arm: Sequence[PlayedRun], control: Sequence[PlayedRun], exam: str, *, of: str, control_of: str | None = None
) -> Reach | None:
    """
    The interval of the difference of two arms in an exam, for other seeds and other questions ([`over_questions`]).

    Args:
        arm, control (`Sequence[PlayedRun]`): Runs. Their difference must be paired: both arms have every seed of one.
        exam (`str`): Name of the exam in the records.
        of (`str`): `"mean"` of the students, or their `"average"` as one adapter. The best and the
            weakest are chosen by their answers, so that no interval over questions is right for them.
        control_of (`str`, *optional*): The same for the control; as `of` if unset.

    Returns:
        [`Reach`], or `None` if there are fewer than two common seeds or questions, if runs were asked other questions,
        if the difference is not paired ([`~reporting.over_seeds.difference`]), or for another `of`.
    """
    if of not in COMPARED:
        return None
    ours, theirs = ({run.seed: run for run in runs} for runs in (arm, control))
    if not (ours.keys() <= theirs.keys() or theirs.keys() <= ours.keys()):
        return None
    pairs = [
        (_judged(ours[seed], exam, of=of), _judged(theirs[seed], exam, of=control_of or of))
        for seed in sorted(ours.keys() & theirs.keys())
    ]
    taken = [one for pair in pairs for one in pair]
    if not taken or any(one.keys() != taken[0].keys() for one in taken):
        return None
    questions = [name for name in sorted(taken[0]) if all(one[name] for one in taken)]
    return over_questions(
        np.array([[fmean(one[name]) - fmean(other[name]) for name in questions] for one, other in pairs], ndmin=2)
    )


def without_answers(runs: Sequence[PlayedRun], exam: str) -> list[str]:
    """Folders of runs that have scores in an exam, but no table of their answers any more, or a damaged one."""

    def is_without(run: PlayedRun) -> bool:
        import pyarrow

        try:
            return not right_by_question(run, exam, of="mean")
        except (OSError, pyarrow.ArrowException, ValueError):
            return True

    return [run.folder for run in runs if exam in run.exams and is_without(run)]


def right_by_question(run: PlayedRun, exam: str, *, of: str) -> dict[str, float]:
    """Question -> share of right answers in a run's exam, without spared answers: the mean over players, as in their
    score. A single student is its average."""
    return {question: fmean(own) for question, own in _judged(run, exam, of=of).items() if own}


def _judged(run: PlayedRun, exam: str, *, of: str) -> dict[str, list[float]]:
    """Question -> share of right answers of each player, without spared answers and players that have no others."""
    import pyarrow.parquet

    scores = next((one["scores"] for one in run.evaluation.get("exams", ()) if one["exam"] == exam), {})
    players = {name for name in scores if not name.startswith("teacher")} - {BASE, AVERAGE}
    if of == AVERAGE and len(players) > 1:
        players = {AVERAGE}
    folder = os.path.join(run.folder, EVALUATION_FOLDER)
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    found: dict[str, dict[str, list[bool]]] = {}
    for name in (one for one in names if one.endswith(TABLE_SUFFIX)):
        columns = ["exam", "player", "question", "verdict"]
        for row in pyarrow.parquet.read_table(os.path.join(folder, name), columns=columns).to_pylist():
            if row["exam"] == exam and row["player"] in players:
                given = found.setdefault(row["question"], {}).setdefault(row["player"], [])
                given += [row["verdict"] == "solved"] * (row["verdict"] != "spared")
    return {question: [fmean(given) for given in own.values() if given] for question, own in found.items()}
