"""`Experiment`: the question and the runs that answer it. Read from a YAML file and checked at construction."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from hashlib import sha256
from typing import Any, NamedTuple

from ..recipe import read_mapping
from ..run_files.layout import PLAN_FILE, RESULTS_FILE, RESULTS_PAGE, SUBMITTED_FOLDER
from ..settings import from_mapping, suggest, to_mapping


NAME = re.compile(r"[\w][\w.-]*")
TAKEN = (PLAN_FILE, RESULTS_FILE, RESULTS_PAGE, SUBMITTED_FOLDER)
OWN = {
    "seed": "name seeds in `seeds`",
    "output_dir": "name a folder in `output`",
    "overwrite_output_dir": "an experiment never overwrites a finished run",
    "resume_from_checkpoint": "a run that has started resumes automatically",
    "final_exams": "name exams in `exams`",
    "final_exams_limit": "an exam's name may end in [:N], for its first N questions",
}
"""Settings that the experiment gives to its runs, and what to do instead of setting them."""
KINDS = ("mean", "best", "weakest", "average")


@dataclass(frozen=True)
class Measure:
    """One number of a run that is used to compare arms.

    Args:
        metric (`str`, *optional*): A metric of the rounds (docs/metrics.md), averaged over the last rounds; or
            `exam/<name>/mean`, the students' mean accuracy in an exam of the probes along the run, averaged over the
            probes in the last rounds.
        last (`int`, *optional*, defaults to `10`): Number of last rounds for the mean.
        exam (`str`, *optional*): Instead of a metric, the accuracy in one of the experiment's exams.
        of (`str`, *optional*, defaults to `"mean"`): `"mean"` of the students' scores, or the `"best"` or `"weakest"`
            student, chosen on questions other than those on which it is scored, or `"average"`: the score of one
            adapter whose update is the mean of the students' updates.

    Raises:
        ValueError: If it has both or neither, or a value is out of range.
    """

    metric: str | None = None
    last: int = 10
    exam: str | None = None
    of: str = "mean"

    def __post_init__(self) -> None:
        if (self.metric is None) == (self.exam is None):
            raise ValueError("name either a metric of the rounds (metric: solve_rate) or an exam (exam: held_out).")
        if self.last < 1:
            raise ValueError(f"last={self.last} must be at least 1 round.")
        if self.exam is not None and self.last != Measure.last:
            raise ValueError(f"last={self.last} is for metrics of the rounds: an exam is taken once, after the run.")
        if self.of not in KINDS:
            raise ValueError(f"of={self.of!r} must be one of {list(KINDS)}.")
        if self.metric is not None and self.of != "mean":
            raise ValueError(f"of={self.of!r} is for exams: leave it out, or name one of `exams` instead of a metric.")


class Asked(NamedTuple):
    """The exams of an experiment.

    Attributes:
        exams (`tuple[str, ...]`): Their names in the records of evaluations.
        samples (`int`), temperature (`float`): Of the answers.
        average (`bool`): Whether the average of the students takes them, too.
    """

    exams: tuple[str, ...] = ()
    samples: int = 1
    temperature: float = 0.0
    average: bool = False


@dataclass(frozen=True)
class Experiment:
    """A question and the runs that answer it.

    Args:
        name (`str`): Its name.
        question (`str`): The question to answer.
        measures (`dict[str, dict]`): Name -> [`Measure`].
        recipe (`str`): Path of the recipe that all arms share.
        arms (`dict[str, dict]`): Name -> settings that differ from the recipe's. A mapping, such as
            `evolution_kwargs`, changes only the keys it names.
        control (`str`): The arm with which others are compared.
        seeds (`list[int]`): Seeds. Every arm runs once for each.
        output (`str`): Folder of the experiment; its runs are in `<arm>/seed_<seed>`.
        hypotheses (`list[str]`, *optional*): Expected results, as sentences.
        settings (`dict`, *optional*): Settings of all arms, over the recipe's.
        exams (`list[str]`, *optional*): Exams for the students and the base after each run (docs/evaluation.md).
        exam_samples (`int`, *optional*, defaults to `1`), exam_temperature (`float`, *optional*, defaults to `0.0`):
            Answers per question, and their temperature; 0 is greedy decoding.
        exam_data (`str`, *optional*): Folder with the files of benchmarks; the Hub if unset.
        reuse (`list[str]`, *optional*): Folders (`output`) of other experiments. A finished run there with the same
            recipe, seed and exams is used instead of a new one.
        jobs (`int`, *optional*, defaults to `1`): Number of runs at the same time.
        slurm (`dict`, *optional*): Parameters of submitit, such as `{timeout_min: 600, gpus_per_node: 1}`, and
            `max_num_timeout`: how often a run that reaches its time limit is submitted again (default: 100 times).

    Raises:
        ValueError: If it contradicts itself.
    """

    name: str
    question: str
    measures: dict
    recipe: str
    arms: dict
    control: str
    seeds: list[int]
    output: str
    hypotheses: list[str] = field(default_factory=list)
    settings: dict = field(default_factory=dict)
    exams: list[str] = field(default_factory=list)
    exam_samples: int = 1
    exam_temperature: float = 0.0
    exam_data: str | None = None
    reuse: list[str] = field(default_factory=list)
    jobs: int = 1
    slurm: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.measures and self.arms and self.seeds):
            raise ValueError("measures, arms and seeds must each name at least one.")
        if self.control not in self.arms:
            raise ValueError(f"control={self.control!r} is no arm. {suggest(self.control, self.arms)}")
        if len(set(self.seeds)) < len(self.seeds):
            twice = next(seed for seed in self.seeds if self.seeds.count(seed) > 1)
            raise ValueError(f"seeds={self.seeds} names {twice} twice: each seed is one run of an arm.")
        if wrong := [seed for seed in self.seeds if not 0 <= seed < 2**32]:
            raise ValueError(f"seeds={self.seeds}: {wrong[0]} must be from 0 to {2**32 - 1}.")
        if self.jobs < 1:
            raise ValueError(f"jobs={self.jobs} must be at least 1.")
        if os.path.normpath(self.output) in map(os.path.normpath, self.reuse):
            raise ValueError(f"reuse={self.reuse} names the experiment's own output; name those of others.")
        if len(set(self.exams)) < len(self.exams):
            raise ValueError(f"exams={self.exams} names an exam twice.")
        if self.exam_samples < 1 or not 0 <= self.exam_temperature < math.inf:
            raise ValueError(
                f"exam_samples={self.exam_samples} must be at least 1, and exam_temperature={self.exam_temperature} "
                "a number of at least 0."
            )
        if self.exam_samples > 1 and not self.exam_temperature:
            raise ValueError(f"exam_samples={self.exam_samples} would all be the same: set exam_temperature above 0.")
        for arm, own in self.arms.items():
            if not (isinstance(arm, str) and NAME.fullmatch(arm)):
                raise ValueError(f"arm {arm!r} needs a name of letters, digits, '_', '-' and '.': it names a folder.")
            if arm in TAKEN:
                raise ValueError(f"arm {arm!r} needs another name: the experiment has a file or folder of this name.")
            _check_settings(own or {}, f"arms.{arm}")
        _check_settings(self.settings, "settings")
        for name, measure in self.parsed_measures.items():
            if not isinstance(name, str):
                raise ValueError(f"the name {name!r} of a measure must be text: write it in quotes.")
            if measure.exam is not None and measure.exam not in self.exams:
                hint = suggest(measure.exam, self.exams)
                raise ValueError(
                    f"measures.{name}: exam {measure.exam!r} is not among the exams of the experiment. {hint}"
                )

    @property
    def parsed_measures(self) -> dict[str, Measure]:
        """Name -> measure."""
        return {name: from_mapping(Measure, own, setting=f"measures.{name}") for name, own in self.measures.items()}

    def asked(self, names: Iterable[str]) -> Asked:
        """How its exams are taken; `names` are those of the exams in the records of evaluations."""
        return Asked(tuple(names), self.exam_samples, self.exam_temperature, self.averages)

    @property
    def averages(self) -> bool:
        """Whether a measure needs the average of the students as an adapter."""
        return any(one.of == "average" for one in self.parsed_measures.values())

    @property
    def ordered_arms(self) -> list[str]:
        """Names of the arms, the control first."""
        return [self.control, *(arm for arm in self.arms if arm != self.control)]

    @property
    def all_jobs(self) -> list[Job]:
        """Every arm with every seed, seed by seed, so that an interrupted experiment has complete comparisons."""
        return [
            Job(arm, seed, os.path.join(self.output, arm, f"seed_{seed}"))
            for seed in self.seeds
            for arm in self.ordered_arms
        ]

    def job(self, name: str) -> Job:
        """The job `"ARM/SEED"`.

        Raises:
            ValueError: If there is none.
        """
        jobs = {job.name: job for job in self.all_jobs}
        if name not in jobs:
            raise ValueError(f"there is no job {name!r}. {suggest(name, jobs)}")
        return jobs[name]

    def arm_recipe(self, base: Mapping[str, Any], arm: str) -> dict[str, Any]:
        """The recipe of an arm: the common recipe, the common settings, and the settings of the arm."""
        return merged(merged(base, self.settings), self.arms[arm] or {})

    def run_recipe(self, base: Mapping[str, Any], job: Job) -> dict[str, Any]:
        """The complete recipe of one run, as in the file from which it is started."""
        recipe = {name: value for name, value in self.arm_recipe(base, job.arm).items() if name not in OWN}
        own = recipe.get("reserved_exams") or []
        own = [own] if isinstance(own, str) else own
        if self.exams and isinstance(own, list):  # a run refuses anything else
            recipe["reserved_exams"] = list(dict.fromkeys((*own, *self.exams)))
        given = {"seed": job.seed, "output_dir": job.folder, "resume_from_checkpoint": "auto"}
        return {"run_name": f"{self.name}-{job.arm}-{job.seed}", **recipe, **given}

    def to_json(self) -> dict[str, Any]:
        """The plan as the YAML file has it."""
        return to_mapping(self)


class Job(NamedTuple):
    """One run: an arm with a seed, and its folder, which is the run's output_dir."""

    arm: str
    seed: int
    folder: str

    @property
    def name(self) -> str:
        return f"{self.arm}/{self.seed}"


def read_experiment(path: str) -> Experiment:
    """An experiment from its YAML file.

    Raises:
        ValueError: If the file cannot be read, or the experiment is invalid. The message names the file.
    """
    given = read_mapping(path)
    try:
        required = (one.name for one in fields(Experiment) if one.default is one.default_factory is MISSING)
        missing = [name for name in required if given.get(name) is None]
        if missing:
            raise ValueError(f'{missing[0]} is missing. The page "Experiments" of the documentation has an example.')
        return from_mapping(Experiment, given, setting="experiment")
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).removeprefix('experiment: ')}") from None


def file_hash(path: str) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return sha256(file.read()).hexdigest()


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with changes. If both have a mapping under a key, it is changed key by key."""
    both = {
        name: merged(base[name], value)
        for name, value in changes.items()
        if isinstance(value, Mapping) and isinstance(base.get(name), Mapping)
    }
    return {**base, **changes, **both}


def _check_settings(given: object, place: str) -> None:
    if not isinstance(given, Mapping):
        raise ValueError(f"{place}={given!r} must be a mapping of settings to values.")
    for name in given:
        if name in OWN:
            raise ValueError(f"{place}.{name} cannot be set in an experiment: {OWN[name]}.")
