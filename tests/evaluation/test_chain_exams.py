"""The exams of chains: fixed for good, by depth, and asked by their names as a user's own exams are."""

import json
from collections import Counter

import numpy as np
import pytest

from recipes.chains.exams import EXAM_DEPTHS, chains, chains_held_out
from recipes.chains.trial import compare
from trl_populora.evaluation import Exam, Question, make_exam
from trl_populora.evaluation.answering import Sample
from trl_populora.evaluation.grading import Grade
from trl_populora.evaluation.results import ExamResult
from trl_populora.tasks import make_task_types
from trl_populora.tasks.code.families.chains import KINDS, depth


@pytest.fixture(
    scope="module",
    params=[
        (chains, "5f6b9fb0a954"),
        pytest.param((chains_held_out, "537d99dc56ca"), marks=pytest.mark.slow),
    ],
)
def exam_and_version(request):
    make, version = request.param
    return make(), version


def test_exams_never_change(exam_and_version):
    exam, version = exam_and_version
    assert exam.version == version


def test_every_depth_has_as_many_tasks_of_each_kind(exam_and_version):
    exam, _ = exam_and_version
    records = [json.loads(question.reference) for question in exam.questions]
    depths = [depth(record["payload"]["program"]) for record in records]
    assert [question.group for question in exam.questions] == [f"depth_{one:02d}" for one in depths]
    kinds = [record["author"].removeprefix("seed:").rpartition("_")[0].removesuffix("_held") for record in records]
    expected = {(level, kind.name): 16 for level in EXAM_DEPTHS for kind in KINDS}
    assert Counter(zip(depths, kinds, strict=True)) == expected


def test_right_answers_are_right(exam_and_version):
    exam, _ = exam_and_version
    short, code_o = exam.first(54), make_task_types(["code_o"], style="compact")["code_o"]
    tasks = [code_o.read_task(json.loads(question.reference)) for question in short.questions]
    grades = short.grader(None).grade(
        [code_o.solve_completion(task) for task in tasks], [q.reference for q in short.questions]
    )
    assert {grade.verdict for grade in grades} == {"solved"}


def test_exams_are_found_by_name():
    exam = make_exam("recipes.chains.exams:chains[:27]", {})
    assert (exam.name, len(exam.questions)) == ("chains[:27]", 27)
    assert {question.group for question in exam.questions} == {f"depth_{one:02d}" for one in EXAM_DEPTHS}


def no_exam():
    return 3


def test_what_is_no_exam_is_refused():
    with pytest.raises(ValueError, match="gives 3, not a trl_populora.evaluation.Exam"):
        make_exam(f"{__name__}:no_exam", {})
    with pytest.raises(ValueError, match="neither a .*Benchmark nor a function"):
        make_exam("recipes.chains.exams:SEED", {})


def test_a_trial_compares_by_depth():
    groups = ["depth_01", "depth_01", "depth_02", "depth_02"]
    exam = Exam("e", tuple(Question(str(i), [], "", group) for i, group in enumerate(groups)), grader=None)

    def result(scores):
        rows = [(player, i, bool(one)) for player, own in scores.items() for i, one in enumerate(own)]
        verdicts = {True: Grade("solved"), False: Grade("wrong")}
        return ExamResult(exam, [Sample(player, i, 0, "", 1, 1, verdicts[one]) for player, i, one in rows])

    table = compare(result({"base": [1, 0, 0, 0]}), result({"s_0": [1, 1, 1, 0], "s_1": [1, 0, 1, 0]}))
    assert [table[g]["before"] for g in ("depth_01", "depth_02", "all")] == [0.5, 0.0, 0.25]
    assert [table[g]["after"] for g in ("depth_01", "depth_02", "all")] == [0.75, 0.5, 0.625]
    assert table["all"]["gain"] == 0.375 and table["all"]["questions"] == 4
    assert table["all"]["error"] == round(float(np.std([0, 0.5, 1, 0], ddof=1) / 2), 3)
