"""The record of an evaluation, `evaluation.json`: all numbers and what they depend on, as plain data."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..run_files.files import write_json, write_table
from ..run_files.layout import EVALUATION_FILE
from .evaluating import ExamRun, file_stem
from .results import COLUMNS, ExamResult, per_question
from .statistics import share


RECORD_FORMAT = 1


def exam_record(run: ExamRun) -> dict[str, Any]:
    """What an evaluation's record says of one exam."""
    result = run.result
    exam = result.exam
    return {
        "exam": exam.name,
        "version": exam.version,
        "questions": len(exam.questions),
        "source": dict(exam.source),
        "decoding": asdict(run.decoding),
        "groups": result.groups,
        "seconds": {"generation": round(run.generation, 3), "grading": round(run.grading, 3)},
        "scores": {player: _score(result, player, run) for player in result.players},
    }


def _score(result: ExamResult, player: str, run: ExamRun) -> dict[str, Any]:
    own = [one for one in result.samples if one.player == player]
    verdicts = Counter(one.grade.verdict for one in own)
    judged = len(own) - verdicts["spared"]
    accuracy, low, high = share(per_question(result.scores(player)))
    limit = run.decoding.max_completion_length
    score = {
        "accuracy": accuracy,
        "low": low,
        "high": high,
        "well_formed": (judged - verdicts["refused"]) / judged if judged else math.nan,
        "tokens": sum(one.tokens for one in own) / len(own),
        "cut": sum(one.tokens >= limit for one in own) / len(own),
        "spared": verdicts["spared"],
        "failed": verdicts["failed"],
        "groups": {group: result.accuracy(player, group) for group in result.groups},
    }
    return known(score)


def known(value: Any) -> Any:
    """Plain data with `None` in place of NaN, which JSON has not."""
    if isinstance(value, Mapping):
        return {key: known(one) for key, one in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def save_evaluation(folder: str, runs: Sequence[ExamRun], about: Mapping[str, Any]) -> dict[str, Any]:
    """Writes one table of answers per exam and the record, and removes what was kept for going on.

    Args:
        folder (`str`): Where to.
        runs (`Sequence[ExamRun]`): The exams.
        about (`Mapping`): What else the record says: who was evaluated, on what base, by which versions.

    Returns:
        `dict`: The record.
    """
    for run in runs:
        write_table(os.path.join(folder, f"{file_stem(run.result.exam)}.parquet"), run.result.rows(), COLUMNS)
    record = {"format": RECORD_FORMAT, **about, "exams": [exam_record(run) for run in runs]}
    write_json(os.path.join(folder, EVALUATION_FILE), record)
    for file in (file for run in runs for file in run.files):
        file.remove()
    return record
