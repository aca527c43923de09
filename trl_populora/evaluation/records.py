"""The record of an evaluation, `evaluation.json`: all numbers and what they depend on, as plain data."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from ..run_files.files import write_json, write_table
from ..run_files.layout import EVALUATION_FILE, answers_file
from ..run_files.run import BASE
from .evaluating import ExamRun
from .results import COLUMNS
from .statistics import LEVEL, chosen_elsewhere, difference, mean_rates, pass_at_k, per_question, share


RECORD_FORMAT = 1
SUMMARIES: Mapping[str, Callable[[Sequence[np.ndarray]], np.ndarray]] = {
    "mean": mean_rates,
    "best": chosen_elsewhere,
    "weakest": partial(chosen_elsewhere, weakest=True),
}
"""Name of a summary of a team -> function from the rates of its members to one array of rates, `(questions,)` each."""


def save_evaluation(
    folder: str, runs: Sequence[ExamRun], teams: Mapping[str, Sequence[str]], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes one table of answers per exam and the record, and removes the files of partial answers.

    Args:
        folder (`str`): Output folder.
        runs (`Sequence[ExamRun]`): The exams.
        teams (`Mapping[str, Sequence[str]]`): Name of a team -> its players, for mean, best and weakest.
        about (`Mapping`): Other data for the record: runs, base, versions.

    Returns:
        `dict`: The record.
    """
    for run in runs:
        write_table(answers_file(folder, run.result.exam.file_stem), run.result.rows(), COLUMNS)
    record = make_record(runs, teams, about)
    write_json(os.path.join(folder, EVALUATION_FILE), record)
    for file in chain.from_iterable(run.files for run in runs):
        file.remove()
    return record


def make_record(
    runs: Sequence[ExamRun], teams: Mapping[str, Sequence[str]], about: Mapping[str, Any]
) -> dict[str, Any]:
    """The record of exams; arguments as in [`save_evaluation`]."""
    rates = [_rates(run, teams) for run in runs]
    pairs = [_pairs(one, teams) for one in rates]
    chosen = {summary_name(team, "best") for team in teams}
    comparisons = sum(of not in chosen for own in pairs for of, _ in own)
    exams = [_exam(*one, teams, comparisons) for one in zip(runs, rates, pairs, strict=True)]
    metrics = {
        f"eval/{exam['exam']}/{name}": one["accuracy"]
        for exam in exams
        for name, one in (exam["scores"] | exam["summaries"]).items()
        if one["accuracy"] is not None
    }
    made = {"level": LEVEL, "comparisons": comparisons, "exams": exams, "metrics": metrics}
    return {"format": RECORD_FORMAT, **about, **made}


def summary_name(team: str, summary: str) -> str:
    """Key of a team's `"mean"`, `"best"` or `"weakest"`. A single team has no name in it."""
    return f"{team}/{summary}" if team else summary


def _rates(run: ExamRun, teams: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
    """Rates of every player, and of every team's summaries, if it has more than one player."""
    rates = {player: per_question(run.result.scores(player)) for player in run.result.players}
    for team, players in teams.items():
        if len(players) > 1:
            own = [rates[player] for player in players]
            rates |= {summary_name(team, name): summarise(own) for name, summarise in SUMMARIES.items()}
    return rates


def _pairs(rates: Mapping[str, np.ndarray], teams: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Pairs to compare: everybody except the weakest with the base, and the means of other teams with that of the
    first."""
    pairs = []
    if BASE in rates:
        skipped = {BASE, *(summary_name(team, "weakest") for team in teams)}
        pairs += [(name, BASE) for name in rates if name not in skipped]
    first, *others = [_whole(team, players) for team, players in teams.items()] or [""]
    return pairs + [(other, first) for other in others if other in rates and first in rates]


def _whole(team: str, players: Sequence[str]) -> str:
    return players[0] if len(players) == 1 else summary_name(team, "mean")


def _exam(
    run: ExamRun,
    rates: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]],
    teams: Mapping[str, Sequence[str]],
    comparisons: int,
) -> dict[str, Any]:
    exam, players = run.result.exam, run.result.players
    differences = []
    for of, to in pairs:
        found = difference(rates[of], rates[to], comparisons=max(comparisons, 1))
        if of in {summary_name(team, "best") for team in teams}:  # resamples do not choose again
            found = found._replace(significant=False)
        differences.append({"of": of, "to": to} | found._asdict())
    return known(
        {
            "exam": exam.name,
            "version": exam.version,
            "questions": len(exam.questions),
            "source": dict(exam.source),
            "decoding": asdict(run.decoding),
            "groups": run.result.groups,
            "seconds": {"generation": round(run.generation, 3), "grading": round(run.grading, 3)},
            "tokens": sum(one.tokens for one in run.result.samples),
            "prompt_tokens": sum(one.prompt_tokens for one in run.result.samples),
            "scores": {player: _score(run, player) for player in players},
            "summaries": {name: _accuracy(own) for name, own in rates.items() if name not in players},
            "differences": differences,
        }
    )


def _accuracy(rates: np.ndarray) -> dict[str, float]:
    accuracy, low, high = share(rates)
    return {"accuracy": accuracy, "low": low, "high": high}


def _score(run: ExamRun, player: str) -> dict[str, Any]:
    result, count = run.result, run.decoding.samples
    limit = run.decoding.max_completion_length or math.inf
    own = result.of_player[player]
    verdicts = Counter(one.grade.verdict for one in own)
    judged, scores = len(own) - verdicts["spared"], result.scores(player)
    several = [k for k in (2**i for i in range(count.bit_length())) if k < count] + [count]
    return _accuracy(per_question(scores)) | {
        "pass_at_k": {str(k): _accuracy(pass_at_k(scores, k)) for k in several if count > 1},
        "well_formed": (judged - verdicts["refused"]) / judged if judged else math.nan,
        "tokens": sum(one.tokens for one in own) / len(own),
        "cut": sum(one.tokens >= limit for one in own) / len(own),
        "verdicts": dict(verdicts),
        "groups": {group: result.accuracy(player, group) for group in result.groups},
    }


def known(value: Any) -> Any:
    """Plain data with `None` instead of NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: known(one) for key, one in value.items()}
    if isinstance(value, list):
        return [known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
