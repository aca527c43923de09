"""Runs of other experiments that are the same as a run of this one, so that nothing is computed twice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..recipe import read_mapping
from ..run_files.layout import JOB_RECIPE
from ..run_files.run import read_scores
from .jobs import Stage, state
from .plan import Experiment, Job


NAMES = ("run_name", "output_dir")
"""Settings of a run that only name it."""


def reuse_runs(
    experiment: Experiment,
    base: Mapping[str, Any],
    jobs: Sequence[Job],
    exam_versions: Mapping[str, Mapping[str, str]],
) -> dict[str, str]:
    """
    Links the folders of jobs that have none to finished runs of the experiments in `reuse`.

    A run is the same if its recipe is, apart from its name and folder, and all its students have taken the same exams
    with as many answers at the same temperature; and so has their average, if a measure needs it. Data, reward
    functions and models are compared by their names only.

    Args:
        experiment ([`Experiment`]): The plan.
        base (`Mapping`): The recipe that all arms share.
        jobs (`Sequence[Job]`): Jobs to look for.
        exam_versions (`Mapping[str, Mapping[str, str]]`): Arm -> name of each exam in records -> version of its
            questions.

    Returns:
        `dict[str, str]`: Name of each linked job -> folder of its run.
    """
    found = {}
    others = [job for output in experiment.reuse for job in _jobs(output)]
    for job in jobs:
        if os.path.islink(job.folder) and not os.path.exists(job.folder):  # its run was deleted
            os.remove(job.folder)
        if os.path.lexists(job.folder):
            continue
        wanted, versions = _identity(experiment.run_recipe(base, job)), exam_versions[job.arm]
        for other in others:
            recipe = os.path.join(other.folder, JOB_RECIPE)
            same = os.path.isfile(recipe) and _identity(read_mapping(recipe)) == wanted
            if same and state(other, experiment.asked(versions))[0] is Stage.DONE and _same_questions(other, versions):
                folder = os.path.dirname(job.folder)
                os.makedirs(folder, exist_ok=True)
                with suppress(FileExistsError):  # by another call, just now
                    os.symlink(os.path.relpath(os.path.realpath(other.folder), os.path.realpath(folder)), job.folder)
                found[job.name] = other.folder
                break
    return found


def reused(job: Job) -> str | None:
    """The folder of the run that a job reuses; `None` for a run of its own."""
    if not os.path.islink(job.folder):
        return None
    return os.path.realpath(job.folder)


def _jobs(output: str) -> Iterator[Job]:
    """All runs in the folder of an experiment that are its own."""
    for arm in sorted(os.listdir(output)) if os.path.isdir(output) else ():
        folder = os.path.join(output, arm)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            seed, place = name.removeprefix("seed_"), os.path.join(folder, name)
            if seed.isdigit() and not os.path.islink(place):
                yield Job(arm, int(seed), place)


def _identity(recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in recipe.items() if name not in NAMES}


def _same_questions(job: Job, exam_versions: Mapping[str, str]) -> bool:
    """Whether the exams that a run has taken have these versions."""
    taken = {exam["exam"]: exam["version"] for exam in read_scores(job.folder).get("exams", ())}
    return all(taken[name] == version for name, version in exam_versions.items())
