import json
from types import SimpleNamespace

import numpy as np
import pytest

from trl_populora.evaluation import (
    BASE,
    TaskAccuracy,
    bootstrap_interval,
    evaluate_members,
    grade,
    held_out_tasks,
)
from trl_populora.executor import Executor
from trl_populora.tasks import identity_tasks, seed_tasks, task_types


TYPES = task_types("compact", num_function_inputs=4)


@pytest.fixture(scope="module")
def executor():
    with Executor(1) as executor:
        yield executor


@pytest.fixture(scope="module")
def tasks():
    return [task for name in TYPES for task in seed_tasks(3, type=name, num_function_inputs=4)]


def test_gold_answers_solve_and_others_do_not(executor, tasks):
    gold = [TYPES[task.type].solve_completion(task) for task in tasks]
    grades = grade(tasks, gold, task_types=TYPES, run_many=executor.run_many)
    assert all(verdict.solved and verdict.refusal is None for verdict in grades)
    nonsense = grade(tasks, ["I do not know."] * len(tasks), task_types=TYPES, run_many=executor.run_many)
    assert not any(verdict.solved for verdict in nonsense)
    assert all(verdict.refusal is not None for verdict in nonsense)
    wrong = [
        "```output\n'wrong'\n```",
        "```input\n'wrong', 1, 2\n```",
        "```python\ndef f(*a):\n    return 'wrong'\n```",
    ]
    wrong = [wrong[list(TYPES).index(task.type)] for task in tasks]
    grades = grade(tasks, wrong, task_types=TYPES, run_many=executor.run_many)
    assert not any(verdict.solved for verdict in grades) and all(verdict.refusal is None for verdict in grades)


def test_grade_refuses_what_it_cannot_judge(tasks):
    with pytest.raises(ValueError, match="9 tasks and 1 completions"):
        grade(tasks, ["x"], task_types=TYPES, run_many=list)
    with pytest.raises(ValueError, match="code_f"):
        grade(tasks, ["x"] * 9, task_types={"code_o": TYPES["code_o"], "code_i": TYPES["code_i"]}, run_many=list)


def test_metric_of_the_evaluate_library(executor, tasks):
    metric = TaskAccuracy(executor, num_function_inputs=4)
    references = [json.dumps(task.to_json()) for task in tasks]
    predictions = [TYPES[task.type].solve_completion(task) for task in tasks]
    predictions[0] = "nothing"
    result = metric.compute(predictions=predictions, references=references)
    assert result == {"accuracy": pytest.approx(8 / 9), "well_formed": pytest.approx(8 / 9)}
    metric.add_batch(predictions=["nothing"], references=references[:1])  # it can be used again
    assert metric.compute() == {"accuracy": 0.0, "well_formed": 0.0}


def test_every_member_is_asked_every_task_and_the_base_alone(executor, tasks):
    calls = []

    def sampler(prompts, members, *, seed):
        calls.append(list(members))
        gold = {str(TYPES[task.type].solve_prompt(task)): TYPES[task.type].solve_completion(task) for task in tasks}
        skilled = [gold[str(prompt)] if member == "good" else "nothing" for prompt, member in zip(prompts, members)]
        return [SimpleNamespace(text=text) for text in skilled]

    scores = evaluate_members(["good", "bad"], sampler, tasks, task_types=TYPES, run_many=executor.run_many)
    assert calls == [["good"] * 9 + ["bad"] * 9, [None] * 9]
    assert (scores["good"].pass_at_1, scores["good"].low, scores["good"].high) == (1, 1, 1)
    assert (scores["bad"].pass_at_1, scores["bad"].well_formed) == (0, 0)
    assert scores[BASE].pass_at_1 == 0
    assert scores["mean"].pass_at_1 == 0.5
    assert scores["good"].by_type == {"code_o": 1, "code_i": 1, "code_f": 1}
    assert json.loads(json.dumps(scores["mean"].to_json()))["by_type"]["code_f"] == 0.5
    alone = evaluate_members(["bad"], sampler, tasks, task_types=TYPES, run_many=executor.run_many, base=False)
    assert set(alone) == {"bad", "mean"}
    with pytest.raises(ValueError, match="at least one task"):
        evaluate_members(["bad"], sampler, [], task_types=TYPES, run_many=executor.run_many)


def test_held_out_tasks_are_not_those_excluded():
    first = held_out_tasks(["code_o", "code_i"], 5)
    assert [task.type for task in first] == ["code_o"] * 5 + ["code_i"] * 5
    assert first == held_out_tasks(["code_o", "code_i"], 5)
    exclude = {task.id for task in first[:3]}
    second = held_out_tasks(["code_o", "code_i"], 5, exclude=exclude)
    assert len({task.id for task in second}) == 10 and not exclude & {task.id for task in second}
    assert second[:2] == first[3:5]


def test_bootstrap_interval_holds_the_mean_and_narrows():
    rng = np.random.default_rng(0)
    few, many = rng.random(20) < 0.3, rng.random(2000) < 0.3
    low, high = bootstrap_interval(few)
    assert low < few.mean() < high
    narrow = bootstrap_interval(many)
    assert narrow[1] - narrow[0] < (high - low) / 5
    assert narrow[0] < 0.3 < narrow[1]
    for values, level in (([], 0.95), ([1], 1.0)):
        with pytest.raises(ValueError, match="bootstrap_interval needs"):
            bootstrap_interval(values, level=level)


def test_identity_tasks_can_be_graded(executor):
    own = list(identity_tasks(4).values())
    gold = [TYPES[task.type].solve_completion(task) for task in own]
    assert all(verdict.solved for verdict in grade(own, gold, task_types=TYPES, run_many=executor.run_many))
