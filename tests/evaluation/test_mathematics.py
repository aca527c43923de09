"""The mathematical benchmarks on records of our own: prompts, references, verdicts, and what hostile answers get."""

import json
import sys
from dataclasses import replace

import pytest

from trl_populora.evaluation.benchmarks import benchmark
from trl_populora.evaluation.graders import mathematics
from trl_populora.evaluation.graders.mathematics import MathAccuracy, math_reference
from trl_populora.evaluation.grading import VERDICTS
from trl_populora.executor import Execution, Status


MATHEMATICAL = ("gsm8k", "math_500", "aime24", "aime25", "amc23", "minerva", "olympiadbench")
OLYMPIAD = {
    "id": 7,
    "context": None,
    "question": "Solve $x^2=4$.",
    "final_answer": ["$2$,$-2$"],
    "is_multiple_answer": True,
    "unit": None,
    "answer_type": "Numerical",
    "error": None,
    "subfield": "Algebra",
}
RECORDS = {
    "gsm8k": {"question": "What is 1000 + 234?", "answer": "It is 1000+234=<<1000+234=1234>>1,234.\n#### 1,234"},
    "math_500": {"problem": "Halve 1.", "answer": r"\frac{1}{2}", "level": 2, "unique_id": "test/algebra/1.json"},
    "aime24": {"id": 3, "problem": "What is 20 + 5?", "answer": "025"},
    "aime25": {"problem": "What is 20 + 5?", "answer": "25"},
    "amc23": {"question": "What is 3000 + 159?", "answer": 3159.0},
    "minerva": {"problem": "Give c.", "solution": r"It is $\boxed{\frac{3e8}{1}} \mathrm{~m/s}$.", "type": "Optics"},
    "olympiadbench": OLYMPIAD,
}


def nothing_runs(jobs):
    raise AssertionError(f"{len(jobs)} jobs for numbers")


def folder_with(tmp_path, name, *records):
    path = tmp_path / benchmark(name).file
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", MATHEMATICAL)
def test_a_record_becomes_a_question_whose_own_answer_is_right(name, tmp_path, run):
    data = folder_with(tmp_path, name, RECORDS[name])
    (question,) = benchmark(name).exam(data).questions
    (message,) = question.prompt
    task = RECORDS[name].get("problem") or RECORDS[name].get("question")
    assert message["role"] == "user" and task in message["content"]
    assert ("####" if name == "gsm8k" else "\\boxed{") in message["content"]
    (grade,) = benchmark(name).grader(run).grade([benchmark(name).gold(RECORDS[name])], [question.reference])
    assert grade.verdict == "solved"
    if name != "gsm8k":
        (grade,) = benchmark(name).grader(run).grade([r"It is $\boxed{4}$."], [question.reference])
        assert grade.verdict == "wrong"


def test_olympiad_prompts_say_what_is_wanted(tmp_path):
    one = {**OLYMPIAD, "id": 8, "is_multiple_answer": False, "context": "Let $x>0$.", "unit": "km", "error": "1e-1"}
    several, single = benchmark("olympiadbench").exam(folder_with(tmp_path, "olympiadbench", OLYMPIAD, one)).questions
    assert "several answers, each of them a numerical value" in several.prompt[0]["content"]
    assert "unit" not in several.prompt[0]["content"]
    assert single.prompt[0]["content"].startswith("Let $x>0$.\n\nSolve $x^2=4$.")
    assert "The unit of the answer is km" in single.prompt[0]["content"]
    assert json.loads(several.reference)["several"] and "atol" not in json.loads(several.reference)
    assert json.loads(single.reference)["atol"] == [0.1] and single.group == "Algebra"


@pytest.mark.parametrize("name", MATHEMATICAL)
def test_bad_files_are_refused_by_name(name, tmp_path):
    with pytest.raises(ValueError, match=f"{name}: .*{benchmark(name).file} cannot be read"):
        benchmark(name).exam(str(tmp_path))
    data = folder_with(tmp_path, name, RECORDS[name], {"text": "?"})
    with pytest.raises(ValueError, match=f"{name}: record 2 of .* has no column"):
        benchmark(name).exam(data)
    path = tmp_path / benchmark(name).file
    path.write_text(json.dumps(RECORDS[name]) + '\n{"question": "Wh', encoding="utf-8")
    with pytest.raises(ValueError, match=f"{name}: .*, line 2, is not JSON "):
        benchmark(name).exam(data)


@pytest.mark.parametrize("name, column", [("gsm8k", "answer"), ("amc23", "answer"), ("olympiadbench", "final_answer")])
def test_a_record_without_a_value_is_named(name, column, tmp_path):
    data = folder_with(tmp_path, name, RECORDS[name], {**RECORDS[name], "id": 2, column: None})
    with pytest.raises(ValueError, match=f"{name}: record 2 of .* is no question"):
        benchmark(name).exam(data)


def test_answers_of_examinations_are_numbers(tmp_path):
    halves = {**RECORDS["amc23"], "answer": 0.5}
    (question,) = benchmark("amc23").exam(folder_with(tmp_path, "amc23", halves)).questions
    assert json.loads(question.reference) == {"answers": ["0.5"]}
    with pytest.raises(ValueError, match="'B' is not a number"):
        benchmark("amc23").exam(folder_with(tmp_path, "amc23", {**halves, "answer": "B"}))


# Right answer, how it is asked for, what stands in the box, verdict.
RATES = {"rtol": 1e-4}
LIST = {"several": True}
CASES = [
    ("7", {}, "7.0", "solved"),
    ("7", {}, "7\\text{ cm}", "solved"),
    ("7", {}, "x = 7", "solved"),
    ("7", {}, "{7}", "solved"),
    ("7", {}, r"\frac{14}{2}", "solved"),
    ("7", {}, "7 pens", "solved"),
    ("7", {}, r"\text{7 hours}", "solved"),
    ("7.5", {}, r"\text{7.5}", "solved"),
    ("7", {}, "7€", "solved"),
    ("1/3", {}, r"0.\overline{3}", "solved"),
    ("7", {}, "7 dozen", "wrong"),
    ("7", {}, r"\text{7 dozen}", "wrong"),
    ("7", {}, r"\text{7 or 8}", "wrong"),
    ("6 abc", {}, "6", "wrong"),
    ("7", {}, "8", "wrong"),
    ("1/3", {}, "0.333333", "solved"),
    ("1/3", {}, "0.3333", "wrong"),
    ("3159", {}, "3,159", "solved"),
    (r"1\frac{4}{5}", {}, "1.8", "solved"),
    (r"\$32,\!348", {}, "32348", "solved"),
    ("0.0000672", {}, "0.000067", "wrong"),
    ("62.5\\%", {}, "62.5", "solved"),
    ("62.5\\%", {}, "0.625", "solved"),
    ("62.5\\%", {}, "6.25", "wrong"),
    (r"3\sqrt{13}", {}, r"\sqrt{117}", "solved"),
    (r"3\sqrt{13}", {}, r"3\sqrt{13}\text{ cm}", "solved"),
    (r"3\sqrt{13}", {}, r"13\sqrt{3}", "wrong"),
    (r"\text{Evelyn}", {}, "Evelyn", "solved"),
    (r"\max(x,y)", {}, r"\max(y,x)", "solved"),
    (r"\text{no or yes}", {}, r"\text{no or yes}", "solved"),
    (r"\text{(C)}", {}, "C", "solved"),
    (r"\text{(C)}", {}, "B", "wrong"),
    ("p - q", {}, "-q+p", "solved"),
    ("p - q", {}, "q-p", "wrong"),
    ("x=5", {}, "5", "solved"),
    ("(3,4]", {}, r"\left(3, 4\right]", "solved"),
    ("(3,4]", {}, "(3,4)", "wrong"),
    (r"(0,9) \cup (9,36)", {}, "(0,36)", "wrong"),
    ("(2,1)", {}, "(1,2)", "wrong"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", {}, r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "solved"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", {}, r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}", "wrong"),
    ("4.5e33", RATES, r"4.5 \times 10^{33} \text{ ergs/s}", "solved"),
    ("4.5e33", RATES, r"4.5 \times 10^{32}", "wrong"),
    ("3.61e-10", RATES, "3.6101e-10", "solved"),
    ("3.61e-10", RATES, "3.62e-10", "wrong"),
    ("3.61e-10", RATES, "0", "wrong"),
    ("MR=SRMC", RATES, "SRMC=MR", "solved"),
    ("4.2", {"atol": (0.1,), "unit": "%"}, "4.3\\%", "solved"),
    ("4.2", {"atol": (0.1,)}, "4.31", "wrong"),
    ("1,100", {**LIST, "atol": (0.1, 10.0)}, "109, 1.05", "solved"),
    ("1,100", {**LIST, "atol": (0.1, 10.0)}, "100, 1.5", "wrong"),
    ("$2$,$-2$", LIST, r"\pm 2", "solved"),
    ("$2$,$-2$", LIST, "-2, 2", "solved"),
    ("$2$,$-2$", LIST, "x=-2 or x=2", "solved"),
    ("$2$,$-2$", LIST, "2", "wrong"),
    ("$2$,$-2$", LIST, "2, 2", "wrong"),
    ("$2$,$-2$", LIST, "2, -2, 3", "wrong"),
    ("(1,2),(3,4)", LIST, "(3,4),(1,2)", "solved"),
    ("(1,2),(3,4)", LIST, "(2,1),(3,4)", "wrong"),
    ("$f(x)=x$,$f(x)=2-x$", LIST, "2-x, x", "solved"),
    (r"\sqrt{8}, \frac{1}{2}", LIST, r"0.5, 2\sqrt{2}", "solved"),
    *(("1,3,5", LIST, text, "solved") for text in (r"1,\,3,\,5", r"1,\;3,\;5", "1,~3,~5", r"n\in\{1,3,5\}")),
    *(("1,-2", {}, text, "solved") for text in (r"1\text{ or }-2", r"x=1\text{ or }x=-2", r"1,\;-2", "-2, 1")),
    *(
        ("1,3,5", {}, text, "solved")
        for text in (r"1, 3, \text{ and } 5", "1, 3, and 5", r"1, 3,\text{or }5", "1; 3; 5")
    ),
    ("1,3,5", {}, r"1, 3, \text{ and } 4", "wrong"),
    ("1,-2", {}, r"1\text{ or }2", "wrong"),
    ("N=n", {}, "N=n", "solved"),
    ("N=n", {}, "N=n+1", "wrong"),
    *((r"\frac{dx}{dt}=kx-a", {}, text, "solved") for text in (r"\frac{d x}{d t}+a=kx", r"kx-a=\frac{dx}{dt}")),
    *((r"\frac{dx}{dt}=kx-a", {}, text, "wrong") for text in (r"\frac{dx}{dt}=a-kx", r"\frac{dx}{dt}=2kx-2a", "kx=a")),
    ("2,~3", {}, "2,~3", "solved"),
    ("7", {}, r"\text{Area}=7", "solved"),
    ("7", {}, r"v_{\text{max}} = 7", "solved"),
    ("7", {}, r"\Delta=7", "solved"),
    *(
        ("24", {}, text, "solved")
        for text in (r"24\,\mathrm{cm^2}", r"24\mathrm{cm^{2}}", r"24\text{ m}^2", "24 cm^2")
    ),
    *(
        ("9.8", RATES, text, "solved")
        for text in (r"9.8\text{ m/s^2}", r"9.8\text{ g/cm³}", r"9.8\,\mathrm{m\,s^{-2}}")
    ),
    *(("9.8", RATES, text, "solved") for text in (r"\approx 9.8", r"g \approx 9.8", "≈ 9.8", r"g_{\text{max}} = 9.8")),
    *(
        (text, {}, text, "solved")
        for text in (r"5\text{ million}", r"2\text{ h }30\text{ min}", "7_8", r"5\text{ A}+3\text{ B}")
    ),
    *(("0.5", {}, text, "solved") for text in (r"50\text{ percent}", r"50\,\mathrm{\%}", "50 percent")),
    *(("24", {}, text, "solved") for text in ("24 km/h", "24 ft²", "₹24", r"24_{10}")),
    ("1.6", {}, r"1.6\,\mathrm{kg\,m^2}", "solved"),
    (r"\frac{1}{1001}", {}, r"P=\frac{1}{1001}", "solved"),
    (r"\frac{1}{1001}", {}, r"P=\frac{1}{1002}", "wrong"),
    ("0.0005", {}, "v=0.0005", "solved"),
    ("4.5e33", RATES, r"\rho(0) = 4.5 \times 10^{33}", "solved"),
]
# What math-verify would accept, or what nobody should: work left to the judge, lists, other names for the same number.
HACKS = [
    *(("7", {}, text) for text in ("3+4", "3!+1", r"\sqrt{49}", "7, 8", r"7\text{ or }8", r"7\text{ or 8}", "7 or 8")),
    *(
        ("7", {}, text)
        for text in (r"\pm 7", r"\{7, 8\}", "[0, 10]", "x > 6", r"\sum_{k=1}^{7} 1", "7x", "7 8", "7=8")
    ),
    *(("7", {}, text) for text in (r"\max(7)", "8=7", "[7,7]", r"7\text{ not }", r"7\text{, or maybe eight}")),
    *(("7", {}, text) for text in (r"7\text{^2}", r"7\mathrm{m^{23}}8", "x=7=8", "x=7, 8", "x=7 dozen", "x^2=7=x")),
    *(("7", {}, text) for text in (r"7\text{ hours }30\text{ minutes}", r"7\text{ A}+3\text{ B}", "7_8", "7 tens")),
    *(("7", {}, rf"7\text{{ {word}}}") for word in ("million", "dozen", "hundred", "hundredths", "factorial")),
    *(
        ("7", {}, text)
        for text in (r"\not=7", r"\ge=7", r"\min(7,8)=7", "f(8 or 9)=7", "x_{=8,y}=7", "or=7", r"\approx= 7")
    ),
    *(("x^7", {}, text) for text in (r"x^7\text{, x^8}", r"x^7\text{ but it could be y^3}", r"x^7\mathrm{y^3}")),
    ("7", {}, r"7\mathrm{e^2}"),
    (r"\pi", {}, r"\pi\mathrm{r^2}"),
    (r"\sqrt{2}", {}, r"\min(\sqrt{2},8)"),
    (r"\frac{\pi}{4}", {}, r"\min(\frac{\pi}{4},1)"),
    (r"\frac{\pi}{4}", {}, r"\frac{\pi}{4}\text{ or something else}"),
    (r"\text{Evelyn}", {}, r"\text{Evelyn}\text{Bob}"),
    ("6m", {}, "6"),
    (r"\frac{1}{m} t", {}, r"\frac{1}{m}"),
    (r"3\sqrt{13}", {}, r"3\sqrt{13}\text{ or 8}"),
    (r"\frac{n(n+1)}{2}", {}, r"\sum_{k=1}^{n} k"),
    (r"\frac{\pi}{4}", {}, r"\arctan 1"),
    (r"\frac{x^2}{2}", {}, r"\int_0^x t\,dt"),
    (r"y^{\prime}+r y=0", {}, "0"),
    ("N=n", {}, "0=1"),
    ("5x - 7y = 4", {}, "0=1"),
    ("5x - 7y = 4", {}, "1=1"),
    (r"(-\infty, 2)", {}, r"\mathbb{R}"),
    ("1.3e-27", RATES, "0"),
    ("1,2,3", LIST, "1,2,3,4,5"),
]


def test_answers_and_hacks(run):
    """All in one call, as an exam is graded: few jobs."""
    cases = CASES + [(*hack, "wrong") for hack in HACKS]
    references = [math_reference([gold], **how) for gold, how, _, _ in cases]
    grades = MathAccuracy(run).grade([rf"So it is \boxed{{{text}}}." for _, _, text, _ in cases], references)
    got = [(gold, how, text, grade.verdict) for (gold, how, text, _), grade in zip(cases, grades, strict=True)]
    assert got == cases


@pytest.mark.parametrize("answer", ["1.5, 203", "203, 1.5", "1.505, 200", "1.5, 200", "1.495, 196"])
def test_each_answer_of_a_list_has_its_own_error(answer):
    """Also if another one is written exactly as the right answer."""
    reference = math_reference(["1.5", "200"], several=True, atol=[0.01, 5])
    (grade,) = MathAccuracy(nothing_runs).grade([rf"\boxed{{{answer}}}"], [reference])
    assert grade.verdict == "solved"
    (grade,) = MathAccuracy(nothing_runs).grade([r"\boxed{1.53, 200}"], [reference])
    assert grade.verdict == "wrong"


def test_a_list_that_is_too_long_is_told_by_its_length(run):
    (grade,) = MathAccuracy(run).grade([r"\boxed{1, 2, 3}"], [math_reference(["1,2"], several=True)])
    assert (grade.verdict, grade.detail) == ("wrong", "3 answers, and not 2")


@pytest.mark.parametrize(
    "form, completion",
    [
        ("boxed", ""),
        ("boxed", "It is 7."),
        ("boxed", r"\boxed{}"),
        ("boxed", r"\boxed{$ $}"),
        ("boxed", r"\boxed{7"),
        ("boxed", r"\boxed{7} and at last \boxed{"),
        ("boxed", rf"\boxed{{{'7' * 100_000}}}"),
        ("boxed", rf"\boxed{{7{' + 7' * 100_000}}}"),
        ("boxed", "\\boxed{" * 20_000),
        ("boxed", "\\boxed{7" + "}" * 2 + "\N{SKULL}" * 100_000 + "\\boxed{}"),
        ("number", ""),
        ("number", "seven"),
        ("number", "#### 6 or 7"),
        ("number", "#### " + "7" * 100_000),
        ("number", "#### \ud800"),
    ],
)
def test_what_is_no_answer_is_refused_without_the_sandbox(form, completion):
    (grade,) = MathAccuracy(nothing_runs).grade([completion], [math_reference(["7"], form=form)])
    assert grade.verdict == "refused" and grade.detail and len(grade.answer) <= 1_000


def test_numbers_need_no_sandbox():
    texts = ["7", "7.0", "-7", r"\frac{14}{2}", "8", "7\\%"]
    grades = MathAccuracy(nothing_runs).grade([rf"\boxed{{{text}}}" for text in texts], [math_reference(["7"])] * 6)
    assert [grade.verdict for grade in grades] == ["solved", "solved", "wrong", "solved", "wrong", "solved"]
    completions = ["#### 7\n#### 8", "#### 8\n#### 7", "7 #### seven", "\N{SKULL} #### $7.00 \N{SKULL}"]
    references = [math_reference(["7"], form="number")] * 4
    grades = MathAccuracy(nothing_runs).grade(completions, references)
    assert [grade.verdict for grade in grades] == ["wrong", "solved", "solved", "solved"]


@pytest.mark.slow
def test_answers_that_hang_take_no_other_down(run, monkeypatch):
    """They share a batch with right ones."""
    limits = replace(mathematics.LIMITS, cpu_seconds=0.7)
    monkeypatch.setattr(mathematics, "LIMITS", limits)
    gold = math_reference([r"3\sqrt{13}"])
    bombs = [r"10^{10^{10}}", r"9^{9^{9}}", "(10^8)!", r"\sum_{k=1}^{10^9} \sin(k!)", "{" * 11 + "1" + "}" * 11]
    texts = [r"\sqrt{117}", *bombs, r"\sqrt{118}", r"3 \cdot \sqrt{13}", "(" * 500 + ")" * 500]
    grades = MathAccuracy(run).grade([rf"\boxed{{{text}}}" for text in texts], [gold] * len(texts))
    verdicts = [grade.verdict for grade in grades]
    assert (verdicts[0], verdicts[-3], verdicts[-2]) == ("solved", "wrong", "solved")
    assert set(verdicts[1:6]) <= {"failed", "wrong", "refused"} and "failed" in verdicts[1:6]
    assert verdicts[-1] == "failed" and "nest" in grades[-1].detail
    assert all(grade.seconds <= limits.cpu_seconds * 1.5 for grade in grades)


def test_text_that_nobody_can_read_never_raises(run):
    texts = [
        "\N{SKULL}",
        "\\",
        "\\frac",
        "%",
        "^",
        "\x00",
        "\ud800",
        "{}",
        "\\text{",
        "=",
        "\\begin{pmatrix}",
        "&",
        "\\\\",
    ]
    texts += ["__import__('os').system('true')", "\\left(", "∑", "٣", "\u202e7", "1,,2", "\\boxed", "nan", "zoo", "?"]
    for gold in (r"3\sqrt{13}", "p-q", "(3,4]", "x=5", r"\text{even}"):
        grades = MathAccuracy(run).grade(
            [rf"\boxed{{{text}}}" for text in texts], [math_reference([gold])] * len(texts)
        )
        assert all(grade.verdict in {"wrong", "refused"} for grade in grades)


def test_failures_of_the_sandbox_spare_the_answer():
    calls = []

    def broken(jobs):
        calls.append(len(jobs))
        return [Execution(Status.INFRA_ERROR, (), 0.0, 0) for _ in jobs]

    grader = MathAccuracy(broken)
    (grade,) = grader.grade([r"\boxed{\sqrt{2}}"], [math_reference([r"\frac{2}{\sqrt{2}}"])])
    assert grade.verdict == "spared" and len(calls) == 2 and grade.verdict in VERDICTS
    scores = grader.compute(
        predictions=[r"\boxed{\sqrt{2}}", r"\boxed{2}"], references=[math_reference(["\\pi"]), math_reference(["2"])]
    )
    assert scores == {"accuracy": 1.0, "well_formed": 1.0, "spared": 1}


def test_a_metric_of_the_evaluate_library():
    completions, references = ["#### 4", "#### 5", "?", "4"], [math_reference(["4"], form="number")] * 4
    scores = MathAccuracy().compute(predictions=completions, references=references)
    assert scores == {"accuracy": 0.5, "well_formed": 0.75, "spared": 0}


def test_without_math_verify_the_grader_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ValueError, match=r"trl-populora\[math\]"):
        MathAccuracy()


def test_without_a_box_what_the_text_calls_its_answer_counts():
    texts = ["The answer is 7.", "So the final answer is: $7$.", "The answer is 8.", "7"]
    grades = MathAccuracy(nothing_runs).grade(texts, [math_reference(["7"])] * 4)
    assert [grade.verdict for grade in grades] == ["solved", "solved", "wrong", "refused"]
