"""The rule of numbers: what a problem must state, what it need not, and what it must not."""

import ast
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.tasks.math.quantities import check_numbers, constants, gives_away, stated


def reason(problem, expression):
    refusal = check_numbers(problem, ast.parse(f"def f():\n    return {expression}"))
    return refusal and refusal.reason


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("He has 12 apples.", ["12"]),
        ("It costs $1,234.50.", ["1234.5"]),
        ("3/4 of 20, or ½ of them", ["3/4", "20", "1/2"]),
        ("2 1/2 hours", ["5/2"]),
        (r"\frac{3}{4} of it", ["3/4"]),
        ("He has twelve apples.", ["12"]),
        ("twenty-five and ninety nine", ["25", "99"]),
        ("three hundred and five", ["305"]),
        ("two thousand four hundred", ["2400"]),
        ("a hundred thousand", ["100000"]),
        ("one million and 3 million and 1.5 million", ["1000000", "3000000", "1500000"]),
        ("two dozen eggs, a dozen nuts", ["12"]),
        ("thrice, tripled", ["3"]),
        ("one apple, two pears, half a plum", []),
        ("Someone is often at the weight of stones.", []),
        ("at 10:30", ["10", "30"]),
        ("no number", []),
    ],
)
def test_what_a_text_writes(text, numbers):
    assert stated(text).written == {Fraction(number) for number in numbers}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("15%", ["0.15", "1.15", "0.85", "15"]),
        (r"15\%", ["0.15"]),
        ("15 percent of it", ["0.15"]),
        ("75 cents", ["0.75"]),
        ("3/4 of them", ["3", "4", "0.25"]),
        ("a third of them", ["3", "1/3", "2/3"]),
        ("three quarters of them", ["3/4", "1/4"]),
        ("two fifths of them", ["2/5", "3/5"]),
        ("half of them", ["1/2", "2"]),
        ("two and a half hours", ["5/2"]),
        ("one and three quarters of an hour", ["7/4", "3/4"]),
        ("seventy-five percent of it", ["0.75", "1.75", "0.25"]),
        ("fifty per cent", ["0.5"]),
        ("twenty cents", ["0.2"]),
        ("half a dozen eggs", ["6", "12"]),
    ],
)
def test_what_follows_from_a_text(text, numbers):
    assert {Fraction(number) for number in numbers} <= stated(text).known


@pytest.mark.parametrize("text, not_stated", [("5 hundred", 100), ("1.5 million people", 10**6), ("2 thousand", 1000)])
def test_a_scale_behind_digits_is_no_number_of_its_own(text, not_stated):
    assert not_stated not in stated(text).known


@pytest.mark.parametrize(
    ("problem", "expression"),
    [
        ("3 apples and 4 more", "3 + 4"),
        ("three apples and four more", "3 + 4"),
        ("15% off 80 dollars", "80 * 0.85"),
        ("15% off 80 dollars", "80 * (100 - 15) / 100"),
        ("3 hours in minutes", "3 * 60"),
        ("40 kilometers in 5 minutes", "40 / (5 / 60)"),
        ("a square with a side of 7", "4 * 7"),
        ("a right triangle with angles of 30 and 60 degrees", "180 - 30 - 60"),
        ("the sum of the numbers from 1 to 50", "sum(range(1, 51))"),
        ("scores of 70, 80 and 95", "(70 + 80 + 95) / 3"),
        ("Ann, Ben and Carla share 21 nuts", "21 / 3"),
        ("apples at 3 and pears at 4 dollars", '{"apples": 3, "pear": 4}["apples"]'),
        ("he pays 10 dollars", "round(10 / 2, 4)"),
        ("he pays 10 dollars", "10 ** 0.5"),
        ("he loses 5 of 20", "-5 + 20"),
        ("20 things", "20 if True else None"),
        ("a die is thrown 3 times", "6 ** 3"),
        ("5 million people", "5_000_000 / 2"),
        ("40 % of 25", "40 * .01 * 25"),
        ("from 10 p.m. to 6 a.m.", "24 - 10 + 6"),
        ("3 dollars for each finger", "3 * 10"),
        ("3 posts a day in March", "3 * 31"),
    ],
)
def test_fair_problems(problem, expression):
    assert reason(problem, expression) is None


@pytest.mark.parametrize(
    ("problem", "expression", "why"),
    [
        ("3 apples and some more", "3 + 4", "number_not_in_problem"),
        ("3 apples and 40 more", "3 + 4", "number_not_in_problem"),
        ("3 apples", "3 + 0x25", "number_not_in_problem"),
        ("3 apples", "3 * 2.75", "number_not_in_problem"),
        ("3 apples", "3 + 37j.imag", "number_not_in_problem"),
        ("3 apples", "3 + 1e999", "number_not_in_problem"),
        ("3 apples", f"3 + {'9' * 2000}", "number_not_in_problem"),
        ("3 apples", f"3 + 0x{'f' * 4000}", "number_not_in_problem"),
        ("3 apples", "3 * 60", "number_not_in_problem"),
        ("3 apples", "3 * 100", "number_not_in_problem"),
        ("3 apples", "3 * .01", "number_not_in_problem"),
        ("one and 4 more", "4 * 1.75", "number_not_in_problem"),
        ("fifty and percentages of 4", "4 * .5 + 0.75", "number_not_in_problem"),
        ("3 apples", "3 + range(1000)[37]", "number_not_in_problem"),
        ("3 apples", '3 + int("37")', "number_not_in_problem"),
        ("3 apples", '3 + len("xxxxxxx")', "text_not_in_problem"),
        ("3 apples", '3 + len(f"{3}xxxxxxx")', "text_not_in_problem"),
        ("3 apples", '3 + b"7"[0]', "number_not_in_problem"),
        ("3 apples", '3 + ord("%")', "text_not_in_problem"),
        ("I'm at home with 3 apples", "3 * 1000", "number_not_in_problem"),
        ("some apples", "1 + 2", "no_numbers"),
        ("3 apples", "2 ** 2", "no_numbers"),
        ("", "1", "no_numbers"),
    ],
)
def test_unfair_problems(problem, expression, why):
    assert reason(problem, expression) == why


@pytest.mark.parametrize(
    ("problem", "expression", "answer", "given"),
    [
        ("3 apples and 4 more. How many?", "3 + 4", "7", False),
        ("3 apples and 4 more make 7. How many?", "3 + 4", "7", True),
        ("3 apples and 4 more make seven. How many?", "3 + 4", "7", True),
        ("10 apples, 5 are eaten. How many?", "10 - 5", "5", False),  # the program needs the 5
        ("3 apples and one is eaten. Two of them?", "3 - 1", "2", False),  # small words say nothing
        ("-7 is what? 3 and 4", "-3 - 4", "-7", True),
        ("3/4 of 1 is 0.75", "3 / 4", "0.75", True),
    ],
)
def test_problems_that_state_their_answer(problem, expression, answer, given):
    assert gives_away(problem, ast.parse(expression), Fraction(answer)) is given


def test_constants_are_exact():
    tree = ast.parse("x = [0.1, -3, 1_000, 0x10, 1e-7, True, None, 'a', b'b', 2j, 1e999]")
    assert constants(tree) == {Fraction(text) for text in ("0.1", "3", "1000", "16", "1e-7")}


@given(st.integers(0, 10**9))
def test_digits_come_back(number):
    assert stated(f"He has {number} of them.").written == {Fraction(number)}
    assert stated(f"He has {number:,} of them.").written == {Fraction(number)}


UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
UNITS += ["seventeen", "eighteen", "nineteen"]
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()


def spelled(number):
    """A number below a billion in words."""
    for size, name in ((10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            more = f" and {spelled(number % size)}" if 0 < number % size < 100 else ""
            more = more or (f" {spelled(number % size)}" if number % size else "")
            return f"{spelled(number // size)} {name}{more}"
    if number < 20:
        return UNITS[number]
    return TENS[number // 10] + (f"-{UNITS[number % 10]}" if number % 10 else "")


@given(st.integers(3, 10**9 - 1))
def test_words_come_back(number):
    assert stated(f"He has {spelled(number)} of them.").written == {Fraction(number)}


@given(st.text(max_size=300))
def test_any_text_is_read(text):
    numbers = stated(text)
    assert numbers.written <= numbers.known


@pytest.mark.parametrize(
    "piece", ["1 ", "1,", "1/", "9", "1/2 ", "two ", "hundred ", "million ", "and ", ", and ", "a-", "\\frac{"]
)
def test_long_texts_are_read(piece):
    assert stated(piece * (2048 // len(piece))) is not None
