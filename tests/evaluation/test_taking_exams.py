import json
import math
import os
import re
import time
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest

from tests import tiny
from tests.evaluation import letters
from trl_populora.evaluation import Exam, Question
from trl_populora.evaluation.answering import Sample, collect_answers
from trl_populora.evaluation.answers import AnswerFile
from trl_populora.evaluation.evaluating import (
    Decoding,
    GradingError,
    base_fingerprint,
    check_length,
    merged,
    take_exam,
)
from trl_populora.evaluation.grading import Grade, Grader
from trl_populora.evaluation.records import save_evaluation
from trl_populora.evaluation.results import COLUMNS, ExamResult
from trl_populora.generation import TransformersSampler
from trl_populora.self_play import Completion


STUDENTS = ["student_0", "student_1"]


@pytest.fixture
def exam(tmp_path):
    return letters.LETTERS.exam(letters.write_data(tmp_path))


@pytest.fixture(scope="module")
def population():
    return tiny.tiny_population(noise=0.5)


class Counting(TransformersSampler):
    """Writes down who was asked in each call, and what was set."""

    calls: list

    def __call__(self, prompts, members, **settings):
        self.calls.append(list(members))
        assert (self.temperature, self.max_completion_length) == self.expected
        return super().__call__(prompts, members, **settings)


@pytest.fixture
def sampler(population):
    sampler = Counting(population, tiny.tiny_tokenizer(), max_completion_length=40, temperature=1.0, batch_size=8)
    sampler.calls, sampler.expected = [], (0.0, 6)
    return sampler


def take(exam, sampler, folder, **changes):
    settings = {
        "members": STUDENTS,
        "run": None,
        "decoding": Decoding(rows_per_call=4),
        "folder": str(folder),
    } | changes
    return take_exam(exam, sampler=sampler, **settings)


def answers(run):
    return [(one.player, one.question, one.number, one.text, one.tokens, one.grade) for one in run.result.samples]


def test_the_longest_prompt_and_an_answer_must_fit(exam):
    lengths = {one.prompt[0]["content"]: n for one, n in zip(exam.questions, (5, 9, 7, 6, 5, 8, 4, 3), strict=False)}
    engine = SimpleNamespace(max_completion_length=40, count_tokens=lambda prompt: lengths[prompt[0]["content"]])
    own = exam.max_completion_length
    for limit, answer, fits in ((9 + own, None, True), (8 + own, None, False), (19, 10, True), (18, 10, False)):
        engine.max_length = limit
        if fits:
            check_length(exam, engine, max_completion_length=answer)
            continue
        with pytest.raises(
            ValueError, match=f"has 9 tokens and an answer up to {answer or own}, more than the {limit}"
        ):
            check_length(exam, engine, max_completion_length=answer)


def test_members_share_calls_and_the_base_has_its_own(exam, sampler, tmp_path):
    told = []
    run = take(exam, sampler, tmp_path, on_progress=lambda done, total: told.append((done, total)))
    assert sampler.calls == [STUDENTS * 2] * 4 + [[None] * 4] * 2
    assert run.result.players == [*STUDENTS, "base"] and len(run.result.samples) == 24
    assert told == [(done, 24) for done in range(0, 25, 4)]
    assert (sampler.temperature, sampler.max_completion_length) == (1.0, 40)  # as before
    assert run.decoding.max_completion_length == 6


def test_answers_are_those_of_a_member_asked_alone(exam, sampler, tmp_path):
    together = take(exam, sampler, tmp_path).result
    for name in STUDENTS:
        with sampler.decoding(temperature=0.0, max_completion_length=6):
            alone = collect_answers(exam, [name], sampler, base=False)
        assert [one.text for one in alone] == [one.text for one in together.samples if one.player == name]


@pytest.mark.slow
@pytest.mark.parametrize("decoding", [Decoding(rows_per_call=4), Decoding(3, 0.8, rows_per_call=5)])
def test_an_interrupted_exam_goes_on_where_it_was(exam, sampler, tmp_path, decoding):
    sampler.expected = (decoding.temperature, 6)
    whole = take(exam, sampler, tmp_path / "whole", decoding=decoding)
    total, folder = len(sampler.calls), tmp_path / "stopped"
    sampler.calls.clear()

    def stop(done, total):
        if len(sampler.calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(exam, sampler, folder, decoding=decoding, on_progress=stop)
    assert (sampler.temperature, sampler.max_completion_length) == (1.0, 40)
    (path,) = folder.iterdir()
    with open(path, "ab") as file:
        file.write(b'{"seconds": 1.0, "answers": [["student_0", 7, 0, "half')  # killed while it wrote
    sampler.calls.clear()
    told = []
    run = take(exam, sampler, folder, decoding=decoding, on_progress=lambda done, total: told.append(done))
    assert len(sampler.calls) == total - 3 and told[0] == 3 * decoding.rows_per_call
    assert answers(run) == answers(whole) and run.generation > 0
    assert [one.path for one in run.files] == [str(path)]


@pytest.mark.slow
def test_answers_of_other_settings_or_weights_are_neither_used_nor_removed(exam, sampler, tmp_path):
    first = take(exam, sampler, tmp_path)
    sampler.calls.clear()
    take(exam, sampler, tmp_path)  # all is there
    assert not sampler.calls
    others = [{"members": STUDENTS[:1]}, {"identity": {"weights": {"student_0": "0"}}}, {"decoding": Decoding(seed=1)}]
    for changes in others:
        sampler.calls.clear()
        other = take(exam, sampler, tmp_path, **changes)
        assert sampler.calls and other.files[0].path != first.files[0].path
    kept = [name for name in os.listdir(tmp_path) if name.endswith(".partial.jsonl")]
    assert len(kept) == 1 + len(others)


def test_a_member_is_asked_with_common_noise(exam, population, sampler, tmp_path):
    """Members with the same weights write the same samples, which differ from each other."""
    population.write("student_1", population.factors("student_0"))
    try:
        sampler.expected = (1.0, 6)
        run = take(exam, sampler, tmp_path, decoding=Decoding(4, 1.0, rows_per_call=16), base=False)
        first, second = ([one.text for one in run.result.samples if one.player == name] for name in STUDENTS)
        assert first == second and len(set(first)) > len(first) // 2
    finally:
        tiny.perturb(population, 0.5)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"samples": 4}, "temperature above 0"),
        ({"samples": 0}, "samples=0 must be at least 1"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"max_completion_length": 0}, "max_completion_length=0"),
        ({"rows_per_call": 0}, "rows_per_call=0"),
    ],
)
def test_decodings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Decoding(**settings)


def test_limits_come_from_the_option_then_the_exam_then_the_run(exam, sampler, tmp_path):
    assert Decoding(max_completion_length=3).for_exam(exam, sampler).max_completion_length == 3
    assert Decoding().for_exam(exam, sampler).max_completion_length == 6
    endless = letters.ENDLESS.exam(letters.write_data(tmp_path))
    assert Decoding().for_exam(endless, sampler).max_completion_length == 40


# Graders ------------------------------------------------------------------------------------------------------------


def broken(answers, references=None):
    return letters.Breaks().grade(answers, references or ["3"] * len(answers))


def test_an_answer_that_breaks_the_grader_fails_alone(caplog):
    grades = broken(["3", "x", "4", "none", "3x", *["3"] * 20])
    assert [one.verdict for one in grades[:5]] == ["solved", "failed", "wrong", "refused", "failed"]
    assert all(one.verdict == "solved" for one in grades[5:])
    assert grades[1].detail == "the grader raised KeyError: 'x'" and grades[1].score == 0
    assert "Breaks failed on 2 of 25 answers: the grader raised KeyError" in caplog.text


def test_an_answer_that_makes_the_grader_hang_fails_alone(monkeypatch):
    monkeypatch.setattr("trl_populora.evaluation.grading.PATIENCE", 0.05)
    monkeypatch.setattr("trl_populora.evaluation.grading.PATIENCE_PER_ANSWER", 0.0)
    grades = broken(["3", "y", "4", "5"])
    assert [one.verdict for one in grades] == ["solved", "failed", "wrong", "wrong"]
    assert "took more than" in grades[1].detail
    monkeypatch.setattr("trl_populora.evaluation.grading.MOST_HANGS", 3)
    hopeless = broken(["y"] * 1000)
    assert [one.verdict for one in hopeless] == ["failed"] * 1000


def test_time_in_the_sandbox_is_not_the_graders(monkeypatch):
    monkeypatch.setattr("trl_populora.evaluation.grading.PATIENCE", 0.05)
    monkeypatch.setattr("trl_populora.evaluation.grading.PATIENCE_PER_ANSWER", 0.0)

    class Slow(Grader):
        def judge(self, completions, references, run):
            run([])
            return [Grade("solved")] * len(completions)

    def sandbox(jobs):
        letters.time.sleep(0.2)
        return []

    assert Slow(sandbox).grade(["a"], ["b"]) == [Grade("solved")]


def test_a_grader_that_miscounts_is_told(caplog):
    class Short(Grader):
        def judge(self, completions, references, run):
            return []

    assert Short(list).grade(["a", "b"], ["", ""])[0].detail == "the grader gave 0 grades for 1 answers"
    with pytest.raises(ValueError, match="Short failed on every answer: the grader gave 0 grades"):
        Short(list).compute(predictions=["a"], references=["b"])


def test_what_is_no_grade_is_told():
    class Bools(Grader):
        def judge(self, completions, references, run):
            return [True for _ in completions]

    assert Bools(list).grade(["a", "b"], ["", ""])[1].detail == "the grader gave True, which is no Grade"


def test_a_grader_may_change_its_lists_and_must_give_text():
    class Takes(Grader):
        def judge(self, completions, references, run):
            return [Grade("wrong", 7 if one == "bad" else one) for one in [completions.pop(0) for _ in references]]

    given = ["a", "bad", "c"]
    grades = Takes(list).grade(given, ["", "", ""])
    assert given == ["a", "bad", "c"] and [grade.answer for grade in grades] == ["a", "", "c"]
    assert grades[1].detail == "the grader raised TypeError: answer must be text, got 7"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": 3}, "the id of a question must be a str, got 3"),
        ({"reference": {"a": 1}}, "the reference of a question must be a str"),
        ({"prompt": "What is 1 + 1?"}, "the prompt of question 'a' must be a list of chat messages"),
        ({"prompt": [{"role": "user"}]}, "must be a list of chat messages"),
        ({"prompt": []}, "must be a list of chat messages"),
        ({"prompt": [{"role": "user", "content": None}]}, "must be a list of chat messages"),
        ({"prompt": [{"role": "user", "content": [{"type": "text", "text": "b"}]}]}, "role and content are texts"),
        ({"prompt": [{"role": "user", "content": "\ud800"}]}, "question 'a' has a text that is not Unicode"),
    ],
)
def test_what_is_no_question_is_told(changes, said):
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        Question(**({"id": "a", "prompt": [{"role": "user", "content": "b"}], "reference": "c"} | changes))


class Forgets(letters.Count):
    def __init__(self, run):
        pass


@pytest.mark.parametrize("grader", [letters.Count(), lambda run: "a grader", lambda: letters.Count(), Forgets])
def test_what_is_no_grader_is_told_before_anybody_is_asked(exam, sampler, tmp_path, grader):
    exam = Exam("letters", exam.questions, grader)
    with pytest.raises(ValueError, match="exam 'letters': its grader .* must be a Grader class, or a function"):
        take(exam, sampler, tmp_path / "out")
    assert not sampler.calls and not (tmp_path / "out").exists()


def test_a_grader_needs_no_home(monkeypatch, tmp_path):
    """As in a container whose user has none."""
    monkeypatch.setattr("evaluate.config.HF_METRICS_CACHE", str(tmp_path / "no" / "home"))
    assert letters.Count().compute(predictions=["3"], references=["3"])["accuracy"] == 1
    assert not (tmp_path / "no").exists()


def test_a_grader_without_its_file_says_so(exam):
    def lost(run):
        raise FileNotFoundError(2, "No such file or directory", "words.txt")

    with pytest.raises(ValueError, match="exam 'letters': its grader cannot be made: .*No such file.*words.txt"):
        Exam("letters", exam.questions, lost).make_grader(None)


def test_one_process_at_a_time_adds_answers(exam, sampler, tmp_path):
    file = AnswerFile(str(tmp_path), "letters", {"exam": "letters"})
    with pytest.raises(ValueError, match="another evaluation is writing .*letters-"):
        AnswerFile(str(tmp_path), "letters", {"exam": "letters"})
    file.add([Sample("student_0", 0, 0, "7", 1, 1, None)], 0.5)
    file.release()
    again = AnswerFile(str(tmp_path), "letters", {"exam": "letters"})
    assert [one.text for one in again.answered] == ["7"]


def test_a_grader_that_always_fails_loses_no_answers(sampler, tmp_path):
    data = letters.write_data(tmp_path)
    folder = tmp_path / "out"
    with pytest.raises(GradingError, match="NotImplementedError, on every answer. The answers are kept in .*broken-"):
        take(letters.BROKEN.exam(data), sampler, folder)
    sampler.calls.clear()
    mended = Exam(**vars(letters.BROKEN.exam(data)) | {"grader": letters.Count})
    run = take(mended, sampler, folder)  # the same questions
    assert not sampler.calls and len(run.result.samples) == 24


# Files --------------------------------------------------------------------------------------------------------------


SCRIPT = "".join(["10110100", "11111111", "00000s00"])  # of two students and the base


def graded(run, script=SCRIPT):
    """The run with other grades, one letter for each answer: 1 solved, 0 wrong, s spared, f failed, - refused."""
    verdicts = {"1": "solved", "0": "wrong", "s": "spared", "f": "failed", "-": "refused"}
    samples = [
        type(one)(**vars(one) | {"grade": Grade(verdicts[letter], letter)})
        for one, letter in zip(run.result.samples, script, strict=True)
    ]
    return type(run)(**vars(run) | {"result": type(run.result)(run.result.exam, samples)})


def test_the_record_has_all_numbers_and_the_table_all_answers(exam, sampler, tmp_path):
    run = graded(take(exam, sampler, tmp_path))
    record = save_evaluation(str(tmp_path), [run], {"": STUDENTS}, {"base": "tiny"})
    assert json.loads((tmp_path / "evaluation.json").read_text()) == record
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]
    (one,) = record["exams"]
    assert record["base"] == "tiny" and record["comparisons"] == 3  # the best elsewhere gets no star
    assert (one["exam"], one["version"], one["questions"]) == ("letters", exam.version, 8)
    assert one["source"]["sha256"] == exam.source["sha256"] and one["groups"] == ["short", "long"]
    scores, summaries = one["scores"], one["summaries"]
    assert [scores[name]["accuracy"] for name in ("student_0", "student_1", "base")] == [0.5, 1.0, 0.0]
    assert scores["base"]["verdicts"] == {"wrong": 7, "spared": 1} and scores["base"]["well_formed"] == 1
    assert scores["student_0"]["groups"] == {"short": 0.6, "long": pytest.approx(1 / 3)}
    assert (summaries["mean"]["accuracy"], summaries["best"]["accuracy"]) == (0.75, 1.0)
    assert summaries["weakest"]["accuracy"] == 0.5
    pairs = {(d["of"], d["to"]): d for d in one["differences"]}
    assert set(pairs) == {(name, "base") for name in ("student_0", "student_1", "mean", "best")}
    assert pairs["student_0", "base"]["difference"] == pytest.approx(3 / 7)  # the spared question is in no pair
    assert record["metrics"]["eval/letters/student_1"] == 1.0 and record["metrics"]["eval/letters/mean"] == 0.75
    table = pyarrow.parquet.read_table(tmp_path / "letters.parquet")
    assert table.column_names == list(COLUMNS) and table.num_rows == 24
    assert set(table["player"].to_pylist()) == {*STUDENTS, "base"}


def test_nothing_known_is_null_and_no_error(exam, sampler, tmp_path):
    run = graded(take(exam, sampler, tmp_path), "s" * 16 + "0" * 8)
    record = save_evaluation(str(tmp_path), [run], {"": STUDENTS}, {})
    text = (tmp_path / "evaluation.json").read_text()
    assert "NaN" not in text and record["exams"][0]["scores"]["student_0"]["accuracy"] is None
    assert "eval/letters/student_0" not in record["metrics"]
    assert not record["exams"][0]["differences"][0]["significant"]


def test_samples_give_pass_at_k(exam, sampler, tmp_path):
    sampler.expected = (0.9, 6)
    run = take(exam, sampler, tmp_path, members=STUDENTS[:1], base=False, decoding=Decoding(3, 0.9))
    run = graded(run, "100" * 4 + "000" * 2 + "111" * 2)
    (one,) = save_evaluation(str(tmp_path), [run], {"": STUDENTS[:1]}, {})["exams"]
    score = one["scores"]["student_0"]
    assert score["accuracy"] == pytest.approx((4 / 3 + 2) / 8)
    passed = {k: score["pass_at_k"][k]["accuracy"] for k in score["pass_at_k"]}
    assert passed == {"1": pytest.approx((4 / 3 + 2) / 8), "2": pytest.approx((8 / 3 + 2) / 8), "3": 6 / 8}
    assert not one["summaries"] and not one["differences"]  # one member, no base


def test_teams_are_told_apart_and_compared(exam, sampler, tmp_path):
    first = take(exam, sampler, tmp_path / "a")
    second = take(exam, sampler, tmp_path / "b", base=False)
    both = merged({"a": graded(first), "b": graded(second, "00000000" + "00000001")}, named=True)
    assert both.result.players == ["a/student_0", "a/student_1", "b/student_0", "b/student_1", "base"]
    teams = {name: [f"{name}/{one}" for one in STUDENTS] for name in "ab"}
    record = save_evaluation(str(tmp_path), [both], teams, {})
    differences = {(d["of"], d["to"]): d for d in record["exams"][0]["differences"]}
    assert differences["b/mean", "a/mean"]["difference"] == pytest.approx(1 / 16 - 0.75)
    assert record["comparisons"] == 2 * 3 + 1 and len(both.files) == 2
    assert record["metrics"]["eval/letters/b/best"] is not None
    np.testing.assert_allclose(both.generation, first.generation + second.generation)


@pytest.mark.parametrize(
    "name, stem",
    [("gsm8k", "gsm8k"), ("gsm8k[:50]", "gsm8k_50"), ("tasks:runs/a b", "tasks_runs_a_b-"), ("../x", "x-")],
)
def test_names_of_exams_become_names_of_files(exam, name, stem):
    found = Exam(name, exam.questions, exam.grader).file_stem
    assert found == stem or (stem.endswith("-") and found.startswith(stem) and len(found) == len(stem) + 6)


def test_the_fingerprint_is_of_the_base_alone(population, sampler):
    first = base_fingerprint(sampler)
    tiny.perturb(population, 0.5, seed=9)
    assert base_fingerprint(sampler) == first and len(first) == 16
    plain = TransformersSampler(
        tiny.tiny_population(1, 1, lora_config=tiny.lora(2)), tiny.tiny_tokenizer(), max_completion_length=4
    )
    assert base_fingerprint(plain) == first
    other = TransformersSampler(tiny.tiny_population(1, 1, seed=3), tiny.tiny_tokenizer(), max_completion_length=4)
    assert base_fingerprint(other) != first
    tiny.perturb(population, 0.5)


@pytest.mark.slow
def test_answers_to_other_prompts_or_templates_are_not_used(exam, sampler, tmp_path, monkeypatch):
    first = take(exam, sampler, tmp_path)
    questions = [
        Question(one.id, [{"role": "user", "content": one.prompt[0]["content"] + "!"}], one.reference)
        for one in exam.questions
    ]
    other = Exam(exam.name, tuple(questions), exam.grader, max_completion_length=6)
    sampler.calls.clear()
    paths = {first.files[0].path, take(other, sampler, tmp_path).files[0].path}
    assert sampler.calls and len(paths) == 2
    for name, value in (("template", "plain"), ("chat_template_kwargs", {"enable_thinking": False})):
        monkeypatch.setattr(sampler, name, value)
        paths.add(take(exam, sampler, tmp_path).files[0].path)
        monkeypatch.undo()
    monkeypatch.setattr(sampler.tokenizer, "chat_template", "Mended: " + sampler.tokenizer.chat_template)
    paths.add(take(exam, sampler, tmp_path).files[0].path)
    assert len(paths) == 5


def test_the_seed_and_the_sample_choose_the_noise(exam, sampler, tmp_path):
    sampler.expected = (1.0, 6)

    def texts(seed):
        run = take(exam, sampler, tmp_path, decoding=Decoding(3, 1.0, seed=seed), base=False, members=STUDENTS[:1])
        return [one.text for one in run.result.samples]

    assert texts(0) == texts(0) != texts(1)


def test_every_sample_of_every_question_has_noise_of_its_own(exam):
    asked = []

    def note(prompts, members, *, seed, streams):
        asked.extend(streams)
        return [Completion("", [1], [2])] * len(prompts)

    collect_answers(exam, ["student_0"], note, samples=3, base=False)
    assert sorted(asked) == list(range(3 * len(exam.questions)))


def verdicts_of(verdicts):
    questions = tuple(Question(str(i), [{"role": "user", "content": str(i)}], "0") for i in range(len(verdicts)))
    samples = [
        Sample("student_0", i, k, "", 1, 1, Grade(verdict))
        for i, own in enumerate(verdicts)
        for k, verdict in enumerate(own)
    ]
    return ExamResult(Exam("exam", questions, None), samples)


def test_spared_answers_and_questions_are_not_counted():
    half = verdicts_of([("solved", "spared"), ("solved", "wrong"), ("spared", "spared")])
    assert half.accuracy("student_0") == pytest.approx(0.75)
    assert math.isnan(verdicts_of([("spared",)]).accuracy("student_0"))


def test_groups_stand_in_the_order_of_the_questions_and_of_their_numbers():
    names = ["level 2", "hard", "level 10", "", "easy", "level 3", "2-1", "1-10", "1-9"]
    questions = tuple(Question(str(i), [{"role": "user", "content": "?"}], "0", one) for i, one in enumerate(names))
    groups = ExamResult(Exam("exam", questions, None), []).groups
    assert groups == ["level 2", "level 3", "level 10", "hard", "easy", "1-9", "1-10", "2-1"]


def test_the_fingerprint_does_not_depend_on_the_matrices_that_are_adapted(sampler):
    narrow = tiny.tiny_population(1, 1, lora_config=tiny.lora(target_modules=["q_proj"]))
    other = TransformersSampler(narrow, tiny.tiny_tokenizer(), max_completion_length=4)
    assert base_fingerprint(other) == base_fingerprint(sampler)


def test_the_seconds_of_sampling_are_those_of_the_calls(exam, sampler, tmp_path):
    start = time.monotonic()
    run = take(exam, sampler, tmp_path)
    assert 0 < run.generation <= time.monotonic() - start
