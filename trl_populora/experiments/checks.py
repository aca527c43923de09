"""Checks before the first run: settings, names of metrics, exams. Also the sizes of runs."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from ..extras import is_installed
from ..reporting.played_run import EXAMS
from ..run_files.files import write_file
from ..run_files.layout import SUBMITTED_FOLDER
from ..run_files.secrets import find_secrets
from ..settings import suggest
from .jobs import begun
from .launchers import slurm_executor
from .plan import Experiment, Job


if TYPE_CHECKING:
    from ..evaluation import Exam
    from ..recipe import RunArguments
    from ..training import PopulationSelfPlayConfig

PHASES = ("propose", "verify", "match", "solve", "judge", "extra", "learn", "weights", "recombine")
DATASET_PHASES = ("sample", "learn", "weights", "recombine")
"""Parts of a round that are timed, in self-play and on a dataset."""
ROUND = ("The round", "Members", "Roles", "Pairs", "Tasks")
"""Headings of the registry whose metrics stand in the history of a run."""
OPEN = ("teachers/rewards/", "students/rewards/")
"""What the names of metrics begin with that depend on reward functions."""


class Checked(NamedTuple):
    """Size of a run of each arm; each exam's name in the records, by its name in the experiment; and for each arm, the
    version of each exam, by its name in the records."""

    sizes: dict[str, RunSize]
    exam_names: dict[str, str]
    exam_versions: dict[str, dict[str, str]]


class RunSize(NamedTuple):
    """Size of a run of an arm, according to its settings.

    Attributes:
        members (`int`): Adapters.
        rounds (`int` or `None`): Rounds; `None` if the data decide.
        rows (`int` or `None`): Rows that all its members learn from in all rounds.
        completions (`int` or `None`): Completions in all rounds at most, with those that nobody learns from.
        tokens (`int` or `None`): Maximum tokens of those completions.
    """

    members: int
    rounds: int | None
    rows: int | None
    completions: int | None
    tokens: int | None


def check(experiment: Experiment, base: Mapping[str, Any]) -> Checked:
    """
    Checks every arm as a run checks its recipe, the names of metrics, the exams, the folder, and the parameters of
    submitit.

    Args:
        experiment ([`Experiment`]): What is planned.
        base (`Mapping`): The recipe that all arms share.

    Raises:
        ValueError: For anything that would be refused later. The message names the arm, the measure or `slurm`.
    """
    if experiment.slurm and is_installed("submitit"):
        slurm_executor(os.path.join(experiment.output, SUBMITTED_FOLDER), experiment.slurm, cluster="debug")
    if os.path.lexists(experiment.output) and not os.path.isdir(experiment.output):
        raise ValueError(f"output={experiment.output!r} is not a folder. Name one for the runs and their results.")
    from ..training.trackers import check_trackers

    sizes, names, questions, versions = {}, {}, {}, {}
    measured = {measure.metric for measure in experiment.parsed_measures.values()}
    for arm in experiment.ordered_arms:
        recipe = experiment.run_recipe(base, experiment.job(f"{arm}/{experiment.seeds[0]}"))
        try:
            if secrets := list(find_secrets(recipe)):
                raise ValueError(
                    f"{', '.join(secrets)}: secrets would be written into the files of the experiment. Give them in "
                    "environment variables, such as HF_TOKEN."
                )
            _, args = parsed(recipe)
            check_trackers(args.report_to)
            if args.push_to_hub:
                raise ValueError(
                    "push_to_hub: true would push all runs to one repository. Push runs later with `populora push`."
                )
            probed: list[Exam] = []
            if args.is_probed and args.probes.exams is not None:
                probed = _exams(args.probes.exams, args, args.probes.data, setting="probe_kwargs.exams")
            _check_metrics(experiment, args, probed)
            exams = _exams(experiment.exams, args, experiment.exam_data, setting="exams")
            asked = dict(zip(experiment.exams, exams, strict=True))
            names |= {name: exam.name for name, exam in asked.items()}
            asked |= {f"probe {one.name}": one for one in probed if f"{EXAMS}{one.name}/mean" in measured}
            for name, exam in asked.items():
                ids = {question.id for question in exam.questions}
                if (others := questions.setdefault(name, ids)) != ids:
                    raise ValueError(
                        f"exams: {exam.name!r} asks {len(ids)} questions here, of which {len(ids & others)} are among "
                        f"the {len(others)} of arm {experiment.control!r}. Scores on other questions cannot be "
                        "compared. They differ, for example, by task_types and task_kwargs: name an exam that does "
                        "not depend on these, such as one of your own (module:Name)."
                    )
        except ValueError as error:
            raise ValueError(f"arm {arm!r}: {error}") from None
        sizes[arm] = run_size(args)
        versions[arm] = {exam.name: exam.version for exam in exams}
    return Checked(sizes, names, versions)


def check_sources(experiment: Experiment, base: Mapping[str, Any], jobs: Sequence[Job]) -> None:
    """Looks for the base's folder, the reward functions, the sampler and the initial adapters of runs that have not
    begun. Adapters on the Hub are downloaded.

    Args:
        experiment ([`Experiment`]): What is planned.
        base (`Mapping`): The recipe that all arms share.
        jobs (`Sequence[Job]`): The runs that are to be run.

    Raises:
        ValueError: If one does not exist. Adapters that another run of the experiment will write are not looked for.
    """
    from ..integrations.base_models import check_folder
    from ..train import named_parts
    from ..training.initial_adapters import find_sources, source_names

    own = os.path.join(os.path.abspath(experiment.output), "")
    for arm, job in {job.arm: job for job in jobs if not begun(job)}.items():
        try:
            run, args = parsed(experiment.run_recipe(base, job))
            check_folder(run.model_name_or_path)
            functions, _ = named_parts(run, args)
            _check_reward_metrics(experiment, functions, self_play=bool(args.num_teachers))
            for name in source_names(args.initial_adapters or ()):
                if not (isinstance(name, str) and os.path.abspath(name).startswith(own)):
                    find_sources([name])
        except ValueError as error:
            raise ValueError(f"arm {arm!r}: {error}") from None


def parsed(recipe: Mapping[str, Any]) -> tuple[RunArguments, PopulationSelfPlayConfig]:
    """A recipe, with the checks of a normal run. Without a GPU on this machine, it is checked as on a CPU."""
    import torch
    import yaml

    from ..recipe import parse

    recipe = {name: value for name, value in recipe.items() if name != "env"}  # which is for the run's own process
    if not torch.cuda.is_available():
        recipe |= {"use_cpu": True}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "settings.yaml")
        write_file(path, yaml.safe_dump(recipe, sort_keys=False))
        return parse(["--config", path])


def run_size(args: PopulationSelfPlayConfig) -> RunSize:
    """What a run with these settings will be."""
    from ..training.forecast import spare_rows

    members = args.num_students + (0 if args.shared_member else args.num_teachers)
    if args.max_steps <= 0:
        return RunSize(members, None, None, None, None)
    rounds, completions = args.rounds, args.rounds * (args.completions_per_round + sum(spare_rows(args).values()))
    return RunSize(
        members, rounds, rounds * args.rows_per_round, completions, completions * (args.max_completion_length or 0)
    )


def known_metrics(args: PopulationSelfPlayConfig) -> set[str]:
    """Names that the metrics of a round may have, but for those that begin with one of `OPEN`."""
    from ..diagnostics.metrics import MEASURED, PLACEHOLDERS, SECTIONS, SELF_PLAY, TWO
    from ..executor import Status
    from ..population.member import member_names
    from ..tasks import REASONS, features_of
    from ..training.first_tasks import types_in_play

    types = types_in_play(args, None) if args.num_teachers else {}
    members = member_names(args.num_teachers, args.num_students, shared=args.shared_member)
    sizes = {"teachers": args.num_teachers, "students": args.num_students}
    roles = [role for role in sizes if types or role == "students"]
    values: dict[str, Collection[str]] = {
        name: [one for one in members if re.fullmatch(PLACEHOLDERS[name][0], one)]
        for name in ("member", "proposer", "solver")
    }
    values |= {
        "teacher": [f"teacher_{i}" for i in range(args.num_teachers)],  # also where one agent is both
        "student": [f"student_{i}" for i in range(args.num_students)],
        "role": roles,
        "type": types,
        "phase": PHASES if types else DATASET_PHASES,
        "status": Status,
        "kind": ("mean", "min", "max"),
        "reason": {*REASONS, *(reason for kind in types.values() for reason in kind.reasons)},
        "measure": {
            name for kind in types.values() if (one := features_of(kind, kind.simplest())) for name in one.measures
        },
    }
    known = {"tokens/learned", "tokens/all"}
    for metric in (one for heading in ROUND for one in SECTIONS[heading]):
        if (SELF_PLAY in metric.when and not types) or (metric.when == MEASURED and not values["measure"]):
            continue
        parts = re.findall(r"\{(\w+)\}", metric.name)
        own = values | {"role": [role for role in roles if sizes[role] > 1 or TWO not in metric.when]}
        choices = product(*(own.get(part, ()) for part in parts))
        known |= {metric.name.format(**dict(zip(parts, chosen, strict=True))) for chosen in choices}
    return known


def _check_metrics(experiment: Experiment, args: PopulationSelfPlayConfig, probed: Sequence[Exam]) -> None:
    known = known_metrics(args) | {f"{EXAMS}{exam.name}/mean" for exam in probed}
    for name, measure in experiment.parsed_measures.items():
        if measure.metric is None or measure.metric in known or measure.metric.startswith(OPEN):
            continue
        hint = suggest(measure.metric, sorted(known), 'The page "Metrics" of the documentation lists them.')
        raise ValueError(f"measures.{name}: its rounds have no metric {measure.metric!r}. {hint}")


def _check_reward_metrics(experiment: Experiment, functions: Sequence[Any], *, self_play: bool) -> None:
    from ..training.reward_functions import numbered

    names = [getattr(one, "__name__", "") for one in functions]
    if not all(names):  # TRL names an object by its class or otherwise
        return
    known = numbered(["self_play_reward", *names]) if self_play and names else []
    told = [f"{begin}{one}/{kind}" for begin in OPEN for one in known for kind in ("mean", "std")]
    for name, measure in experiment.parsed_measures.items():
        if (measure.metric or "").startswith(OPEN) and measure.metric not in told:
            hint = suggest(measure.metric, told, f"Reward functions in self-play: {names if self_play else []}.")
            raise ValueError(f"measures.{name}: its rounds have no metric {measure.metric!r}. {hint}")


def _exams(names: Sequence[str], args: PopulationSelfPlayConfig, data: str | None, *, setting: str) -> list[Exam]:
    from ..evaluation import make_exams
    from ..training.first_tasks import types_in_play

    try:
        return make_exams(names, types_in_play(args, None) if args.num_teachers else {}, data=data)
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from None
