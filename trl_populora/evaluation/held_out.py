"""Greedy pass@1 of every member, and of the base, on seed tasks that no buffer has held."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..executor import Execution, Job
from ..self_play.sampling import SampleFunc
from ..tasks import Task, TaskType, Verdict, seed_tasks
from .grading import grade


BASE = "base"
HELD_OUT_SEED = 1_000_003  # far from the seeds that runs use, so that another run's buffer is unlikely to hold a task


@dataclass(frozen=True)
class Score:
    """Greedy pass@1 on a set of tasks. Spared answers (`tasks.Verdict`) are in no share.

    Attributes:
        pass_at_1 (`float`): Share of tasks solved.
        low, high (`float`): 95 % bootstrap interval over tasks.
        well_formed (`float`): Share of judged completions from which an answer could be read.
        by_type (`dict[str, float]`): Task type -> share solved; without types that have no judged answer.
        spared (`int`): Answers left out because the executor failed on them, twice. In `"mean"`: of all members.
    """

    pass_at_1: float
    low: float
    high: float
    well_formed: float
    by_type: dict[str, float]
    spared: int = 0

    def to_json(self) -> dict:
        return asdict(self)


def held_out_tasks(
    types: Iterable[str],
    count: int,
    *,
    seed: int = HELD_OUT_SEED,
    families: Sequence[str] | None = None,
    num_function_inputs: int = 10,
    exclude: Collection[str] = (),
) -> list[Task]:
    """`count` tasks of each type, without those whose id is in `exclude` (what a run's buffers started from)."""
    tasks = []
    for name in types:
        extra, own = count, []
        while len(own) < count:  # draw again, longer, until enough are left
            drawn = seed_tasks(extra, seed=seed, type=name, num_function_inputs=num_function_inputs, families=families)
            own = [task for task in drawn if task.id not in exclude][:count]
            extra += count
        tasks += own
    return tasks


def evaluate_members(
    members: Sequence[str],
    sampler: SampleFunc,
    tasks: Sequence[Task],
    *,
    task_types: Mapping[str, TaskType],
    run_many: Callable[[Sequence[Job]], list[Execution]],
    base: bool = True,
) -> dict[str, Score]:
    """Greedy pass@1 of members on tasks, all members in one call of the sampler.

    Args:
        members (`Sequence[str]`): Names, as the sampler knows them.
        sampler ([`SampleFunc`]): Greedy: temperature 0. Member `None` is the frozen base, asked in a call of its own.
        tasks (`Sequence[Task]`): At least one.
        task_types (`Mapping[str, TaskType]`): Types by id; they word the prompts.
        run_many (`Callable`): Runs programs: `Executor.run_many`.
        base (`bool`, *optional*, defaults to `True`): Evaluate the base too, under the name `"base"`.

    Returns:
        `dict[str, Score]`: By name, and `"mean"` for the mean over members, first within each task.

    Raises:
        ValueError: If there is no task, or the executor failed on every answer of a member.
    """
    if not tasks:
        raise ValueError("evaluate_members needs at least one task.")
    prompts = [task_types[task.type].solve_prompt(task) for task in tasks]
    rows = [(name, k) for name in members for k in range(len(tasks))]
    written = sampler([prompts[k] for _, k in rows], [name for name, _ in rows], seed=0)
    names = list(members)
    if base:
        # Adapter rows and base rows never share a call: some engines answer the latter with an adapter.
        written = [*written, *sampler(prompts, [None] * len(tasks), seed=0)]
        names.append(BASE)
    grades = grade(
        [task for _ in names for task in tasks],
        [completion.text for completion in written],
        task_types=task_types,
        run_many=run_many,
    )
    solved = solved_or_nan(grades).reshape(len(names), len(tasks))
    read = np.array([not verdict.refused for verdict in grades], dtype=float).reshape(len(names), len(tasks))
    for name, own in zip(names, solved, strict=True):
        if np.isnan(own).all():
            raise ValueError(f"The executor failed on all {len(tasks)} answers of {name}: see `populora doctor`.")
    scores = {name: _score(tasks, solved[i : i + 1], read[i : i + 1]) for i, name in enumerate(names)}
    if len(members):
        scores["mean"] = _score(tasks, solved[: len(members)], read[: len(members)])
    return scores


def solved_or_nan(verdicts: Iterable[Verdict]) -> np.ndarray:
    """1 for a solved answer, 0 for a wrong or refused one, NaN for a spared one; shape `(N,)`."""
    return np.array([np.nan if verdict.spared else float(verdict.solved) for verdict in verdicts])


def bootstrap_interval(
    values: Sequence[float] | np.ndarray, *, level: float = 0.95, samples: int = 2_000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values`.

    Raises:
        ValueError: If there are no values, or `level` is not between 0 and 1.
    """
    values = np.asarray(values, dtype=float)
    if values.size == 0 or not 0 < level < 1:
        raise ValueError(f"bootstrap_interval needs values and a level in (0, 1), got {values.size} and {level}.")
    rng = np.random.default_rng(seed)
    means = values[rng.integers(0, values.size, (samples, values.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _score(tasks: Sequence[Task], solved: np.ndarray, read: np.ndarray) -> Score:
    """Score of members, arrays of shape `(members, tasks)`: the mean over tasks of their mean over judged answers."""
    judged = ~np.isnan(solved)
    known = judged.any(axis=0)
    rate = np.nansum(solved, axis=0)[known] / judged.sum(axis=0)[known]
    low, high = bootstrap_interval(rate)
    kinds = np.array([task.type for task in tasks])[known]
    by_type = {kind: float(rate[kinds == kind].mean()) for kind in dict.fromkeys(kinds.tolist())}
    return Score(float(rate.mean()), low, high, float(read[judged].mean()), by_type, int((~judged).sum()))
