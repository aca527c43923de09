import base64
import json
import os
import pickle
import zlib
from datetime import date

import pytest

from trl_populora.evaluation import make_exams
from trl_populora.evaluation.benchmarks import Window, benchmark
from trl_populora.evaluation.benchmarks.livecodebench import LIVECODEBENCH
from trl_populora.evaluation.exams import exam_keys
from trl_populora.evaluation.graders.programs import ProgramTests, program_reference, read_tests
from trl_populora.executor import Execution, Status
from trl_populora.training.probes import metrics


def cases(*pairs: tuple[str, str], kind: str = "stdin") -> str:
    return json.dumps([{"input": one, "output": other, "testtype": kind} for one, other in pairs])


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode("ascii")


SUM = {
    "question_title": "Sum",
    "question_content": "Print the sum of the numbers in each line.",
    "platform": "atcoder",
    "question_id": "abc001_a",
    "contest_id": "abc001",
    "contest_date": "2024-01-01T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": cases(("1 2\n3\n", "3\n3\n")),
    "private_test_cases": packed(cases(("", ""), ("10 -10\n", "0\n"), ("0.5 0.5\n", "1.0\n"))),
    "metadata": "{}",
}
PAIR = SUM | {
    "question_id": "1899",
    "starter_code": "class Solution:\n    def pair(self, a: List[int], b: int) -> List[int]:\n        ",
    "public_test_cases": cases(("[1, 2]\n3", "[2, 3]"), kind="functional"),
    "private_test_cases": packed(cases(("[]\n0", "[0, 0]"), kind="functional")),
    "metadata": '{"func_name": "pair"}',
}
READ = "import sys\nfor line in sys.stdin:\n    print(sum(map(eval, line.split())))"
METHOD = "class Solution:\n    def pair(self, a: List[int], b: int):\n        return {}"


@pytest.fixture(scope="module")
def grader(run):
    return ProgramTests(run)


def verdicts(grader: ProgramTests, record: dict, *codes: str) -> list[str]:
    reference = LIVECODEBENCH.question(record, 0).reference
    answers = [f"```python\n{code}\n```" for code in codes]
    return [one.verdict for one in grader.grade(answers, [reference] * len(codes))]


def test_questions_show_the_problem_and_no_test():
    program, method = (LIVECODEBENCH.question(record, 0) for record in (SUM, PAIR))
    assert (program.id, program.group, method.id) == ("abc001_a", "easy", "1899")
    assert SUM["question_content"] in program.prompt[0]["content"]
    assert "standard input" in program.prompt[0]["content"]
    assert "def pair(self" in method.prompt[0]["content"] and "standard input" not in method.prompt[0]["content"]
    assert "-10" not in program.prompt[0]["content"]


@pytest.mark.slow
def test_programs_are_judged_by_what_they_print(grader, run):
    right = [
        READ,
        READ.replace("import sys\n", ""),  # the usual names are there
        "import sys\nfor line in sys.stdin.read().splitlines():\n    print(sum(map(float, line.split())), '  ')",
        "if __name__ == '__main__':\n    " + READ.replace("\n", "\n    "),
        "try:\n    while True: print(sum(map(eval, input().split())))\nexcept EOFError:\n    exit(0)",
        "import sys\n"
        "for line in sys.stdin.buffer:\n    sys.stdout.buffer.write(b'%r\\n' % sum(map(eval, line.split())))",
        "for line in open(0): print(sum(map(eval, line.split())))\nprint()",
        "def main():\n    for line in stdin.readlines(): print(sum(map(eval, line.split())))\nmain()",
    ]
    wrong = [
        READ.replace("print(", "print('sum', "),
        READ + "\nprint(0)",
        READ.replace("sum(", "len("),
        READ + "\n1 / 0",
        READ + "\nexit(0)\n".replace("exit(0)", "import os; os._exit(0)"),
        "print('3\\n3')",
        "while True: pass",
        "while True: print(1)",
        "import sys\nsys.stdout = None",
        "import program\nprogram.run_program = lambda *a: ''\nprint(5)",
        "import os\nos.write(3, b'x')",
    ]
    impatient = ProgramTests(run, seconds=0.3, memory_mb=256)
    assert verdicts(grader, SUM, *right) == ["solved"] * len(right)
    assert verdicts(impatient, SUM, *wrong) == ["wrong"] * len(wrong)
    assert verdicts(grader, SUM, "print 1", "") == ["refused", "refused"]


def test_methods_are_judged_by_what_they_return(grader):
    right = [METHOD.format("[len(a), b]"), METHOD.format("(len(a), b)"), "def pair(a, b): return [float(len(a)), b]"]
    right += [
        "class Solution:\n    def __init__(self): self.n = 1\n    def pair(self, a, b): return [len(a) * self.n, b]"
    ]
    wrong = [
        METHOD.format("[b, len(a)]"),
        METHOD.format("None"),
        METHOD.format("exit(0)"),
        "class Solution: pass",
        "x = 1",
    ]
    wrong += ["class Yes(list):\n    __eq__ = lambda self, other: True\n" + METHOD.format("Yes()")]
    assert verdicts(grader, PAIR, *right) == ["solved"] * len(right)
    assert verdicts(grader, PAIR, *wrong) == ["wrong"] * len(wrong)
    assert verdicts(grader, PAIR, METHOD.format("[")) == ["refused"]


@pytest.mark.parametrize(
    ("printed", "expected", "verdict"),
    [
        ("1.0 2", "1 2.00", "solved"),
        ("  a b \n\n", "a b", "solved"),
        ("1e3", "1000", "solved"),
        ("0.1", "0.10000001", "wrong"),
        ("a  b", "a b", "wrong"),
        ("1\n2", "1 2", "wrong"),
        ("1\n\n2", "1\n2", "wrong"),
        ("sNaN", "1", "wrong"),
        ("nan", "nan", "solved"),
        ("", "", "solved"),
        ("YES", "Yes", "wrong"),
    ],
)
def test_outputs_are_compared_by_lines_and_numbers(printed, expected, verdict):
    def run(jobs):
        from trl_populora.executor import canonical
        from trl_populora.executor.records import Value

        return [Execution(Status.OK, (Value(Status.OK, canonical.encode(printed)),), 0.0, 0) for _ in jobs]

    reference = program_reference(None, cases(("", expected)), "[]")
    assert ProgramTests(run).grade(["```python\nx\n```"], [reference])[0].verdict == verdict


def test_what_is_no_text_is_not_read(run, monkeypatch):
    read = []
    monkeypatch.setattr("trl_populora.executor.canonical.decode", read.append)
    code = "import os\nos.write(3, b'R\\x06\\0\\0\\0v<i1;>Z\\0\\0\\0\\0')\nos._exit(0)"
    reference = program_reference(None, cases(("", "1")), "[]")
    (grade,) = ProgramTests(run).grade([f"```python\n{code}\n```"], [reference])
    assert (grade.verdict, grade.detail, read) == ("wrong", "test 1: no text", [])


def test_the_first_lost_test_ends_a_trial(run):
    programs = []

    def noted(jobs):
        programs.append([job.inputs for job in jobs])
        return run(jobs)

    codes = ["print(3)\nprint(3)", "print(0)"]
    assert verdicts(ProgramTests(noted), SUM, *codes) == ["wrong", "wrong"]
    assert programs == [[(("1 2\n3\n",),)] * 2, [(("",),)]]


def test_private_tests_are_read_in_both_forms():
    tests = read_tests(SUM["private_test_cases"])
    assert [tuple(one) for one in tests] == [("", ""), ("10 -10\n", "0\n"), ("0.5 0.5\n", "1.0\n")]
    assert read_tests(cases(*tests)) == tests


class Runs:
    def __reduce__(self):
        return os.mkdir, ("must_not_exist",)


@pytest.mark.parametrize(
    "text",
    [
        packed(Runs()),
        packed([Runs()]),
        packed(b"[]"),
        packed([{"input": "", "output": ""}]),
        packed("{}"),
        packed("[1]"),
        packed('[{"input": ""}]'),
        packed("no JSON"),
        base64.b64encode(b"not zlib").decode(),
        base64.b64encode(zlib.compress(b"not pickle")).decode(),
        base64.b64encode(zlib.compress(b"")).decode(),
        "not base64!",
        "[{]",
        "",
    ],
)
def test_other_private_tests_are_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="tests cannot be read"):
        read_tests(text)
    assert not list(tmp_path.iterdir())


def test_a_problem_without_tests_is_refused():
    reference = program_reference(None, "[]", "[]")
    with pytest.raises(ValueError, match="no tests"):
        ProgramTests(lambda jobs: []).compute(predictions=["```python\nx\n```"], references=[reference])


def test_failures_of_the_sandbox_are_spared():
    failing = ProgramTests(lambda jobs: [Execution(Status.INFRA_ERROR, (), 0.0, 0) for _ in jobs])
    assert verdicts(failing, SUM, READ) == ["spared"]
    full = ProgramTests(lambda jobs: [Execution(Status.TOO_LARGE, (), 0.0, 0) for _ in jobs])
    assert verdicts(full, SUM, READ) == ["failed"]


@pytest.fixture
def four_contests(tmp_path):
    """Records of four days, one of which is a `datetime` as text."""
    days = {"a": "2024-01-01T00:00:00", "b": "2024-08-01T00:00:00", "c": "2024-08-02 12:30:00", "d": "2025-02-01"}
    records = [SUM | {"question_id": one, "contest_date": day} for one, day in days.items()]
    (tmp_path / "livecodebench.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("window", "ids"),
    [
        ("[2024-08-01:2025-02-01]", "bcd"),
        ("[2024-08-02:2024-08-02]", "c"),
        ("[2024-08-02:]", "cd"),
        ("[:2024-08-01]", "ab"),
        ("[2024-01-01:][:2]", "ab"),
        ("[2024-08-01:][:3]", "bcd"),
        ("[:3]", "abc"),
        ("", "abcd"),
    ],
)
def test_an_exam_has_the_problems_of_its_dates(four_contests, window, ids):
    (exam,) = make_exams([f"livecodebench{window}"], {}, data=four_contests)
    assert [one.id for one in exam.questions] == [*ids]
    assert exam.name == f"livecodebench{window}".removesuffix("[:3]" if ids == "bcd" else "-")
    whole = make_exams(["livecodebench"], {}, data=four_contests)[0]
    assert (exam.version == whole.version) == (len(ids) == 4)


def test_exams_of_other_dates_are_other_exams_with_files_of_their_own(four_contests):
    names = ["livecodebench", "livecodebench[2024-08-01:]", "livecodebench[:2024-08-01]", "livecodebench[:2]"]
    exams = make_exams(names, {}, data=four_contests)
    assert [exam.name for exam in exams] == names and len({exam.file_stem for exam in exams}) == 4
    assert (
        exams[1].file_stem == "livecodebench_from_2024-08-01" and exams[2].file_stem == "livecodebench_to_2024-08-01"
    )
    told = {exam.name: {"players": {}, "groups": {}, "mean": place / 4} for place, exam in enumerate(exams)}
    found = metrics({"exams": told, "founders": None, "seconds": 1.0})
    assert found["livecodebench_from_2024-08-01/mean"] == 0.25 and found["livecodebench_to_2024-08-01/mean"] == 0.5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("livecodebench[2024-08-32:]", "2024-08-32 is no date"),
        ("livecodebench[2024-08-01:2024-07-31]", "2024-07-31 is before 2024-08-01"),
        ("livecodebench[2026-01-01:]", "has no record of these dates"),
        ("livecodebench[2024-08:]", "2024-08:. is neither .* nor a window of dates such as"),
        ("livecodebench[:2][2024-08-01:]", r"\[:2\] is neither .* which comes first"),
        ("livecodebench[:]", "is neither"),
        ("livecodebnch[2024-08-01:]", "is unknown. Did you mean 'livecodebench'"),
        ("gsm8k[2024-08-01:]", "gsm8k has no dates. Leave .2024-08-01:. out"),
        ("held_out[2024-08-01:]", "held_out has no dates. Leave .2024-08-01:. out"),
    ],
)
def test_dates_that_make_no_exam_are_refused(four_contests, name, said):
    with pytest.raises(ValueError, match=said):
        make_exams([name], {"code_o": object()}, data=four_contests)
    if "no dates" in said:  # known without the data
        with pytest.raises(ValueError, match=said):
            exam_keys([name], {"code_o": object()})


def test_a_benchmark_without_dates_has_no_window():
    with pytest.raises(ValueError, match="gsm8k.2024-08-01:.: the records of gsm8k have no dates"):
        benchmark("gsm8k").exam(window=Window(date(2024, 8, 1), None))


def test_a_record_without_a_date_is_named(tmp_path):
    (tmp_path / "livecodebench.jsonl").write_text(json.dumps(SUM | {"contest_date": None}) + "\n")
    assert len(LIVECODEBENCH.exam(str(tmp_path)).questions) == 1
    with pytest.raises(ValueError, match=r"record 1 has no date, and .* \(contest_date=None\)"):
        make_exams(["livecodebench[2024-08-01:]"], {}, data=str(tmp_path))


def test_records_come_from_a_file(tmp_path):
    (tmp_path / "livecodebench.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (SUM, PAIR)))
    exam = LIVECODEBENCH.exam(str(tmp_path))
    assert [one.id for one in exam.questions] == ["abc001_a", "1899"] and exam.max_completion_length == 2048
    (tmp_path / "livecodebench.jsonl").write_text(json.dumps({"question_id": "1"}))
    with pytest.raises(ValueError, match="livecodebench: record 1 .* has no column 'question_content'"):
        LIVECODEBENCH.exam(str(tmp_path))
