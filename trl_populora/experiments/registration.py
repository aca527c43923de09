"""`experiment.json`: the plan before the runs, and later additions. Other changes are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..run_files.files import read_json, write_json
from ..run_files.git import git_state
from ..run_files.layout import JOB_LOG, PLAN_FILE, left_by_a_run
from .jobs import begun
from .plan import Experiment, file_hash


FREE = ("jobs", "slurm", "reuse")
"""Keys that may change at any time: they decide where and when runs are executed."""
GROWING = ("arms", "seeds")
"""What may be added to."""


def register(
    experiment: Experiment, base: Mapping[str, Any], path: str, exam_names: Mapping[str, str]
) -> dict[str, Any]:
    """
    The registered plan. It is written if there is none, or if no run has started.

    Args:
        experiment ([`Experiment`]): The plan as it is now.
        base (`Mapping`): The recipe that all arms share, as it is now.
        path (`str`): The experiment's file.
        exam_names (`Mapping[str, str]`): Names of its exams in the records of evaluations.

    Returns:
        `dict`: `registered` (time), `file`, its `sha256` and that of the recipe, `git`, `plan`, `recipe`,
        `exam_names`, and `changes`: for each its time, hashes, commit, and the arms and seeds it added.

    Raises:
        ValueError: If runs have started, and the plan has changes other than new arms or seeds.
    """
    place = os.path.join(experiment.output, PLAN_FILE)
    record = check_registered(experiment, base)
    stamp = {"sha256": file_hash(path), "recipe_sha256": file_hash(experiment.recipe), "git": git_state()}
    now, plan = datetime.now(UTC).isoformat(timespec="seconds"), as_read(experiment.to_json())
    if record is None:
        record = {"registered": now, "file": path, **stamp, "plan": plan, "recipe": dict(base)}
        record |= {"exam_names": dict(exam_names), "changes": []}
        write_json(place, record)
        return record
    before = record["plan"]
    added = {
        "arms": [arm for arm in plan["arms"] if arm not in before["arms"]],
        "seeds": [seed for seed in plan["seeds"] if seed not in before["seeds"]],
    }
    newest = record["changes"][-1] if record["changes"] else record
    if any(added.values()) or newest["sha256"] != stamp["sha256"]:
        record["changes"].append({"time": now, **stamp, "added": added})
        record["plan"] = plan
        write_json(place, record)
    return record


def check_registered(experiment: Experiment, base: Mapping[str, Any]) -> dict[str, Any] | None:
    """The plan with which runs have started, as it was registered; `None` if no run has. Writes nothing.

    Raises:
        ValueError: If the plan or the recipe has changes other than new arms or seeds, or the file is missing or
            damaged.
    """
    place = os.path.join(experiment.output, PLAN_FILE)
    if not os.path.isfile(place):
        if runs := [job.name for job in experiment.all_jobs if begun(job) and not os.path.islink(job.folder)]:
            raise ValueError(
                f"{place} is missing, but runs have begun ({', '.join(runs)}). Restore the file, or name another "
                f"output (reuse: [{experiment.output}] then takes finished runs of the same settings)."
            )
        return None
    if not has_begun(experiment):
        return None
    record = read_json(place, missing="")
    if not (isinstance(record.get("plan"), dict) and {*GROWING} <= record["plan"].keys() and "recipe" in record):
        raise ValueError(f"{place} is damaged (it holds no plan). Restore the file.")
    _check_same(record["plan"], as_read(experiment.to_json()), place)
    base = as_read(base)
    if record["recipe"] != base:
        names = sorted(n for n in {*base, *record["recipe"]} if base.get(n) != record["recipe"].get(n))
        raise ValueError(
            f"{experiment.recipe} has changed in {', '.join(names)} since the runs of {place} began. Undo the "
            f"change, or name another output for a new experiment."
        )
    return record


def as_read(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as JSON gives it back: keys such as `0` of `{0: 20GB}` are texts."""
    return json.loads(json.dumps(record))


def has_begun(experiment: Experiment) -> bool:
    """Whether a run of any arm has written anything into the folder."""
    folders = [one.path for one in _entries(experiment.output) for one in _entries(one.path)]
    return any(os.path.exists(os.path.join(folder, JOB_LOG)) or left_by_a_run(folder) for folder in folders)


def _entries(folder: str) -> list[os.DirEntry]:
    return [one for one in os.scandir(folder) if one.is_dir()] if os.path.isdir(folder) else []


def _check_same(before: Mapping[str, Any], plan: Mapping[str, Any], place: str) -> None:
    problems = [name for name in plan if name not in (*FREE, *GROWING) and plan[name] != before.get(name)]
    problems += [f"seeds (without {seed})" for seed in before["seeds"] if seed not in plan["seeds"]]
    for arm, own in before["arms"].items():
        if arm not in plan["arms"]:
            problems.append(f"arms (without {arm})")
        elif (plan["arms"][arm] or {}) != (own or {}):
            problems.append(f"arms.{arm}")
    if problems:
        raise ValueError(
            f"{', '.join(problems)} changed since the runs of {place} began. After runs have started, only seeds and "
            f"arms can be added. Undo the change, or name another output for a new experiment."
        )
