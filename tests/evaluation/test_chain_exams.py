"""The exams of chains: fixed for good, by depth, and asked by their names as a user's own exams are."""

import json
import random
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from recipes.chains.exams import (
    EXAM_DEPTHS,
    KNOWN,
    LEADING,
    PER_STATEMENT,
    chains,
    chains_held_out,
    chains_short,
    chains_short_more,
    chains_weak,
    chains_weak_more,
    chains_weak_others,
)
from recipes.chains.make.worked import TAKEN_FOR, confusion, trace, worked_output
from recipes.chains.trial import compare, practise
from tests.tiny import tiny_tokenizer
from trl_populora.evaluation import Exam, Question, make_exam
from trl_populora.evaluation.answering import Sample
from trl_populora.evaluation.benchmarks import chat
from trl_populora.evaluation.grading import Grade
from trl_populora.evaluation.results import ExamResult
from trl_populora.self_play.sampling import Completion
from trl_populora.tasks import Refusal, make_task_types
from trl_populora.tasks.code.families.chains import KINDS, depth, fill


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


def test_the_exam_of_short_chains_is_the_first_four_depths_of_the_whole():
    exam, groups = chains_short(), {f"depth_{depth:02d}" for depth in (1, 2, 3, 4)}
    assert (exam.name, exam.version) == ("chains_short", "0ac6ab40e63c")
    assert exam.questions == tuple(one for one in chains().questions if one.group in groups)
    assert Counter(one.group for one in exam.questions) == dict.fromkeys(groups, 48)


@pytest.mark.slow
def test_the_larger_exam_of_short_chains_has_other_questions():
    exam, groups = chains_short_more(), {f"depth_{depth:02d}" for depth in (1, 2, 3, 4)}
    assert (exam.name, exam.version) == ("chains_short_more", "e07a4e10b0ac")
    assert Counter(one.group for one in exam.questions) == dict.fromkeys(groups, 3 * 48)
    asked = [one.prompt[-1]["content"] for one in exam.questions]
    assert len({*asked, *(one.prompt[-1]["content"] for one in chains_short().questions)}) == 4 * (3 * 48 + 48)


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


@pytest.fixture(scope="module")
def weak_tasks():
    code_o = make_task_types(["code_o"], style="compact")["code_o"]
    exam = chains_weak()
    return exam, [code_o.read_task(json.loads(question.reference)) for question in exam.questions]


@pytest.mark.slow
def test_the_exam_of_weak_statements_never_changes(weak_tasks):
    assert weak_tasks[0].version == "03ec139b8202"


@pytest.mark.slow
def test_the_larger_exams_of_weak_statements_have_other_questions(weak_tasks):
    more, others = chains_weak_more(), chains_weak_others()
    assert (more.name, more.version) == ("chains_weak_more", "dd6cd647b0ac")
    assert (others.name, others.version) == ("chains_weak_others", "75f3ac454d26")
    assert Counter(one.group for one in more.questions) == dict.fromkeys(TAKEN_FOR, 3 * PER_STATEMENT)
    asked = [one.prompt[-1]["content"] for one in more.questions]
    assert len({*asked, *(one.prompt[-1]["content"] for one in weak_tasks[0].questions)}) == 792 + 288
    kept = [one.prompt for one in more.questions if one.group != LEADING]
    assert sorted(map(str, kept)) == sorted(str(one.prompt) for one in others.questions)


@pytest.mark.slow
def test_each_weak_statement_has_as_many_tasks_of_its_own(weak_tasks):
    exam, tasks = weak_tasks
    groups = [question.group for question in exam.questions]
    assert Counter(groups) == dict.fromkeys([KNOWN, *TAKEN_FOR], PER_STATEMENT)
    assert set(groups[: len(TAKEN_FOR) + 1]) == {KNOWN, *TAKEN_FOR}  # a part of the exam has all of them
    for group, task in zip(groups, tasks, strict=True):
        lines = [line.strip() for line in task.payload.program.splitlines()[1:-1]]
        assert [found[0] for found in map(confusion, lines) if found] == ([] if group == KNOWN else [group])


@pytest.mark.slow
def test_confused_answers_are_wrong_and_others_right(weak_tasks):
    exam, tasks = weak_tasks
    verdicts = {}
    for confused in (0.0, 1.0):
        texts = [worked_output(task, confused=confused) for task in tasks]
        grades = exam.grader(None).grade(texts, [question.reference for question in exam.questions])
        verdicts[confused] = [grade.verdict for grade in grades]
    weak = [question.group != KNOWN for question in exam.questions]
    assert set(verdicts[0.0]) == {"solved"}
    assert verdicts[1.0] == ["wrong" if one else "solved" for one in weak]


def test_each_held_out_statement_is_taken_for_another():
    """All of them, and no other; with the same letters and digits."""
    rng = random.Random(0)
    for kind in KINDS:
        for statement in kind.held_out:
            text, _ = fill(rng, statement)
            template, other = confusion(text)
            assert template == statement[0] and other != text
            assert not set("ABD") & set(other) and set(re.findall(r"'([a-d])'", other)) <= set(text)
        assert not any(confusion(fill(rng, one)[0]) for one in kind.statements)
    (step,) = trace("def f(x):\n    x = x[1:] + [7]\n    return x", [1, 2], confused=1.0)
    assert (step.text, step.after) == ("x = x[1:] + [7]", [1, 2, 7])


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
    exam = Exam("e", tuple(Question(str(i), chat("?"), "", group) for i, group in enumerate(groups)), grader=None)

    def result(scores):
        rows = [(player, i, bool(one)) for player, own in scores.items() for i, one in enumerate(own)]
        verdicts = {True: Grade("solved"), False: Grade("wrong")}
        return ExamResult(exam, [Sample(player, i, 0, "", 1, 1, verdicts[one]) for player, i, one in rows])

    table = compare(result({"base": [1, 0, 0, 0]}), result({"s_0": [1, 1, 1, 0], "s_1": [1, 0, 1, 0]}))
    assert [table[g]["before"] for g in ("depth_01", "depth_02", "all")] == [0.5, 0.0, 0.25]
    assert [table[g]["after"] for g in ("depth_01", "depth_02", "all")] == [0.75, 0.5, 0.625]
    assert table["all"]["gain"] == 0.375 and table["all"]["questions"] == 4
    assert table["all"]["error"] == round(float(np.std([0, 0.5, 1, 0], ddof=1) / 2), 3)


def test_practice_on_fixed_families_takes_the_place_of_what_teachers_write():
    asked, families = [], ["chain_text_short"]
    code_o = make_task_types(["code_o"], style="compact")["code_o"]

    def play(sampler, *, round, step):
        asked.append(sampler(["p", "p", "s"], ["teacher_0", "teacher_0", "student_0"], seed=step))

    def sampler(prompts, members, *, seed):
        return [Completion("own", [1], [2, 3], [0.0, 0.0])] * len(prompts)

    self_play = SimpleNamespace(play=play, task_types={"code_o": code_o})
    trainer = SimpleNamespace(
        source=SimpleNamespace(self_play=self_play),
        population=SimpleNamespace(teachers=["teacher_0"]),
        processing_class=tiny_tokenizer(),
    )
    practise(trainer, families)
    for _ in range(2):
        self_play.play(sampler, round=3, step=0)
    first, second, answer = asked[0]
    assert first != second and asked[1] == asked[0] and answer.text == "own"
    for one in (first, second):
        parsed = code_o.parse_proposal(one.text, ())
        assert not isinstance(parsed, Refusal) and "'" in one.text
        assert tiny_tokenizer().decode(one.ids, skip_special_tokens=True) == one.text and one.prompt_ids == [1]
