"""`results.json`: every measure of every run, differences between arms, costs, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from ..reporting.comparison import Arm, Comparison, Row, run_cost, tail_mean
from ..reporting.over_seeds import LEVEL
from ..reporting.played_run import PlayedRun, read_run
from ..run_files.layout import JOB_LOG
from .jobs import Stage, begun, last_words, rounds_done, state, untaken
from .plan import Asked, Experiment, Job, Measure
from .questions import COMPARED, with_questions, without_answers
from .reuse import reused


RESULTS_FORMAT = 1


def results(
    experiment: Experiment,
    registered: Mapping[str, Any],
    problems: Mapping[str, str],
    rounds: Mapping[str, int | None],
) -> tuple[dict[str, Any], Comparison | None]:
    """
    The results of the finished runs.

    Args:
        experiment ([`Experiment`]): The plan.
        registered (`Mapping`): The record of `register`.
        problems (`Mapping[str, str]`): Name of each failed job -> reason.
        rounds (`Mapping[str, int | None]`): Arm -> rounds that its runs have; `None` where their data decide.

    Returns:
        `dict`: The record: what was registered, `jobs`, `values`, `differences`, `comparisons`, `compute`. And the
        runs that are done as arms; `None` if there is none, or the control has none.
    """
    names = registered["exam_names"]
    asked = experiment.asked(names.values())
    jobs, runs, remarks = [], {}, []
    for job in experiment.all_jobs:
        jobs.append(_job(job, asked, problems))
        if jobs[-1]["state"] == "done":
            try:
                runs[job] = replace(read_run(job.folder), planned_seed=job.seed)
                remarks += [f"{job.name}: {remark}" for remark in runs[job].remarks]
                there, planned = len(runs[job].history), rounds.get(job.arm) or 0
                if there < planned:
                    remarks.append(
                        f"{job.name}: only {there} of {planned} rounds are recorded; its numbers are of these."
                    )
            except (OSError, ValueError) as error:
                jobs[-1] |= {"state": "failed", "why": str(error)}
    arms = {arm: tuple(run for job, run in runs.items() if job.arm == arm) for arm in experiment.ordered_arms}
    compared = tuple(Arm(arm, runs) for arm, runs in arms.items() if runs)
    played = Comparison(compared) if arms[experiment.control] else None
    measures = experiment.parsed_measures
    values = {
        name: {arm: {str(run.seed): measured(measure, run, names) for run in runs} for arm, runs in arms.items()}
        for name, measure in measures.items()
    }
    rows, found = {}, []
    if played is not None:
        rows = {
            name: played.row(name, lambda run, measure=measure: measured(measure, run, names))
            for name, measure in measures.items()
        }
        found = [one for name, row in rows.items() for one in _differences(name, row, played)]
    lost = {  # exam -> runs whose questions cannot be compared
        exam: folders
        for exam in dict.fromkeys(names[one.exam] for one in measures.values() if one.exam and one.of in COMPARED)
        if (folders := without_answers([run for runs in arms.values() for run in runs], exam))
    }
    judged = []  # the p of each difference: over seeds and questions where both vary, otherwise over seeds
    for one in found:
        measure, own = measures[one["measure"]], values[one["measure"]]
        scored = {arm: [run for run in runs if own[arm][str(run.seed)] is not None] for arm, runs in arms.items()}
        pair = (scored[one["arm"]], scored[experiment.control])
        exam = names.get(measure.exam or "", "")
        readable = exam and not any(run.folder in lost.get(exam, ()) for runs in pair for run in runs)
        reach = with_questions(*pair, exam, of=measure.of) if readable else None
        one["with_questions"] = reach and reach._asdict()
        judged.append(reach.p if reach else one["p"])
    comparisons = sum(p is not None for p in judged)
    for one, p in zip(found, judged, strict=True):
        one["clear"] = p is not None and p <= (1 - LEVEL) / comparisons
    told = ("registered", "file", "sha256", "recipe_sha256", "git", "changes")
    plan = experiment.to_json()
    record = {
        "format": RESULTS_FORMAT,
        **{name: plan[name] for name in ("name", "question", "hypotheses", "measures", "seeds", "control", "exams")},
        "arms": {arm: plan["arms"][arm] or {} for arm in experiment.ordered_arms},
        "registered": {name: registered[name] for name in told},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": len(runs) == len(jobs),
        "jobs": jobs,
        "level": LEVEL,
        "values": values,
        "means": {name: _means(rows[name], played) if played is not None else {} for name in measures},
        "differences": found,
        "comparisons": comparisons,
        "compute": {arm: compute(runs) for arm, runs in arms.items() if runs},
        "equal_runs": played.equal_runs() if played else [],
        "circumstances": [
            *(played.circumstances() if played else ()),
            *remarks,
            *(
                f"Final exam {exam}: no answers that can be read in {', '.join(places)}; differences there have no "
                "interval over questions."
                for exam, places in lost.items()
            ),
        ],
    }
    return record, played


def measured(measure: Measure, run: PlayedRun, exam_names: Mapping[str, str]) -> float | None:
    """A run's value of a measure; `None` if it has none."""
    if measure.metric is not None:
        return tail_mean(run.curve(measure.metric), run.rounds, measure.last)
    return run.exams.get(exam_names[measure.exam or ""], {}).get(measure.of)


def compute(runs: tuple[PlayedRun, ...]) -> dict[str, float]:
    """What a run of an arm has cost in all its rounds, in mean over its runs, and per adapter. (Adapters train at the
    same time, so there are no seconds per adapter.)"""
    costs = [run_cost(run.history)._asdict() for run in runs]
    mean = {name: fmean(own[name] for own in costs) for name in costs[0]}
    whole = ("adapters", "seconds")
    each = {f"{name}_per_adapter": value / mean["adapters"] for name, value in mean.items() if name not in whole}
    return {"runs": len(runs), **mean, **each}


def _job(job: Job, asked: Asked, problems: Mapping[str, str]) -> dict[str, Any]:
    """State of a job. A job that failed in an earlier call and was not tried again is unfinished, unless a file of it
    is damaged."""
    now, damage = state(job, asked)
    kind = "done" if now is Stage.DONE else "failed" if damage or job.name in problems else "unfinished"
    log = os.path.join(job.folder, JOB_LOG)
    kind = "missing" if kind == "unfinished" and not (begun(job) or os.path.isfile(log)) else kind
    source = reused(job)
    why = (f"the run {source}" if source else "") if kind == "done" else f"{now.value} is next" if now else damage
    if now is Stage.EXAMS:
        why += f" ({untaken(job.folder, asked)})"
    if kind == "unfinished" and os.path.isfile(log):
        why += f"; {last_words(job)}"
    return {
        "job": job.name,
        "arm": job.arm,
        "seed": job.seed,
        "state": kind,
        "why": problems.get(job.name, why),
        "rounds": rounds_done(job),
        "folder": job.folder,
        "log": log if os.path.isfile(log) else None,
    }


def _differences(name: str, row: Row, played: Comparison) -> list[dict[str, Any]]:
    return [
        {"measure": name, "arm": arm.name, "control": played.arms[0].name, **found._asdict()}
        for arm, found in zip(played.arms[1:], row.differences, strict=True)
        if found is not None
    ]


def _means(row: Row, played: Comparison) -> dict[str, Any]:
    return {arm.name: value._asdict() if value else None for arm, value in zip(played.arms, row.values, strict=True)}
