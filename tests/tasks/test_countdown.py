"""Countdown: what is an expression, what makes a puzzle, and what solves it. The contract itself: tests/testing."""

import itertools
import random
import re
from fractions import Fraction

import pytest

from trl_populora.tasks.countdown import FAMILY_SIZES, MAX_DEPTH, Countdown, read_expression
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.task import Answer, Draft, Refusal, Task


def nothing_runs(jobs):
    raise AssertionError("countdown runs nothing")


def propose(text, references=(), **settings):
    kind = Countdown(**settings)
    draft = kind.parse_proposal(fence("expression", text), references)
    return draft if isinstance(draft, Refusal) else kind.verify([draft], nothing_runs)[0]


def task_of(text):
    return Task.create("countdown", Countdown().puzzle(read_expression(text)))


def solved(task, text):
    kind = Countdown()
    answer = kind.parse_answer(task, fence("expression", text))
    return answer.reason if isinstance(answer, Refusal) else kind.judge([task], [answer], nothing_runs)[0]


@pytest.mark.parametrize(
    "text, normal, value",
    [
        ("1+2*3", "1 + 2 * 3", 7),
        ("(1+2)*3", "(1 + 2) * 3", 9),
        ("((1)+((2*3)))", "1 + 2 * 3", 7),
        ("9-5-2", "9 - 5 - 2", 2),
        ("9-(5-2)", "9 - (5 - 2)", 6),
        ("1+(2+3)", "1 + (2 + 3)", 6),
        ("8/2/2", "8 / 2 / 2", 2),
        ("8/(2/2)", "8 / (2 / 2)", 8),
        ("8/(3-8/3)", "8 / (3 - 8 / 3)", 24),
        ("1/3", "1 / 3", Fraction(1, 3)),
        ("1-3", "1 - 3", -2),
        (" 007\n*\t2 ", "7 * 2", 14),
        ("5/(3-3)", "5 / (3 - 3)", None),
        ("0*(1/0)", "0 * (1 / 0)", None),
    ],
)
def test_expressions_have_one_normal_form_and_an_exact_value(text, normal, value):
    expression = read_expression(text)
    assert (expression.text, expression.value, str(expression)) == (normal, value, normal)
    assert read_expression(expression.text) == expression


@pytest.mark.slow
def test_values_and_trees_are_those_of_python():
    rng, seen = random.Random(0), 0
    for _ in range(20_000):
        text = "".join(rng.choice("123456789+-*/() ") for _ in range(rng.randint(1, 12)))
        try:
            expression = read_expression(text)
        except ValueError:
            continue
        seen += 1
        try:
            value = eval(re.sub(r"(\d+)", r"Fraction(\1)", text))
        except ZeroDivisionError:
            value = None
        assert expression.value == value and read_expression(expression.text) == expression, text
    assert seen > 1_000


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "x", "1 2", "(1", "1)", "()", "+", "-1", "1+", "1+-2", "2**3", "7//2", "7%2", "2(3)", "1=1", "1.5",
        "1_0", "0x1", "1e3", "٣", "１", "1 × 2", "1\x00", "\ud800", "1234567", "9" * 5_000, "1" + "+1" * 200,
        "(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), "(" * 100, "__import__('os')", "1 if 1 else 2",
    ],
)  # fmt: skip
def test_what_is_no_expression(text):
    with pytest.raises(ValueError):
        read_expression(text)
    refusal = Countdown().parse_proposal(fence("expression", text), [])
    assert isinstance(refusal, Refusal) and refusal.reason in ("not_an_expression", "no_expression")


def test_the_deepest_expression_is_read():
    assert read_expression("(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH).value == 1


def test_the_teachers_expression_gives_numbers_and_target():
    puzzle = propose("8 / (3 - 8 / 3)")
    assert (puzzle.numbers, puzzle.target, puzzle.solution) == ((3, 3, 8, 8), 24, "8 / (3 - 8 / 3)")


@pytest.mark.parametrize(
    "text, reason",
    [
        ("7", "number_count"),
        ("1 + 2 + 3 + 4 + 5 + 6 + 7", "number_count"),
        ("0 + 2 + 3", "number_range"),
        ("101 + 2", "number_range"),
        ("3 - 9", "target_range"),
        ("3 - 3", "target_range"),
        ("7 / 2", "target_range"),
        ("100 * 11", "target_range"),
        ("3 / (2 - 2)", "target_range"),
        ("5 * 1", "trivial"),
        ("7 + 2 - 2", "trivial"),
        ("3 * (5 - 4)", "trivial"),
        ("(8 + 5) * (9 - 8)", "trivial"),
    ],
)
def test_degenerate_puzzles_are_refused(text, reason):
    assert propose(text).reason == reason


def test_settings_bound_proposals():
    assert propose("3 + 4", min_numbers=3).reason == "number_count"
    assert propose("3 + 4 + 5", max_numbers=2).reason == "number_count"
    assert propose("30 + 4", largest_number=21).reason == "number_range"
    assert propose("30 + 4", largest_target=33).reason == "target_range"


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"min_numbers": 1}, "min_numbers=1"),
        ({"max_numbers": 7}, "max_numbers=7"),
        ({"min_numbers": 4, "max_numbers": 3}, "min_numbers=4 and max_numbers=3"),
        ({"largest_number": 20}, "largest_number must be 21 to 999999, got 20"),
        ({"largest_target": 10**6}, "largest_target must be 21 to 999999, got 1000000"),
        ({"style": "loud"}, "style"),
    ],
)
def test_bad_settings_name_value_and_bounds(settings, words):
    with pytest.raises(ValueError, match=words):
        Countdown(**settings)


def test_the_same_numbers_and_target_are_the_same_puzzle():
    known = task_of("(1 + 2) * 4 + 5")
    again = Countdown().parse_proposal(fence("expression", "5 + 4 * (2 + 1)"), [])
    assert isinstance(again, Draft) and again.key == Countdown().key(known.payload)
    assert propose("5 + 4 * (2 + 1)", [known]).reason == "duplicate"
    other = Countdown().parse_proposal(fence("expression", "5 + 4 * (2 + 1)"), [task_of("1 + 2 + 4 + 5")])
    assert isinstance(other, Draft)


@pytest.mark.parametrize(
    "text, outcome",
    [
        ("8 / (3 - 8 / 3)", True),
        ("(8/(3-8/3))", True),
        ("3 * 8", False),  # not all numbers
        ("3 + 3 + 8 + 8", False),
        ("24", False),
        ("8 * 3 * 8 / 8 + 3 - 3", False),  # one number too often
        ("8 / (3 - 3) + 8", False),
        ("8 / (3 - 8 / 3) = 24", "not_an_expression"),
        ("", "no_expression"),
    ],
)
def test_an_answer_uses_every_number_once(text, outcome):
    assert solved(task_of("8 / (3 - 8 / 3)"), text) == outcome


def test_any_expression_that_fits_is_right():
    task = task_of("1 + 2 * 3 + 4")
    assert solved(task, "4 + 3 * 2 + 1") is True and solved(task, "(3 + 4) * 2 - 1") is False


def test_the_last_block_after_thinking_counts():
    task, kind = task_of("2 * 3 + 4"), Countdown()
    text = f"<think>{fence('expression', '1')}</think> so {fence('expression', '2')} or {fence('expression', '4+2*3')}"
    assert kind.judge([task], [kind.parse_answer(task, text)], nothing_runs) == [True]


def test_the_prompt_of_the_solver_does_not_order_the_numbers_as_the_solution_does():
    (message,) = Countdown().solve_prompt(task_of("50 * 2 - 30 + 7"))
    assert fence("numbers", "2 7 30 50") in message["content"] and fence("target", "77") in message["content"]
    assert "50 * 2" not in message["content"]


@pytest.mark.parametrize("family", FAMILY_SIZES)
def test_seeds_of_every_family_are_puzzles_of_its_size(family):
    kind = Countdown()
    tasks = kind.seeds(50, families=[family])
    assert {len(task.payload.numbers) for task in tasks} == {FAMILY_SIZES[family]}
    assert {task.author for task in tasks} == {f"seed:{family}"}
    assert all(propose(task.payload.solution) == task.payload for task in tasks)
    assert {operator for task in tasks for operator in "+-*/" if operator in task.payload.solution} == set("+-*/")


def test_seeds_keep_to_the_settings():
    kind = Countdown(min_numbers=3, max_numbers=4, largest_number=10, largest_target=50)
    puzzles = [task.payload for task in kind.seeds(100)]
    assert {len(puzzle.numbers) for puzzle in puzzles} == {3, 4}
    assert all(max(puzzle.numbers) <= 10 and puzzle.target <= 50 for puzzle in puzzles)
    with pytest.raises(ValueError, match="one of .*'three_numbers', 'four_numbers'"):
        kind.seeds(1, families=["six_numbers"])
    assert kind.simplest().payload.solution == "1 + 2 + 3"


def test_the_last_draw_may_complete_the_seed_tasks(monkeypatch):
    kind = Countdown()
    five = kind.seeds(5)  # all of the first draws differ
    monkeypatch.setattr("trl_populora.tasks.base.MAX_DRAWS", 1)
    assert kind.seeds(5) == five and kind.seeds(0) == []
    monkeypatch.setattr(Countdown, "generate", lambda self, rng, *, families=None: five[0])
    assert kind.seeds(5, fewer=True) == five[:1]
    with pytest.raises(ValueError, match="countdown: 5 different seed tasks asked for, 1 found; ask for fewer"):
        kind.seeds(5)


def test_every_reference_shown_is_a_solution_and_no_more_than_wanted():
    kind, rng = Countdown(num_references=2), random.Random(0)
    tasks = kind.seeds(5)
    (message,) = kind.propose_prompt(tasks, rng)
    shown = [task for task in tasks if fence("expression", task.payload.solution) in message["content"]]
    assert len(shown) == 2


def test_features_tell_hard_from_easy():
    kind = Countdown()
    easy, hard = kind.features(task_of("1 + 2")), kind.features(task_of("8 / (3 - 8 / 3)"))
    assert easy.space == hard.space == "countdown" and easy.point != hard.point
    assert easy.measures == {"numbers": 2, "depth": 1, "products": 0, "detours": 0}
    assert hard.measures == {"numbers": 4, "depth": 3, "products": 2, "detours": 2}


def test_answers_do_not_depend_on_how_they_are_batched():
    kind = Countdown()
    tasks = kind.seeds(6)
    answers = [kind.parse_answer(task, kind.solve_completion(task)) for task in tasks]
    pairs = list(itertools.product(tasks, answers))
    together = kind.judge([task for task, _ in pairs], [answer for _, answer in pairs], nothing_runs)
    assert together == [kind.judge([task], [answer], nothing_runs)[0] for task, answer in pairs]
    assert all(isinstance(answer, Answer) for answer in answers) and sum(together) >= 6
