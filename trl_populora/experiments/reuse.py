"""Runs of other experiments that are the same as a run of this one, so that nothing is computed twice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..recipe import read_mapping
from ..reporting.probes import BASE
from ..run_files.files import read_json
from ..run_files.layout import EVALUATION_FILE, EVALUATION_FOLDER, JOB_RECIPE
from ..run_files.run import AVERAGE
from .jobs import Stage, stage
from .plan import Experiment, Job


NAMES = ("run_name", "output_dir")
"""Settings of a run that only name it."""


def reuse_runs(
    experiment: Experiment, base: Mapping[str, Any], jobs: Sequence[Job], exams: Sequence[str]
) -> dict[str, str]:
    """
    Links the folders of jobs that have none to finished runs of the experiments in `reuse`.

    A run is the same if its recipe is, apart from its name and folder, and its members have taken the same exams with
    as many answers at the same temperature; and so has their average, if a measure needs it.

    Args:
        experiment ([`Experiment`]): The plan.
        base (`Mapping`): The recipe that all arms share.
        jobs (`Sequence[Job]`): Jobs to look for.
        exams (`Sequence[str]`): Names of the exams in records.

    Returns:
        `dict[str, str]`: Name of each linked job -> folder of its run.
    """
    found = {}
    others = [job for output in experiment.reuse for job in _jobs(output)]
    for job in jobs:
        if os.path.lexists(job.folder):
            continue
        wanted = _identity(experiment.run_recipe(base, job))
        for other in others:
            recipe = os.path.join(other.folder, JOB_RECIPE)
            same = os.path.isfile(recipe) and _identity(read_mapping(recipe)) == wanted
            if same and stage(other, exams) is Stage.DONE and _examined_alike(other, experiment, exams):
                os.makedirs(os.path.dirname(job.folder), exist_ok=True)
                os.symlink(os.path.relpath(other.folder, os.path.dirname(job.folder)), job.folder)
                found[job.name] = other.folder
                break
    return found


def reused(job: Job) -> str | None:
    """The folder of the run that a job reuses; `None` for a run of its own."""
    if not os.path.islink(job.folder):
        return None
    return os.path.normpath(os.path.join(os.path.dirname(job.folder), os.readlink(job.folder)))


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


def _examined_alike(job: Job, experiment: Experiment, exams: Sequence[str]) -> bool:
    if not exams:
        return True
    record = read_json(os.path.join(job.folder, EVALUATION_FOLDER, EVALUATION_FILE), missing="")
    taken = [exam for exam in record["exams"] if exam["exam"] in exams]
    wanted = (experiment.exam_samples, experiment.exam_temperature)
    same = all((one["decoding"]["samples"], one["decoding"]["temperature"]) == wanted for one in taken)
    return same and (not experiment.averages or all(map(_has_average, taken)))


def _has_average(exam: Mapping[str, Any]) -> bool:
    """Whether the average of the students was examined; that of one student is the student."""
    return AVERAGE in exam["scores"] or sum(name != BASE for name in exam["scores"]) == 1
