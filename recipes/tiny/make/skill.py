"""What a model can do before any self-play: how many seed tasks it solves, how many of its proposals are valid.

Used to check the tiny base. The benchmarks by which results are compared live in `evaluation`.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from trl_populora.evaluation.answering import BASE, collect_answers, grade
from trl_populora.evaluation.held_out import task_exam
from trl_populora.evaluation.results import ExamResult
from trl_populora.self_play.sampling import SampleFunc
from trl_populora.tasks import Referee, Refusal, Run, Task, TaskBuffer, TaskType


@dataclass(frozen=True)
class Proposing:
    """Outcome of the proposals of one task type.

    Attributes:
        valid (`float`): Share that became tasks.
        distinct (`float`): Share that became tasks, repetitions counted once.
        new (`float`): Share that became tasks with a program that their prompt did not show.
        reasons (`dict[str, int]`): Why others were refused, most frequent first.
    """

    valid: float
    distinct: float
    new: float
    reasons: dict[str, int]

    def to_json(self) -> dict:
        return asdict(self)


def measure_proposing(
    sampler: SampleFunc,
    member: str | None,
    task_types: Mapping[str, TaskType],
    references: TaskBuffer,
    run_many: Run,
    *,
    proposals: int = 64,
    seed: int = 0,
) -> dict[str, Proposing]:
    """Proposals of one member (`None`: the base), each to references of its own.

    Args:
        sampler ([`SampleFunc`]): How members sample, usually at temperature 1.
        references ([`TaskBuffer`]): What proposal prompts draw on.
        proposals (`int`): Proposals per task type.
        seed (`int`): Seed of references and sampling.

    Returns:
        `dict[str, Proposing]`: By task type.
    """
    rng = random.Random(seed)
    types, shown = [], []
    for task_type in task_types.values():
        for _ in range(proposals):
            types.append(task_type)
            shown.append(references.references(task_type.id, max(1, task_type.max_references), rng))
    prompts = [task_type.propose_prompt(known, rng) for task_type, known in zip(types, shown, strict=True)]
    texts = [completion.text for completion in sampler(prompts, [member] * len(prompts), seed=seed)]
    referee, names = Referee(task_types, run_many), [task_type.id for task_type in types]
    verified = referee.verify(names, referee.parse(names, texts, shown))
    outcomes = {name: [] for name in task_types}
    for name, one, known in zip(names, verified, shown, strict=True):
        outcome = one if isinstance(one, Refusal) else Task.create(name, one, author="probe")
        outcomes[name].append((outcome, known))
    return {name: _summary(found) for name, found in outcomes.items()}


def _summary(outcomes: Sequence[tuple[Task | Refusal, list[Task]]]) -> Proposing:
    valid = [(outcome, shown) for outcome, shown in outcomes if isinstance(outcome, Task)]
    new = [task for task, shown in valid if task.payload.program not in {one.payload.program for one in shown}]
    reasons = Counter(outcome.reason for outcome, _ in outcomes if isinstance(outcome, Refusal))
    return Proposing(
        valid=len(valid) / len(outcomes),
        distinct=len({task.id for task, _ in valid}) / len(outcomes),
        new=len(new) / len(outcomes),
        reasons=dict(reasons.most_common()),
    )


def measure_solving(
    sampler: SampleFunc,
    member: str | None,
    task_types: Mapping[str, TaskType],
    tasks: Sequence[Task],
    run_many: Run,
    *,
    seed: int = 0,
) -> dict[str, float]:
    """Share of tasks solved at the first attempt by one member (`None`: the base), by task type.

    Answers that the executor failed to judge, twice, are left out.
    """
    exam = task_exam("skill", tasks, task_types)
    members = [] if member is None else [member]
    answers = collect_answers(exam, members, sampler, base=member is None, seed=seed, rows_per_call=len(tasks))
    result = ExamResult(exam, grade(exam, answers, exam.grader(run_many)))
    rates = {name: result.accuracy(member or BASE, name) for name in task_types}
    return {name: rate for name, rate in rates.items() if not math.isnan(rate)}
