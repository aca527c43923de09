"""Exams of benchmarks: the first questions of one are those of the whole, and little of its data is in memory."""

import json
import tracemalloc
from dataclasses import replace

import datasets
import pytest

from tests.evaluation import letters
from trl_populora.evaluation import make_exams
from trl_populora.evaluation.exam import Exam, Question
from trl_populora.run_files.files import parse_objects
from trl_populora.tasks.task import digest


NAME = "tests.evaluation.letters:LETTERS"


def told(exam):
    return exam.name, exam.version, exam.prompts, exam.questions, exam.source, exam.file_stem


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100])
def test_the_first_questions_are_those_of_the_whole_exam(count, tmp_path):
    data = letters.write_data(tmp_path)
    whole = letters.LETTERS.exam(data)
    assert told(letters.LETTERS.exam(data, limit=count)) == told(whole.first(count))
    for name, limit in ((f"{NAME}[:{count}]", None), (NAME, count), (f"{NAME}[:{count}]", 3), (f"{NAME}[:3]", count)):
        (exam,) = make_exams([name], {}, data=data, limit=limit)
        first = whole.first(3) if "3" in (name[-2], str(limit)) else whole
        assert told(exam) == told(first.first(count))


@pytest.mark.parametrize("limit", [0, -3])
def test_an_exam_without_a_question_is_refused(limit, tmp_path):
    data = letters.write_data(tmp_path)
    for exam in (
        lambda: letters.LETTERS.exam(data, limit=limit),
        lambda: make_exams([NAME], {}, data=data, limit=limit),
    ):
        with pytest.raises(ValueError, match="at least one question"):
            exam()


def test_a_version_is_the_hash_of_all_questions():
    questions = tuple(Question(str(k), [{"role": "user", "content": "é"}], f'{{"{k}": "x, y"}}') for k in range(3))
    for some in (questions, questions[:1]):
        exam = Exam("letters", some, letters.Count)
        assert exam.version == digest([[one.id, one.prompt, one.reference] for one in some], 12)
        assert exam.prompts == digest([[one.id, one.prompt] for one in some], 12)


@pytest.mark.parametrize("limit", [2, None])
def test_records_are_freed_once_their_questions_exist(limit, tmp_path):
    lines = (json.dumps({"word": str(k), "kind": "a", "more": "x" * 2**18}) + "\n" for k in range(24))
    (tmp_path / "letters.jsonl").write_text("".join(lines))
    tracemalloc.start()
    try:
        exam = letters.LETTERS.exam(str(tmp_path), limit=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(exam.questions) == (limit or 24) and peak < 2**21


def test_hashing_takes_little_memory():
    prompt = [{"role": "user", "content": "?"}]
    exam = Exam("letters", tuple(Question(str(k), prompt, "x" * 2**18) for k in range(16)), letters.Count)
    tracemalloc.start()
    try:
        assert exam.version and tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


def test_what_is_behind_a_limit_is_not_read(tmp_path, monkeypatch):
    data = letters.write_data(tmp_path)
    whole = letters.LETTERS.exam(data)
    with open(tmp_path / "letters.jsonl", "a") as file:
        file.write('{"word": "ha')
    assert letters.LETTERS.exam(data, limit=3).questions == whole.questions[:3]
    with pytest.raises(ValueError, match="line 9, is not JSON"):
        letters.LETTERS.exam(data)
    read = []

    def rows():
        for line in (tmp_path / "letters.jsonl").read_text().splitlines():
            read.append(line)
            yield json.loads(line)

    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows())
    assert letters.LETTERS.exam(limit=3).questions == whole.questions[:3] and len(read) == 4


def test_lines_may_begin_with_a_mark_and_end_as_they_like(tmp_path):
    lines = [b'\xef\xbb\xbf{"a": 1}\r\n', b"\n", b'{"a": 2}']
    assert [*parse_objects(lines, "x")] == [{"a": 1}, {"a": 2}]
    with pytest.raises(ValueError, match=r"^x, line 2, must be a JSON object, got '\[1\]'\.$"):
        [*parse_objects([b"{}\n", b"[1]\n"], "x")]
    (tmp_path / "letters.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="holds no records"):
        letters.LETTERS.exam(str(tmp_path), limit=2)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"id": ""}, "id='' must be text, the name of the benchmark"),
        ({"id": None}, "id=None must be text"),
        ({"max_completion_length": 0}, "letters: max_completion_length=0 must be at least 1"),
    ],
)
def test_a_benchmark_has_a_name_and_room_for_answers(wrong, told):
    with pytest.raises(ValueError, match=told):
        replace(letters.LETTERS, **wrong)
