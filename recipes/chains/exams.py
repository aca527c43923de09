"""Exams of chains, by depth: `recipes.chains.exams:chains` in a recipe or on the command line, from the folder
that holds `recipes/`. With `[:27]` at its end, an exam is shorter and still has all depths and kinds of state.

Give them greedily: sampled answers also get better when a student has only become more certain.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from recipes.chains.make.worked import TAKEN_FOR, confusion, trace
from trl_populora.evaluation import Exam
from trl_populora.evaluation.held_out import task_exam
from trl_populora.executor import literals
from trl_populora.tasks import Task, make_task_types
from trl_populora.tasks.code.families.chains import DEPTHS, KINDS, Kind, depth


EXAM_DEPTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
PER_DEPTH_AND_KIND = 16
SEED = 2_000_003
MAX_COMPLETION_LENGTH = 384
PER_STATEMENT = 24
WEAK_DEPTH = 4
MORE = 3
KNOWN = "known"
LEADING = "x = sorted(x)[::-1]"  # the statement with most of the lead of a pair in weak_keeping


@cache  # a run asks for them several times
def chains() -> Exam:
    """`code_o` tasks of the statements that the base knows, 48 of each depth."""
    return _exam("chains", chain_tasks(held_out=False))


def chains_short() -> Exam:
    """The questions of `chains` with up to four statements: most of them are what a base can do before a run."""
    whole = chains()
    few = tuple(one for one in whole.questions if int(one.group.removeprefix("depth_")) <= WEAK_DEPTH)
    return replace(whole, name="chains_short", questions=few)


@cache
def chains_short_more() -> Exam:
    """`MORE` times as many chains of up to four statements, of which none is in `chains_short`."""
    few = {n: tasks for n, tasks in chain_tasks(held_out=False).items() if n <= WEAK_DEPTH}
    wanted = MORE * PER_DEPTH_AND_KIND
    return _exam("chains_short_more", chain_tasks(per_kind=wanted, seed=SEED + 1, held_out=False, others_than=few))


@cache
def chains_held_out() -> Exam:
    """As many, in which every second statement is one that no training of the base or the recipes holds."""
    return _exam("chains_held_out", chain_tasks(held_out=True))


@cache
def chains_weak() -> Exam:
    """`code_o` tasks of up to four statements, of which one is held out: `PER_STATEMENT` for each such statement,
    grouped by it, and as many without. Whoever takes that one for the statement that it resembles gets another
    output."""
    return _weak_exam("chains_weak", [KNOWN, *TAKEN_FOR], _weak_tasks())


@cache
def chains_weak_more() -> Exam:
    """`MORE` times as many for each of the statements, of which none is in `chains_weak`; none without one."""
    return _weak_exam("chains_weak_more", list(TAKEN_FOR), _more_weak_tasks())


@cache
def chains_weak_others() -> Exam:
    """The same without the statement `LEADING`."""
    names = [name for name in TAKEN_FOR if name != LEADING]
    return _weak_exam("chains_weak_others", names, _more_weak_tasks())


@cache
def _more_weak_tasks() -> dict[str, list[Task]]:
    return _weak_tasks(MORE * PER_STATEMENT, seed=SEED + 1, others_than=_weak_tasks())


def _weak_tasks(
    wanted: int = PER_STATEMENT, *, seed: int = SEED, others_than: Mapping[str, Sequence[Task]] | None = None
) -> dict[str, list[Task]]:
    """So many different tasks by their weak statement, or by `KNOWN`; none that is among `others_than`."""
    (code_o,) = make_task_types(["code_o"], style="compact").values()
    taken = {code_o.key(task.payload) for tasks in (others_than or {}).values() for task in tasks}
    rng, found = random.Random(f"{seed}/skills"), {name: {} for name in [KNOWN, *TAKEN_FOR]}
    while any(len(tasks) < wanted for tasks in found.values()):
        level = rng.choice(["held_out", "short", "middle"])
        task = code_o.generate(rng, families=[f"{rng.choice(KINDS).name}_{level}"])
        name, key = weak_statement(task), code_o.key(task.payload)
        if name in found and len(found[name]) < wanted and key not in taken:
            found[name].setdefault(key, task)
    return {name: list(tasks.values()) for name, tasks in found.items()}


def _weak_exam(name: str, statements: Sequence[str], by_statement: Mapping[str, Sequence[Task]]) -> Exam:
    chosen = [by_statement[statement] for statement in statements]
    tasks = [task for turn in zip(*chosen, strict=True) for task in turn]
    exam = task_exam(name, tasks, make_task_types(["code_o"], style="compact"))
    groups = list(statements) * len(chosen[0])
    questions = tuple(replace(one, group=group) for one, group in zip(exam.questions, groups, strict=True))
    return replace(exam, questions=questions, max_completion_length=MAX_COMPLETION_LENGTH)


def weak_statement(task: Task) -> str | None:
    """The template of the one held-out statement of a task of up to four, `KNOWN` if it has none; `None` for other
    tasks, and where the confusion makes no difference."""
    (state,) = literals.parse_arguments(task.payload.input)
    steps, wrong = trace(task.payload.program, state), trace(task.payload.program, state, confused=1.0)
    names = [taken[0] for taken in (confusion(step.text) for step in steps) if taken]
    if len(steps) > WEAK_DEPTH or len(names) > 1:
        return None
    return KNOWN if not names else names[0] if wrong[-1].after != steps[-1].after else None


def chain_tasks(
    *,
    held_out: bool,
    per_kind: int = PER_DEPTH_AND_KIND,
    seed: int = SEED,
    kinds: Sequence[Kind] = KINDS,
    others_than: Mapping[int, Sequence[Task]] | None = None,
) -> dict[int, list[Task]]:
    """Different tasks by depth; the kinds of state take turns. If `others_than` is given, tasks of its depths that are
    not among its own."""
    (code_o,) = make_task_types(["code_o"], style="compact").values()
    others = others_than or dict.fromkeys(EXAM_DEPTHS, ())
    found: dict[int, list[Task]] = {}
    for wanted, not_these in others.items():
        level = "held_out" if held_out else next(n for n, (least, most) in DEPTHS.items() if least <= wanted <= most)
        rng, tasks = random.Random(f"{seed}/{level}/{wanted}"), {}
        taken = {code_o.key(task.payload) for task in not_these}
        while len(tasks) < per_kind * len(kinds):
            kind = kinds[len(tasks) % len(kinds)]
            task = code_o.generate(rng, families=[f"{kind.name}_{level}"])
            if depth(task.payload.program) == wanted and code_o.key(task.payload) not in taken:
                tasks.setdefault(code_o.key(task.payload), task)
        found[wanted] = list(tasks.values())
    return found


def _exam(name: str, by_depth: Mapping[int, Sequence[Task]]) -> Exam:
    tasks = [task for turn in zip(*by_depth.values(), strict=True) for task in turn]
    exam = task_exam(name, tasks, make_task_types(["code_o"], style="compact"))
    groups = [f"depth_{depth(task.payload.program):02d}" for task in tasks]
    questions = tuple(replace(one, group=group) for one, group in zip(exam.questions, groups, strict=True))
    return replace(exam, questions=questions, max_completion_length=MAX_COMPLETION_LENGTH)
