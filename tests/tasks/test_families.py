import ast
import os
import random
import subprocess
import sys

import pytest

from tests.code_tasks import TYPES, code_draw, code_seeds, code_types
from tests.drawn_examples import FULL, drawn
from trl_populora.tasks import Draft, Refusal, Task, base
from trl_populora.tasks.code import CodeO
from trl_populora.tasks.code.families import DEFAULT_FAMILIES, EASY_FAMILIES, FAMILIES
from trl_populora.tasks.code.hygiene import check_program
from trl_populora.tasks.code.pairs import leaks_program, visible


def draws(family: str, type: str = "code_o") -> list[Task]:
    rng = random.Random(family)
    return [code_draw(type, rng, families=[family]) for _ in range(drawn(40))]


def shape(program: str) -> str:
    """A program without its constants."""
    return "".join(c for c in ast.dump(ast.parse(program)) if not c.isdigit())


def test_there_are_enough_families_and_the_easy_ones_come_first():
    assert len(FAMILIES) >= 40
    assert len(EASY_FAMILIES) >= 12
    assert tuple(FAMILIES)[: len(EASY_FAMILIES)] == EASY_FAMILIES


@pytest.mark.every(4)
@pytest.mark.sized
@pytest.mark.parametrize("family", FAMILIES)
def test_programs_pass_hygiene_and_differ_in_form(family):
    programs = {task.payload.program for task in draws(family)}
    assert [check_program(program) for program in programs] == [None] * len(programs)
    assert len({shape(program) for program in programs}) >= 2
    assert len(programs) >= 2


@pytest.mark.every(4)
@pytest.mark.sized
@pytest.mark.parametrize("family", DEFAULT_FAMILIES)
def test_tasks_are_small_and_varied(family):
    limits = CodeO()
    for task in draws(family, "code_f"):
        assert len(task.payload.program) < 700
        assert max(map(len, task.payload.inputs)) < limits.input_bytes / 4
        assert max(map(len, task.payload.outputs)) < limits.output_bytes / 4
        assert len(set(task.payload.inputs)) == 10
        assert len(set(task.payload.outputs)) >= 2
        assert "\n" not in task.payload.message and 5 < len(task.payload.message) < 120
        assert not leaks_program(task.payload.message, task.payload.program)


@pytest.mark.sized
@pytest.mark.parametrize("family", EASY_FAMILIES)
def test_easy_families_are_really_small(family):
    for task in draws(family):
        assert task.payload.program.count("\n") <= 5
        assert len(task.payload.program) < 100
        assert len(task.payload.input) <= 24 and len(task.payload.output) <= 40


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("type", TYPES)
def test_executor_agrees_and_every_task_survives_its_own_completions(type, play):
    """propose_completion -> parse -> run -> the same task; solve_completion -> right. Every family, real executor."""
    rng = random.Random(type)
    tasks = [code_draw(type, rng, families=[family]) for family in FAMILIES for _ in range(3 if FULL else 1)]
    task_type = play.types[type]
    proposals = [
        (f"A plan.\n{task_type.propose_completion(t)}\nDone.", [t] if type == "code_f" else []) for t in tasks
    ]
    for task, back in zip(tasks, play.propose_all(type, proposals)):
        assert not isinstance(back, Refusal), (back, task)
        assert (back.id, back.payload.program, back.payload.pairs, back.payload.message) == (
            task.id,
            task.payload.program,
            task.payload.pairs,
            task.payload.message,
        )
        assert (back.author, back.step) == ("teacher", 3)
    assert play.solved_all([(t, f"<think>hm</think>{task_type.solve_completion(t)}") for t in tasks]) == [True] * len(
        tasks
    )


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [2, 3, 10])
def test_identity_tasks_are_tasks_like_any_other(type, n, play_with):
    play = play_with(num_function_inputs=n)
    task = play.types[type].simplest()
    assert len(task.payload.inputs) == (n if type == "code_f" else 1)
    assert task.payload.inputs == task.payload.outputs
    references = [task] if type == "code_f" else []
    assert play.propose(type, play.types[type].propose_completion(task), references).id == task.id
    assert play.solved(task, play.types[type].solve_completion(task))


@pytest.mark.slow
@pytest.mark.parametrize("type", TYPES)
def test_seed_sets_are_distinct_and_repeatable(type):
    tasks = code_seeds(256, type=type)
    assert len({task.id for task in tasks}) == 256
    assert {task.type for task in tasks} == {type}
    assert code_seeds(256, type=type) == tasks
    assert code_seeds(256, type=type, seed=1) != tasks
    assert len({task.author for task in tasks}) > 40


@pytest.mark.slow
def test_seed_sets_do_not_depend_on_the_hash_seed():
    code = "from trl_populora.tasks import make_task_types\n"
    code += "print([t.id for y in make_task_types().values() for t in y.seeds(150)])"
    run = [sys.executable, "-c", code]
    outputs = {subprocess.check_output(run, env=os.environ | {"PYTHONHASHSEED": seed}) for seed in "12"}
    assert len(outputs) == 1


@pytest.mark.parametrize("n", [2, 4, 16])
def test_number_of_function_inputs(n):
    task = code_draw("code_f", random.Random(0), num_function_inputs=n)
    assert len(task.payload.inputs) == n
    assert len(visible(task)) == n // 2


def test_families_can_be_chosen():
    authors = {task.author for task in code_seeds(30, families=["each", "keep"])}
    assert authors == {"seed:each", "seed:keep"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, match",
    [
        ({"families": ["nope"]}, "seed families"),
        ({"families": []}, "seed families"),
        ({"num_function_inputs": 1}, "at least 2"),
        ({"type": "code_f", "num_function_inputs": 500, "families": ["add"]}, "ask for fewer inputs"),
    ],
)
def test_requests_that_cannot_be_met(change, match):
    with pytest.raises(ValueError, match=match):
        code_draw(**({"type": "code_o", "rng": random.Random(0)} | change))


def test_too_many_distinct_seeds_are_an_error_and_not_an_endless_loop(monkeypatch):
    monkeypatch.setattr(base, "MAX_DRAWS", 1)
    with pytest.raises(ValueError, match="300 different seed tasks asked for"):
        code_seeds(300, families=["span"])


def test_a_user_can_add_a_family_and_a_task_type():
    types = code_types("compact")
    base = type(types["code_o"])

    class Reversed(base):
        id = "reversed"

        def judge(self, tasks, answers, run):
            return [not right for right in super().judge(tasks, answers, run)]

    mine = Reversed(style="compact")
    task = code_draw("code_o", random.Random(0), families=["each"])
    draft = mine.parse_proposal(mine.propose_completion(task), [])
    assert isinstance(draft, Draft) and draft.key == mine.key(task.payload) != types["code_o"].key(task.payload)
    assert mine.judge([task], [mine.parse_answer(task, mine.solve_completion(task))], list) == [False]
