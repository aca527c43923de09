"""`populora play`: lets a teacher propose one task and a student attempt it, and prints all text.

Nothing is learnt and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import random
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..output import printable
from .opening import add_unsafe_option


if TYPE_CHECKING:
    from ..self_play.rewards import RewardSettings
    from ..self_play.sampling import SampleFunc
    from ..tasks import Run, Task, TaskType


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="output_dir of a run, or a checkpoint in it")
    parser.add_argument("--teacher", help="the teacher that proposes (default: the first)")
    parser.add_argument("--student", help="the student that solves (default: the first)")
    parser.add_argument("--type", help="task type (default: one of the run's types, drawn with the seed)")
    parser.add_argument("--proposals", type=int, default=8, metavar="N", help="proposals to draw (default: 8)")
    parser.add_argument("--attempts", type=int, default=4, metavar="K", help="attempts at the task (default: 4)")
    parser.add_argument("--base", help="base model; the recorded one if unset")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the task type and of sampling (default: 0)"
    )
    add_unsafe_option(parser)


def run(options: argparse.Namespace) -> int:
    from ..run_files.run import open_run
    from ..self_play.rewards import RewardSettings
    from .opening import load_population, make_executor, make_sampler, make_task_types

    if min(options.proposals, options.attempts) < 1:
        raise ValueError("--proposals and --attempts must be at least 1")
    opened = open_run(options.folder, base=options.base)
    teacher = choose(options.teacher, opened.members, "teacher")
    student = choose(options.student, opened.members, "student")
    types = make_task_types(opened)
    rng = random.Random(options.seed)
    name = options.type or rng.choice(list(types))
    if name not in types:
        raise ValueError(f"--type {name!r} was not in play; choose from {list(types)}")
    settings = RewardSettings(teacher=opened.setting("teacher_reward", "adversarial"))
    population, tokenizer = load_population(opened)
    sampler = make_sampler(opened, population, tokenizer, temperature=opened.setting("temperature", 1.0) or 1.0)
    with make_executor(opened, accept_unsafe=options.accept_unsafe) as executor:
        tools = {"sampler": sampler, "run_many": executor.run_many, "options": options}
        task = propose(types, name, teacher, families=opened.setting("seed_families", None), rng=rng, **tools)
        rate = None if task is None else solve(types[name], task, student, **tools)
    if rate is not None:
        print(worth(rate, settings))
    return 0


def choose(wanted: str | None, members: Sequence[str], role: str) -> str:
    """The member asked for, or the first of the role, or the shared one."""
    own = [name for name in members if name.startswith((role, "agent"))]
    if wanted is None and own:
        return own[0]
    if wanted is None:
        raise ValueError(f"the run has no {role}: `play` needs one that proposes and one that solves")
    if wanted not in members:
        raise ValueError(f"--{role} {wanted!r} is not a member; choose from {list(members)}")
    return wanted


def propose(
    types: Mapping[str, TaskType],
    name: str,
    teacher: str,
    *,
    families: Sequence[str] | None,
    rng: random.Random,
    sampler: SampleFunc,
    run_many: Run,
    options: argparse.Namespace,
) -> Task | None:
    """Draw proposals, tell what became of each, and return the first task, or `None`."""
    from ..tasks import REASONS, Referee, Refusal, Task, families_of, is_spared

    task_type = types[name]
    meanings = {**REASONS, **task_type.reasons}
    shown = next((one for one in task_type.reference_types if one in types), name)
    drawn = families_of(types, families)[shown]
    references = types[shown].seeds(max(task_type.max_references, 1), seed=options.seed, families=drawn)
    prompt = task_type.propose_prompt(references, rng)
    show(f"{teacher} gets a prompt for a task of type {task_type.id}", prompt[-1]["content"])
    written = sampler([prompt] * options.proposals, [teacher] * options.proposals, seed=options.seed)
    chosen = None
    referee, of_type = Referee(types, run_many), [name] * len(written)
    drafts = referee.parse(of_type, [completion.text for completion in written], [references] * len(written))
    outcomes = referee.verify(of_type, drafts)
    for number, (completion, outcome) in enumerate(zip(written, outcomes, strict=True), start=1):
        if not isinstance(outcome, Refusal):
            chosen, told = chosen or (number, Task.create(name, outcome, author=teacher)), "valid"
        elif is_spared(outcome):
            told = "spared, the executor failed"
        else:
            told = f"refused, {outcome.reason} ({meanings.get(outcome.reason, 'no explanation')}) {outcome.detail}"
        show(f"proposal {number}: {told.rstrip()}", completion.text)
    if chosen is None:
        print(f"\nNone of {options.proposals} proposals is valid; try --seed or --proposals.")
        return None
    number, task = chosen
    show(f"proposal {number}, verified", task_type.describe(task))
    return task


def solve(
    task_type: TaskType,
    task: Task,
    student: str,
    *,
    sampler: SampleFunc,
    run_many: Run,
    options: argparse.Namespace,
) -> float | None:
    """Draw attempts at a task, tell which solve it, and return their share; `None` if none could be judged."""
    from ..evaluation.graders.task_accuracy import TaskAccuracy

    prompt = task_type.solve_prompt(task)
    show(f"{student} is asked", prompt[-1]["content"])
    written = sampler([prompt] * options.attempts, [student] * options.attempts, seed=options.seed + 1)
    texts = [completion.text for completion in written]
    grader = TaskAccuracy(run_many, task_types={task.type: task_type})
    grades = grader.grade(texts, [json.dumps(task.to_json())] * len(texts))
    for number, (text, grade) in enumerate(zip(texts, grades, strict=True), start=1):
        outcome = "spared: the executor failed, twice" if grade.verdict == "spared" else grade.verdict
        if grade.verdict == "refused":
            outcome = f"refused, {grade.detail}"
        show(f"attempt {number}: {outcome}", text)
    judged = [grade.score for grade in grades if grade.verdict != "spared"]
    if not judged:
        print("\nThe executor failed on every attempt: see `populora doctor`.")
        return None
    return sum(judged) / len(judged)


def worth(rate: float, settings: RewardSettings) -> str:
    """What the task earns its teacher under the run's `teacher_reward`, which may ask whether others solve it."""
    from ..self_play.rewards import teacher_reward

    alone, helped = (teacher_reward(rate, solved_elsewhere=other, settings=settings) for other in (False, True))
    others = "" if helped == alone else f", and {helped:.2f} if anybody else solves it"
    earned = f"with teacher_reward {settings.teacher!r} the teacher earns {alone:.2f} for this task{others}."
    return f"\nSolve rate {100 * rate:.0f}%: {earned}"


def show(title: str, text: str) -> None:
    """Prints a model's text. Characters that control a terminal are written as escapes."""
    shown = textwrap.indent(printable(text.strip()) or "(nothing)", "  ")
    print(f"\n== {printable(title)}\n{shown}", flush=True)
