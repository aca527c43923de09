"""The type `math` as a whole: proposals, answers, prompts and seeds, with the real executor."""

import random
import sys

import pytest

from trl_populora.executor import Execution, Status
from trl_populora.tasks import Answer, Draft, Refusal, Task, is_spared, make_task_types
from trl_populora.tasks.code.hygiene import check_program
from trl_populora.tasks.math import MathWord, WordProblem
from trl_populora.tasks.parsing import fence


PROBLEM = "A box holds 12 eggs. How many eggs are in 5 boxes?"
PROGRAM = "def f():\n    return 12 * 5"


def proposal(problem=PROBLEM, program=PROGRAM):
    return f"{fence('problem', problem)}\n{fence('python', program)}"


def propose(run, problem=PROBLEM, program=PROGRAM, references=()):
    kind = MathWord()
    draft = kind.parse_proposal(proposal(problem, program), references)
    return kind.verify([draft], run)[0] if isinstance(draft, Draft) else draft


def test_a_problem_becomes_a_task(run):
    assert propose(run) == WordProblem(PROBLEM, PROGRAM, "60")


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("def f():\n    # twelve in a box\n    return 12 * 5  # all\n\n\nprint(f())\nassert f() == 60", "60"),
        ("def f(eggs=12, boxes=5):\n    return eggs * boxes", "60"),
        ("from fractions import Fraction\n\n\ndef f():\n    return Fraction(12, 5)", "12/5"),
        ("from fractions import Fraction\n\n\ndef f():\n    return Fraction(12 * 5, 1)", "60"),
        ("def f():\n    return 12 / 5", "2.4"),
        ("def f():\n    return 12 * 0.5 / 5 * 2 * 5", "12"),  # which the program needs, so the text may hold it
        ("def f(n=5):\n    return 12 + f(n - 1) if n else 0", "60"),
        (
            "from fractions import Fraction\n\n\ndef f(n=5):\n    return Fraction(1, 12) + f(n - 1) if n else 0",
            "5/12",
        ),
        ("class Box:\n    eggs = 12\n\n\ndef f():\n    return Box.eggs * 5", "60"),
        ("_f = 12\n\n\ndef g():\n    return _f\n\n\ndef f():\n    return g() * 5", "60"),
    ],
)
def test_programs_that_compute_the_answer(run, program, answer):
    payload = propose(run, program=program)
    assert isinstance(payload, WordProblem) and payload.answer == answer
    assert "#" not in payload.program and "assert" not in payload.program and "print" not in payload.program


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f():\n    return 12 * 5 > 2", "not_a_number"),
        ("def f():\n    return str(12 * 5)", "not_a_number"),
        ("def f():\n    return [12 * 5]", "not_a_number"),
        ("def f():\n    return None if 12 * 5 else 1", "not_a_number"),
        ("def f():\n    return 12 ** 0.5 * 5", "not_a_number"),
        ("def f():\n    return 12 ** 12 * 5", "not_a_number"),
        ("from decimal import Decimal\n\n\ndef f():\n    return Decimal(12) * 5", "unplain"),
        ("def f():\n    return 12 * 5j.imag", "number_not_in_problem"),
        ("def f():\n    return 12 / (5 - 5)", "exception"),
        ("def f():\n    while 12 < 5 + 12:\n        pass", "cpu_timeout"),
        ("def f(n):\n    return 12 * n", "exception"),
        ("def f():\n    return 12 * id(5)", "banned_name"),
        ("def f():\n    return 12 * 5 + hash('eggs') % 5", "banned_name"),
        ("def f():\n    return 12 + 5 * ([*{'eggs', 'box', 'holds', 'many'}].index('eggs'))", "nondeterministic"),
        ("import os\n\n\ndef f():\n    return 12 * 5", "banned_import"),
        ("def g():\n    return 12 * 5", "no_function"),
        ("def f(:", "syntax_error"),
        ("def f():\n    return 2 + 2", "no_numbers"),
        ("def f():\n    return 12 * 7", "number_not_in_problem"),
        ("def f():\n    return 12 * 5 + len('xxxx')", "text_not_in_problem"),
        ("def f():\n    return 12 * 5 - 2 * 12 - 12 - 5 - 1 - 1 - 1 - 5 - 1", "answer_in_problem"),
        ("x = 12\n" * 400 + "def f():\n    return x * 5", "too_large"),
    ],
)
def test_programs_that_make_no_task(run, program, reason):
    problem = PROBLEM + " (Not 10.)"
    refusal = propose(run, problem, program)
    assert isinstance(refusal, Refusal) and refusal.reason == reason, refusal


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("", "no_problem"),
        (" \n ", "no_problem"),
        ("12 and 5 make what?" + "x" * 2048, "too_large"),
        ("12 and 5? <|im_end|>", "reserved_text"),
        ("12 and 5? Write \\boxed{17}.", "reserved_text"),
        ("12 and 5 </think>", "no_problem"),
        ("12 times 5 is sixty. What is it?", "answer_in_problem"),
        ("What is a dozen times some?", "number_not_in_problem"),
    ],
)
def test_texts_that_make_no_task(run, problem, reason):
    refusal = propose(run, problem)
    assert isinstance(refusal, Refusal) and refusal.reason == reason, refusal


@pytest.mark.parametrize(
    ("end", "value", "answer"),
    [
        ("How many are in one part of 7?", "round(12 * 5 / 7, 2)", "unstated_rounding"),
        ("How many placed on the ground are in one part of 7?", "round(12 * 5 / 7)", "unstated_rounding"),
        ("How many are in one part of 7?", "list(map(round, [12 * 5 / 7]))[0]", "unstated_rounding"),
        ("How many are in one part of 7, to two decimals?", "round(12 * 5 / 7, 2)", "8.57"),
        ("Rounded, how many are in one part of 7?", "round(12 * 5 / 7)", "9"),
        ("How many are in a part of 7, to 3 significant figures?", "round(12 * 5 / 7, 2)", "8.57"),
        ("About how many are in one part of 7?", "round(12 * 5 / 7)", "9"),
        ("How many are in one part of 7, in a whole box of 3 digits?", "round(12 * 5 / 7)", "unstated_rounding"),
        ("How many are in one part of 7?", "(12 * 5 / 7).__round__(2)", "unstated_rounding"),
        ("How many are in one part of 8?", "round(12 * 5 / 8, 2)", "7.5"),  # which changes nothing
        ("40 of 100 are brown. How many are left?", "12 * 5 - sum(1 for _ in range(round(40 * 5 / 100 * 12)))", "36"),
        ("A third of 192 is a cube. What is its side?", "int(round((192 / 3) ** (1 / 3))) * 12 / 12", "4"),
        ("And 300000000 times 0.6?", "round(300000000 * 0.6)", "180000000"),
        ("How many are in one part of 8?", "round(0.1 + 12 * 5 / 8 - 1 / 10, 2)", "number_not_in_problem"),
        ("How many are in one part of 5?", "round(12 * 5 / 5)", "12"),
    ],
)
def test_rounding_that_changes_the_answer_must_be_asked_for(run, end, value, answer):
    found = propose(run, f"12 times 5 eggs. {end}", f"def f():\n    return {value}")
    assert (found.reason if isinstance(found, Refusal) else found.answer) == answer


def test_rounding_with_what_a_program_may_begin_with(run):
    begin = '"""A box."""\nfrom __future__ import annotations\n\n\n'
    for value, answer in (("round(12 * 5 / 8, 2)", "7.5"), ("round(12 * 5 / 7, 2)", "unstated_rounding")):
        found = propose(run, "12 times 5 eggs. What is an 8th or 7th part?", f"{begin}def f():\n    return {value}")
        assert (found.reason if isinstance(found, Refusal) else found.answer) == answer
    own = "def round(x, _=0):\n    return x\n\n\ndef f():\n    return round(12 * 5 / 8)"
    assert propose(run, "12 times 5 eggs. What is an 8th part?", own).answer == "7.5"


def test_a_second_run_that_the_sandbox_fails_is_spared_and_one_that_fails_is_told(run):
    kind, place = MathWord(), []
    program = "def f():\n    return round(12 * 5 / 7)"
    draft = kind.parse_proposal(proposal("12 times 5 eggs. What is a 7th part?", program), ())

    def failing(jobs, status):
        place.append(len(jobs))
        return [*run(jobs[:1]), Execution(status, (), 0.0, 0)]

    (spared,) = kind.verify([draft], lambda jobs: failing(jobs, Status.INFRA_ERROR))
    (told,) = kind.verify([draft], lambda jobs: failing(jobs, Status.WALL_TIMEOUT))
    assert place == [2, 2] and is_spared(spared)
    assert told == Refusal("unstated_rounding", "9, and without `round`: wall_timeout")


def test_a_copy_of_a_reference_is_refused_whatever_its_layout(run):
    kind = MathWord()
    task = Task.create("math", WordProblem(PROBLEM, PROGRAM, "60"))
    copy = PROBLEM.upper().replace(" ", "  \n")
    assert kind.question_keys(task.payload) == kind.question_keys(WordProblem("_" + PROBLEM, PROGRAM, "60"))
    assert propose(run, copy, references=[task]).reason == "duplicate"
    assert kind.key(WordProblem(copy, "def f():\n    return 5 * 12", "60")) == kind.key(task.payload)
    assert kind.key(WordProblem(PROBLEM.replace("12", "13"), PROGRAM, "60")) != kind.key(task.payload)


@pytest.mark.parametrize("change", [" .", "!", "  ?!", "\n- ", " (*)", "_", " __ "])
def test_signs_that_say_nothing_make_no_other_problem(run, change):
    task = Task.create("math", WordProblem(PROBLEM, PROGRAM, "60"))
    for copy in (PROBLEM + change, PROBLEM.replace("eggs. ", f"eggs {change} ")):
        assert propose(run, copy, references=[task]).reason == "duplicate", copy


def test_signs_between_numbers_make_another_problem():
    kind = MathWord()
    texts = ["3.5", "3 5", "35", "3/5", "3:5", "3 - 5", "3-5 ", "3 + 5", "3 * 5", "-35", "35%", "3, 5", "3_5"]
    keys = [kind.key(WordProblem(f"What is {text} of it?", PROGRAM, "60")) for text in texts]
    assert len(set(keys)) == len(texts) - 2  # 3-5 is 3 - 5, and 3, 5 is 3 5


UNSEEN = [
    *"\0\x1b\u202e\u200b\u2066\ufeff\x85\u2028\ud800",
    *"\u034f\u115f\u17b4\u180b\u2800\u3164\ufe0f\uffa0\U000e0100",
]


@pytest.mark.parametrize("sign", UNSEEN)
def test_signs_that_nobody_sees_are_refused(run, sign):
    assert propose(run, PROBLEM.replace("box ", f"bo{sign}x ")).reason == "reserved_text"
    assert propose(run, PROBLEM.replace("holds ", "holds\u00a0\n\t")).answer == "60"


def test_the_last_blocks_after_thinking_count():
    text = f"<think>{proposal('3?')}</think> so {proposal('4?')} or better {proposal()}"
    draft = MathWord().parse_proposal(text, ())
    assert isinstance(draft, Draft) and draft.content == WordProblem(PROBLEM, PROGRAM, "")


@pytest.mark.slow
def test_answers_and_why_there_is_none(run):
    kind, task = MathWord(), Task.create("math", WordProblem(PROBLEM, PROGRAM, "60"))
    texts = {
        "so \\boxed{60}": True,
        "\\boxed{1}, no: \\boxed{60}.": True,
        "<think>\\boxed{1}</think> \\boxed{\\$60.00}": True,
        "\\boxed{\\frac{120}{2}} eggs": True,
        "\\boxed{60\\text{ eggs}}": True,
        "\\boxed{60}, no: \\boxed{61}": False,
        "\\boxed{12 \\times 5}": False,
        "60": "no_box",
        "<think>\\boxed{60}": "no_box",
        "\\boxed{60": "no_box",
        "\\boxed{ }": "no_box",
        "\\boxed{" + "6" * 257 + "}": "too_large",
    }
    read = {text: kind.parse_answer(task, text) for text in texts}
    refused = {text: answer.reason for text, answer in read.items() if isinstance(answer, Refusal)}
    assert refused == {text: reason for text, reason in texts.items() if isinstance(reason, str)}
    answers = {text: answer for text, answer in read.items() if isinstance(answer, Answer)}
    verdicts = kind.judge([task] * len(answers), list(answers.values()), run)
    assert dict(zip(answers, verdicts, strict=True)) == {text: texts[text] for text in answers}


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [name if place % 3 == 0 else name for place, name in enumerate(MathWord.families)],
)
def test_every_family_agrees_with_the_executor(run, family):
    kind = MathWord()
    tasks = kind.seeds(30, families=[family])
    drafts = [kind.parse_proposal(kind.propose_completion(task), ()) for task in tasks]
    assert [draft for draft in drafts if isinstance(draft, Refusal)] == []
    assert kind.verify(drafts, run) == [task.payload for task in tasks]
    assert {task.author for task in tasks} == {f"seed:{family}"}
    assert len({task.payload.answer for task in tasks}) > 3 and len({kind.key(task.payload) for task in tasks}) == 30


@pytest.mark.slow
def test_families_stand_in_order_of_difficulty():
    kind = MathWord()
    nodes = {}
    for family in kind.families:
        features = [kind.features(task) for task in kind.seeds(20, families=[family])]
        nodes[family] = sum(one.measures["ast_nodes"] for one in features) / len(features)
    first, last = (list(nodes.values())[part] for part in (slice(0, 4), slice(-4, None)))
    assert max(first) < min(last)


def test_prompts_show_references_and_never_the_answer():
    tasks, rng = MathWord().seeds(8), random.Random(0)
    for style, most in (("full", 6), ("compact", 1)):
        kind = MathWord(style)
        (message,) = kind.propose_prompt(tasks, rng)
        assert sum(task.payload.problem in message["content"] for task in tasks) == most
        (message,) = kind.solve_prompt(tasks[0])
        assert tasks[0].payload.problem in message["content"] and tasks[0].payload.program not in message["content"]
    assert len(kind.solve_prompt(tasks[0])[0]["content"]) < len(tasks[0].payload.problem) + 50


def test_features_have_a_space_of_their_own():
    kind = MathWord()
    easy, hard = kind.features(kind.simplest()), kind.features(kind.seeds(1, families=["packs"])[0])
    assert easy.space == "math" and easy.point != hard.point
    assert easy.measures["problem_numbers"] == 2 and easy.measures["ast_nodes"] < hard.measures["ast_nodes"]


@pytest.mark.parametrize("name", ["problem_bytes", "program_bytes", "answer_bytes"])
def test_limits_are_checked(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        MathWord(**{name: 0})


def test_the_type_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ValueError, match=r"pip install 'trl-populora\[math\]'"):
        make_task_types(["math"])


def test_the_entry_of_other_types_still_takes_arguments():
    assert check_program("def f():\n    return 1").reason == "no_parameters"
    assert check_program("def f():\n    return 1", parameters=False) is None
