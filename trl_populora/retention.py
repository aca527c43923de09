"""Retention: how many rounds a child needs to be as good as an unchanged copy of its parent (paper, retention tests).

Two parents are trained. Every operator makes a child from them. All children are then trained together as one
population. One child is a clone of the first parent. It trains in the same rounds and also starts without optimizer
moments, but its weights were not changed. The other children are compared with the clone, because the parent itself
trains no further. All answer the same held-out tasks greedily, and results are paired by task. The teacher is always
frozen, so that all tasks come from one distribution.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from .recipe import parse
from .run_files.files import write_json
from .run_files.layout import RETENTION_FILE
from .train import build, warm_up


if TYPE_CHECKING:
    from .evaluation import Exam
    from .population.factors import Factors


CLONE = "clone"  # the operator that changes nothing


@dataclass(frozen=True)
class RetentionCurve:
    """Results of one child over its training rounds.

    Attributes:
        operator (`str`): Operator that made the child.
        seed (`int`): Seed of the parents, of the child and of its training.
        parent_pass_at_1 (`float`): Greedy pass@1 of the first parent when the child was made, for reference.
        rounds (`list[int]`): Training rounds since birth at which the child took the exam.
        pass_at_1 (`list[float]`): Its greedy pass@1 at these rounds.
        difference (`list[float]`): Mean over tasks of its pass@1 minus that of the clone, with the same seed and
            round.
        standard_error (`list[float]`): Of the difference, over tasks.
        spared (`list[int]`): Tasks left out at these rounds, because the executor failed to judge the child's or the
            clone's answer.
    """

    operator: str
    seed: int
    parent_pass_at_1: float
    rounds: list[int] = field(default_factory=list)
    pass_at_1: list[float] = field(default_factory=list)
    difference: list[float] = field(default_factory=list)
    standard_error: list[float] = field(default_factory=list)
    spared: list[int] = field(default_factory=list)

    @property
    def steps_to_recover(self) -> int | None:
        """The first of `rounds` at which the child is within one standard error of the clone, or above it."""
        for step, difference, error in zip(self.rounds, self.difference, self.standard_error, strict=True):
            if difference >= -error:
                return step
        return None

    def add(self, step: int, child: np.ndarray, clone: np.ndarray) -> None:
        """Record an exam: what the child and the clone solved in this round, two arrays of shape `(tasks,)`.

        NaN means that the executor failed to judge the answer (spared).

        Raises:
            ValueError: If fewer than two tasks are left.
        """
        judged = ~np.isnan(child - clone)
        if judged.sum() < 2:
            raise ValueError(f"The executor failed on all but {judged.sum()} of {len(judged)} tasks of an exam.")
        self.spared.append(int((~judged).sum()))
        child, difference = child[judged], (child - clone)[judged]
        self.rounds.append(step)
        self.pass_at_1.append(float(child.mean()))
        self.difference.append(float(difference.mean()))
        self.standard_error.append(float(difference.std(ddof=1) / math.sqrt(len(difference))))


def measure_retention(
    recipe: Sequence[str],
    operators: Sequence[str],
    *,
    folder: str,
    seeds: Sequence[int] = (0, 1, 2),
    parent_rounds: int = 40,
    rounds: int = 20,
    every: int = 2,
    tasks: int = 128,
    exam: str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[RetentionCurve]:
    """Trains parents, makes children, trains the children further, and lets them answer held-out tasks.

    One of the children is always a clone, with which the others are compared. If `operators` does not name it, it
    comes first.

    Args:
        recipe (`Sequence[str]`): Command line of a run, as `trl_populora.train` takes it. This function replaces the
            sizes of the population (of one agent, too), evolution and the number of steps. A batch has at most the
            recipe's rows.
        operators (`Sequence[str]`): Names of variation operators, one child each. Parameters may follow a name, as in
            `"component_masking:rho=0.1"`.
        folder (`str`): Where the runs write; made if missing. After each seed, the curves of all seeds until
            then are written to its `retention.json`, which must not exist before. If that fails (full disk), `report`
            is told, and the next seed tries again.
        seeds (`Sequence[int]`, *optional*): One repetition each.
        parent_rounds (`int`, *optional*, defaults to `40`): Rounds for which the parents train.
        rounds (`int`, *optional*, defaults to `20`): Rounds for which the children train.
        every (`int`, *optional*, defaults to `2`): Rounds between exams.
        tasks (`int`, *optional*, defaults to `128`): Held-out tasks per task type.
        exam (`str`, *optional*): Name of an exam that takes the place of the held-out tasks, such as `"gsm8k[:200]"`.
            The runs may not learn from its tasks.
        report (`Callable[[str], None]`, *optional*): Receives a line of progress now and then.

    Returns:
        `list[RetentionCurve]`: One per operator and seed, the clone's included.

    Raises:
        ValueError: For an unknown operator or parameter, a recipe or number that cannot be used, or a folder with
            curves.
        InterruptedError: After SIGTERM, at the end of the round.
    """
    from .evolution import get_operator, read_parameters

    if not operators or not seeds:
        raise ValueError(f"at least one {'seed' if operators else 'operator'} is needed")
    operators = list(operators) if CLONE in operators else [CLONE, *operators]
    for option, given in {"operators": Counter(operators), "seeds": Counter(seeds)}.items():
        if twice := [one for one, times in given.items() if times > 1]:
            raise ValueError(f"{option} names {twice[0]!r} twice: its curves would count as independent ones.")
    if wrong := [seed for seed in seeds if not 0 <= seed < 2**32]:
        raise ValueError(f"seeds={list(seeds)}: {wrong[0]} must be from 0 to {2**32 - 1}.")
    split = (text.rpartition(":") if "=" in text else (text, "", "") for text in operators)
    ways = [(name, read_parameters(name, filter(None, rest.split(",")))) for name, _, rest in split]
    if large := [name for name, _ in ways if get_operator(name).num_parents > 2]:
        raise ValueError(f"operators names {large[0]!r}, which needs more than two parents, and two are trained.")
    least = {"parent_rounds": (parent_rounds, 1), "rounds": (rounds, 1), "every": (every, 1), "tasks": (tasks, 2)}
    for name, (value, low) in least.items():
        if value < low:
            raise ValueError(f"{name}={value} is too small; choose at least {low}")
    place = os.path.join(folder, RETENTION_FILE)
    if os.path.exists(place):
        raise ValueError(f"{place} exists and would be replaced. Choose another folder, or move the file.")
    curves = []
    for seed in seeds:
        own_folder = os.path.join(folder, f"seed-{seed}")
        with closing(_Phase(recipe, os.path.join(own_folder, "parents"), 2, parent_rounds, seed, exam)) as parents:
            questions = parents.exam(tasks, exam)
            if len(questions.questions) < 2:
                raise ValueError(f"exam={exam!r} has one question: differences need at least two")
            reserved = parents.buffer.reserved
            parents.train()
            solved = np.nanmean(parents.take_exam(questions), axis=1)
            order = np.argsort(-solved, kind="stable")  # operators take the best parent first
            report(f"seed {seed}: parents solve {' and '.join(f'{solved[i]:.3f}' for i in order)}")
            teacher, *factors = (parents.factors(name) for name in ("teacher_0", *(f"student_{i}" for i in order)))
        own = [RetentionCurve(operator, seed, float(solved[order[0]])) for operator in operators]
        nursery = os.path.join(own_folder, "children")
        with closing(_Phase(recipe, nursery, len(own), rounds, seed, exam, children=True)) as children:
            children.buffer.reserved |= reserved  # they do not learn from the questions, either
            children.take_over(teacher, ways, factors, seed)
            _train_and_ask(children, questions, own, every=every, report=report)
        curves += own
        try:
            save_curves(curves, place)
        except OSError as error:
            report(f"{place} is not written: {error}. The curves of seed {seed} stay in memory.")
    return curves


def save_curves(curves: Sequence[RetentionCurve], path: str) -> None:
    """Writes curves as JSON."""
    write_json(path, [asdict(curve) | {"steps_to_recover": curve.steps_to_recover} for curve in curves])


def _train_and_ask(
    children: "_Phase", exam: "Exam", curves: Sequence[RetentionCurve], *, every: int, report: Callable[[str], None]
) -> None:
    """Trains the children of one seed. They take the exam at birth, every `every` rounds, and at the end."""
    clone = [curve.operator for curve in curves].index(CLONE)

    def examine(step: int) -> None:
        if step % every and step != children.args.rounds:
            return
        answers = children.take_exam(exam)
        for curve, child in zip(curves, answers, strict=True):
            curve.add(step, child, answers[clone])
        solved = mean(curve.pass_at_1[-1] for curve in curves)
        report(f"seed {curves[0].seed}: round {step}, mean over children {solved:.3f}")

    examine(0)
    children.train(examine)


class _Phase:
    """A run of students against one frozen teacher. It does not learn from the tasks of `exam`, if that is named."""

    def __init__(
        self,
        recipe: Sequence[str],
        folder: str,
        students: int,
        rounds: int,
        seed: int,
        exam: str | None = None,
        *,
        children: bool = False,
    ) -> None:
        _, args = parse(list(recipe))
        if not args.num_teachers:
            raise ValueError("num_teachers=0: in this test, a teacher writes the tasks. Name a recipe of self-play.")
        if args.beta:
            raise ValueError(
                f"beta={args.beta}: its penalty pulls members towards the base, where the children do not start. Set "
                f"it to 0.0."
            )
        rows = students * args.num_generations * (1 + args.num_generations)  # of a round
        forced = {
            "num_teachers": 1,
            "num_students": students,
            "shared_member": False,
            "prompts_per_teacher": students,
            "per_device_train_batch_size": max(
                count for count in range(1, args.per_device_train_batch_size + 1) if rows % count == 0
            ),
            "gradient_accumulation_steps": 1,  # the trainer computes it
            "balance_rows": False,
            "teacher_learning_rate": 0,
            "learning_rate_spread": 1.0,  # else the differences would be those of learning rates
            "evolution_interval": 0,
            "recombination_interval": 0,
            "hall_of_fame_probability": 0.0,
            "max_steps": rounds * args.num_iterations,
            "save_strategy": "no",
            "eval_strategy": "no",
            "probe_kwargs": json.dumps({"data": args.probes.data}),
            "push_to_hub": False,
            "output_dir": folder,
            "overwrite_output_dir": True,
            "seed": seed,
            "disable_tqdm": True,
        }
        changes = [text for key, value in forced.items() for text in (f"--{key}", str(value))]
        if exam is not None:
            changes += ["--reserved_exams", *dict.fromkeys((*(args.reserved_exams or ()), exam))]
        self.run, self.args = parse([*recipe, *changes])
        if children:  # they get their weights from the parents
            self.args.initial_adapters = None
        os.makedirs(folder, exist_ok=True)
        self.view, self.trainer = build(self.run, self.args)
        self.trainer.on_round = None
        self.trainer.stopping.tell = lambda: None  # how to resume, which these runs cannot
        self.students = list(self.trainer.population.students)
        self.buffer = self.trainer.source.buffer

    def factors(self, name: str) -> "Factors":
        """A copy of a member's factors."""
        factors = self.trainer.population.factors(name)
        return {path: factor._replace(A=factor.A.clone(), B=factor.B.clone()) for path, factor in factors.items()}

    def take_over(self, teacher: "Factors", ways: Sequence[tuple[str, dict]], factors: list, seed: int) -> None:
        """Takes this teacher, and makes the students: one child by each operator in `ways`, from parents' factors."""
        from .evolution import breed, get_operator

        population = self.trainer.population
        population.write("teacher_0", teacher)
        for name, (operator, parameters) in zip(self.students, ways, strict=True):
            parents = factors[: get_operator(operator).num_parents]
            population.write(name, breed(operator, parents, seed=seed, parameters=parameters))

    def train(self, after_round: Callable[[int], None] | None = None) -> None:
        if after_round is None and self.run.warm_start_steps:
            warm_up(self.run, self.args, self.trainer, self.view)
        if after_round is not None:
            self.trainer.on_round = lambda summary: after_round(summary.round + 1)
        self.trainer.train()
        if self.trainer.stopping.stopped:
            raise InterruptedError(
                f"SIGTERM ended the training for seed {self.args.seed}: its curves are not written. Those of "
                "the seeds before it stay."
            )

    def exam(self, count: int, name: str | None = None) -> "Exam":
        """The exam of a name; or else `count` seed tasks of each type, of the run's families, that its buffer does not
        hold, and from now on refuses."""
        from .evaluation.exams import make_exam
        from .evaluation.held_out import HELD_OUT_SEED, task_exam
        from .tasks import families_of

        source, tasks = self.trainer.source, []
        if name is not None:
            return make_exam(name, source.task_types, data=self.args.probes.data)
        families = families_of(source.task_types, self.args.seed_families)
        for name, task_type in source.task_types.items():
            known = {task.id for task in self.buffer.tasks(name)}
            drawn = task_type.seeds(count + len(known), seed=HELD_OUT_SEED, families=families[name])
            tasks += [task for task in drawn if task.id not in known][:count]
        # Only these tasks, not all that show their questions: an induction task would keep its whole program out.
        self.buffer.reserved |= {source.task_types[task.type].key(task.payload) for task in tasks}
        return task_exam("retention", tasks, source.task_types)

    def take_exam(self, exam: "Exam") -> np.ndarray:
        """Which student solves which task, greedily: 1, 0, or NaN (spared), of shape `(students, tasks)`."""
        from .evaluation.answering import collect_answers, grade
        from .evaluation.results import ExamResult
        from .generation.sampler import unchanged_random_states

        source = self.trainer.source
        with unchanged_random_states():
            source.sampler.sync()  # an engine has the weights of the round's beginning
        with source.sampler.decoding(temperature=0.0, max_completion_length=exam.max_completion_length):
            rows = self.args.generation_rows
            answers = collect_answers(exam, self.students, source.sampler, base=False, rows_per_call=rows)
        result = ExamResult(exam, grade(exam, answers, exam.make_grader(self.trainer.probes.examiner.run)))
        return np.stack([result.scores(name)[:, 0] for name in self.students])

    def close(self) -> None:
        """Ends its processes and its engine."""
        self.trainer.close()
