import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.code_tasks import code_seeds, code_types
from trl_populora.evaluation import (
    BASE,
    TaskAccuracy,
    bootstrap_interval,
    evaluate_members,
    grade,
    held_out_tasks,
)
from trl_populora.executor import Execution, Executor, Status
from trl_populora.tasks import Referee


TYPES = code_types("compact", num_function_inputs=4)
TWO = {name: TYPES[name] for name in ("code_o", "code_i")}


@pytest.fixture(scope="module")
def executor():
    with Executor(1) as executor:
        yield executor


@pytest.fixture(scope="module")
def tasks():
    return [task for name in TYPES for task in code_seeds(3, type=name, num_function_inputs=4)]


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
    metric = TaskAccuracy(executor)
    references = [json.dumps(task.to_json()) for task in tasks]
    predictions = [TYPES[task.type].solve_completion(task) for task in tasks]
    predictions[0] = "nothing"
    result = metric.compute(predictions=predictions, references=references)
    assert result == {"accuracy": pytest.approx(8 / 9), "well_formed": pytest.approx(8 / 9), "spared": 0}
    metric.add_batch(predictions=["nothing"], references=references[:1])  # it can be used again
    assert metric.compute() == {"accuracy": 0.0, "well_formed": 0.0, "spared": 0}


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
    first = held_out_tasks(TWO, 5)
    assert [task.type for task in first] == ["code_o"] * 5 + ["code_i"] * 5
    assert first == held_out_tasks(TWO, 5)
    exclude = {task.id for task in first[:3]}
    second = held_out_tasks(TWO, 5, exclude=exclude)
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
    own = [one.simplest() for one in TYPES.values()]
    gold = [TYPES[task.type].solve_completion(task) for task in own]
    assert all(verdict.solved for verdict in grade(own, gold, task_types=TYPES, run_many=executor.run_many))


class Failing:
    """An executor that fails on the programs that `fails` picks, `times` times for each."""

    def __init__(self, executor, fails, *, times):
        self.executor, self.fails, self.times, self.failed = executor, fails, times, {}

    def run_many(self, jobs):
        executions = self.executor.run_many(jobs)
        for i, job in enumerate(jobs):
            if self.fails(job) and self.failed.get(job.program, 0) < self.times:
                self.failed[job.program] = self.failed.get(job.program, 0) + 1
                executions[i] = Execution(Status.INFRA_ERROR, (), 0.0, 0)
        return executions


def test_what_the_executor_failed_to_judge_is_run_again_and_then_neither_right_nor_wrong(executor, tasks):
    gold = [TYPES[task.type].solve_completion(task) for task in tasks]
    program = tasks[3].payload.program  # of code_i: the answer is run through it
    once, always = (Failing(executor, lambda job: job.program == program, times=times) for times in (1, 2))
    assert all(verdict.solved for verdict in grade(tasks, gold, task_types=TYPES, run_many=once.run_many))
    grades = grade(tasks, gold, task_types=TYPES, run_many=always.run_many)
    assert [verdict.spared for verdict in grades] == [task.payload.program == program for task in tasks]
    assert not any(verdict.wrong or verdict.refused for verdict in grades)
    assert [verdict.solved for verdict in grades] == [not verdict.spared for verdict in grades]


def test_spared_answers_are_counted_and_in_no_mean(executor, tasks):
    gold = {str(TYPES[task.type].solve_prompt(task)): TYPES[task.type].solve_completion(task) for task in tasks}

    def sampler(prompts, members, *, seed):
        return [SimpleNamespace(text=gold[str(p)] if m == "good" else "nothing") for p, m in zip(prompts, members)]

    def evaluate(run_many, names=("good", "bad")):
        return evaluate_members(names, sampler, tasks, task_types=TYPES, run_many=run_many, base=False)

    scores = evaluate(Failing(executor, lambda job: job.program == tasks[3].payload.program, times=9).run_many)
    assert (scores["good"].pass_at_1, scores["good"].spared, scores["good"].well_formed) == (1, 1, 1)
    assert (scores["bad"].pass_at_1, scores["bad"].spared) == (0, 0)  # nothing of its was run
    assert scores["mean"].pass_at_1 == pytest.approx((8 * 0.5 + 0) / 9)  # of task 3 only the bad answer is judged
    assert scores["mean"].spared == 1
    assert scores["mean"].well_formed == pytest.approx(8 / 17)  # of 18 answers one is spared
    nothing_runs = evaluate(Failing(executor, lambda job: True, times=9).run_many, ["good"])
    assert nothing_runs["good"].by_type == {"code_o": 1}  # judged by value
    assert nothing_runs["good"].spared == 6
    own = [task for task in tasks if task.type == "code_i"]
    with pytest.raises(ValueError, match="failed on all 3 answers of good"):
        evaluate_members(
            ["good"],
            sampler,
            own,
            task_types=TYPES,
            run_many=Failing(executor, lambda job: True, times=9).run_many,
            base=False,
        )


def test_the_metric_counts_spared_answers_apart(executor, tasks):
    metric = TaskAccuracy(Failing(executor, lambda job: True, times=9), num_function_inputs=4)
    references = [json.dumps(task.to_json()) for task in tasks]
    predictions = [TYPES[task.type].solve_completion(task) for task in tasks]
    predictions[0] = "nothing"
    result = metric.compute(predictions=predictions, references=references)
    assert result == {"accuracy": pytest.approx(2 / 3), "well_formed": pytest.approx(2 / 3), "spared": 6}
    others = [i for i, task in enumerate(tasks) if task.type != "code_o"]
    result = metric.compute(predictions=[predictions[i] for i in others], references=[references[i] for i in others])
    assert result["spared"] == 6 and np.isnan([result["accuracy"], result["well_formed"]]).all()


def test_round_and_evaluation_have_one_referee(executor, tasks):
    """What grade says of an answer is what the round's own rule says, for every kind of outcome."""
    right = TYPES["code_i"].solve_completion(tasks[3])
    wrong, refused = "```input\n'wrong', 1, 2\n```", "nothing"
    texts, asked = [right, wrong, refused, right], [tasks[3], tasks[3], tasks[3], tasks[4]]

    def run_many(jobs):
        own = Failing(executor, lambda job: job.program == tasks[4].payload.program, times=9)
        return own.run_many(jobs)

    texts[3] = TYPES["code_i"].solve_completion(tasks[4])
    outcomes = Referee(TYPES, run_many).judge(asked, texts)
    assert outcomes == grade(asked, texts, task_types=TYPES, run_many=run_many)
    facts = [(v.solved, v.wrong, v.refused, v.spared) for v in outcomes]
    assert facts == [tuple(i == j for j in range(4)) for i in range(4)]


def test_spared_answers_are_told(capsys):
    from trl_populora.cli.evaluate import print_scores
    from trl_populora.evaluation import Score

    scores = {
        "student_0": Score(0.5, 0.4, 0.6, 1.0, {"code_o": 0.5}, spared=3),
        "mean": Score(0.5, 0.4, 0.6, 1.0, {"code_o": 0.5}, spared=3),
    }
    print_scores(scores, ["code_o", "code_i"])
    printed = capsys.readouterr().out
    assert "50.0%       -" in printed and "3 answers are in no share" in printed
    print_scores({"student_0": Score(0.5, 0.4, 0.6, 1.0, {"code_o": 0.5})}, ["code_o"])
    assert "in no share" not in capsys.readouterr().out
