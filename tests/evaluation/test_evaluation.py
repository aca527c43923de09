import json

import numpy as np
import pytest

from tests.code_tasks import code_seeds, code_types
from trl_populora.evaluation import make_exam, make_exams
from trl_populora.evaluation.answering import grade
from trl_populora.evaluation.graders.task_accuracy import TaskAccuracy
from trl_populora.evaluation.held_out import task_exam
from trl_populora.executor import Execution, Status
from trl_populora.tasks import Referee


TYPES = code_types("compact", num_function_inputs=4)


@pytest.fixture(scope="module")
def tasks():
    return [task for name in TYPES for task in code_seeds(3, type=name, num_function_inputs=4)]


def judged(tasks, texts, run, types=TYPES):
    return TaskAccuracy(run, task_types=types).grade(texts, [json.dumps(task.to_json()) for task in tasks])


def verdicts(grades):
    return [one.verdict for one in grades]


def test_gold_answers_solve_and_others_do_not(executor, tasks):
    gold = [TYPES[task.type].solve_completion(task) for task in tasks]
    assert verdicts(judged(tasks, gold, executor.run_many)) == ["solved"] * 9
    nonsense = judged(tasks, ["I do not know."] * 9, executor.run_many)
    assert verdicts(nonsense) == ["refused"] * 9 and all(one.detail for one in nonsense)
    wrong = [
        "```output\n'wrong'\n```",
        "```input\n'wrong', 1, 2\n```",
        "```python\ndef f(*a):\n    return 'wrong'\n```",
    ]
    wrong = [wrong[list(TYPES).index(task.type)] for task in tasks]
    assert verdicts(judged(tasks, wrong, executor.run_many)) == ["wrong"] * 9


def test_grading_refuses_what_it_cannot_judge(tasks):
    with pytest.raises(ValueError, match="1 completions and 9 references"):
        TaskAccuracy(list).grade(["x"], ["{}"] * 9)
    references = [json.dumps(task.to_json()) for task in tasks]
    some = {"code_o": TYPES["code_o"], "code_i": TYPES["code_i"]}
    with pytest.raises(ValueError, match="code_f"):
        TaskAccuracy(list, task_types=some).compute(predictions=["x"], references=references[-1:])


def test_metric_of_the_evaluate_library(executor, tasks):
    metric = TaskAccuracy(executor.run_many)
    references = [json.dumps(task.to_json()) for task in tasks]
    predictions = [TYPES[task.type].solve_completion(task) for task in tasks]
    predictions[0] = "nothing"
    result = metric.compute(predictions=predictions, references=references)
    assert result == {"accuracy": pytest.approx(8 / 9), "well_formed": pytest.approx(8 / 9), "spared": 0}
    metric.add_batch(predictions=["nothing"], references=references[:1])  # it can be used again
    assert metric.compute() == {"accuracy": 0.0, "well_formed": 0.0, "spared": 0}


def test_equal_answers_to_a_question_are_judged_once(tasks):
    from trl_populora.evaluation.answering import Sample

    exam, seen = task_exam("exam", tasks[:2], TYPES), []

    class Grader(TaskAccuracy):
        def judge(self, completions, references, run):
            seen.extend(completions)
            return super().judge(completions, references, run)

    samples = [Sample(name, i, 0, "nothing", 1, 1) for name in ("a", "b", "c") for i in range(2)]
    grades = grade(exam, samples, Grader(list, task_types=TYPES))
    assert len(seen) == 2 and [one.grade.verdict for one in grades] == ["refused"] * 6


def test_identity_tasks_can_be_graded(executor):
    own = [one.simplest() for one in TYPES.values()]
    gold = [TYPES[task.type].solve_completion(task) for task in own]
    assert verdicts(judged(own, gold, executor.run_many)) == ["solved"] * len(own)


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
    assert verdicts(judged(tasks, gold, once.run_many)) == ["solved"] * 9
    expected = ["spared" if task.payload.program == program else "solved" for task in tasks]
    assert verdicts(judged(tasks, gold, always.run_many)) == expected and "spared" in expected


def test_the_metric_counts_spared_answers_apart(executor, tasks):
    metric = TaskAccuracy(Failing(executor, lambda job: True, times=9).run_many)
    references = [json.dumps(task.to_json()) for task in tasks]
    predictions = [TYPES[task.type].solve_completion(task) for task in tasks]
    predictions[0] = "nothing"
    result = metric.compute(predictions=predictions, references=references)
    assert result == {"accuracy": pytest.approx(2 / 3), "well_formed": pytest.approx(2 / 3), "spared": 6}
    others = [i for i, task in enumerate(tasks) if task.type != "code_o"]
    result = metric.compute(predictions=[predictions[i] for i in others], references=[references[i] for i in others])
    assert result["spared"] == 6 and np.isnan([result["accuracy"], result["well_formed"]]).all()


def test_round_and_evaluation_have_one_referee(executor, tasks):
    """What a grade says of an answer is what the round's own rule says, for every kind of outcome."""
    wrong, refused = "```input\n'wrong', 1, 2\n```", "nothing"
    texts, asked = [wrong, refused], [tasks[3], tasks[3], tasks[3], tasks[4]]
    texts = [TYPES["code_i"].solve_completion(tasks[3]), *texts, TYPES["code_i"].solve_completion(tasks[4])]

    def run_many(jobs):
        return Failing(executor, lambda job: job.program == tasks[4].payload.program, times=9).run_many(jobs)

    outcomes = Referee(TYPES, run_many).judge(asked, texts)
    facts = [(one.solved, one.wrong, one.refused, one.spared) for one in outcomes]
    assert facts == [tuple(i == j for j in range(4)) for i in range(4)]
    assert verdicts(judged(asked, texts, run_many)) == ["solved", "wrong", "refused", "spared"]


@pytest.mark.parametrize(
    "names, words",
    [
        (["held_ot"], "Did you mean 'held_out'"),
        (["gsm8"], "Did you mean 'gsm8k'"),
        (["gsm8k", "gsm8k"], "each once"),
        ("gsm8k", "must be a list"),
        (["held_out[:0]"], "at least one question"),
        (["nowhere:EXAM"], "cannot be imported"),
        ([":EXAM"], "is unknown.*'module:Name'"),
        (["tests.evaluation.letters:NOTHING"], "has no 'NOTHING'"),
        (["tests.evaluation.letters:WORDS"], "neither a trl_populora.evaluation.benchmarks.Benchmark nor a function"),
        (["tasks:/nowhere.jsonl"], "cannot be read"),
    ],
)
def test_exams_that_do_not_exist_are_refused(names, words):
    with pytest.raises(ValueError, match=words):
        make_exams(names, TYPES)


def test_exams_of_tasks_need_types_and_limits_name_the_exam():
    with pytest.raises(ValueError, match="needs task types"):
        make_exam("held_out[:3]", {})
    (exam,) = make_exams(["held_out[:6]"], TYPES, limit=2)
    assert exam.name == "held_out[:2]" and len(exam.questions) == 2
