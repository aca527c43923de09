"""Reading mathematical answers as text: what is found in a completion, what is a number, how lists are split."""

from fractions import Fraction

import pytest

from trl_populora.evaluation.graders.math_text import (
    find_answer,
    find_boxed,
    find_number,
    nesting,
    split,
    without_unit,
)
from trl_populora.tasks.math.written import MAX_ANSWER, read_number, tidy


@pytest.mark.parametrize(
    "completion, number",
    [
        ("2 + 3 = 5\n#### 5", "5"),
        ("#### 5\nNo, wait.\n#### 6", "6"),
        ("It is 5.\n####", "5"),
        ("It is 5.\n#### <number>", "5"),
        ("####\n7", "7"),
        ("#### $1,234.50 per day", "1234.50"),
        ("#### 1 000 eggs", "1000"),
        ("#### -5", "-5"),
        ("#### -$5", "-5"),
        ("#### -\\$1,250.50", "-1250.50"),
        ("It costs 10-$3", "3"),
        ("from $5 -$10", "10"),
        ("#### - $5", "-5"),
        ("#### -$ 5", "-5"),
        ("#### −5", "-5"),
        ("#### 20%", "20"),
        ("#### 18.", "18"),
        ("#### **18**", "18"),
        ("It is \\boxed{\\$7}, as 2 + 5 = 7, with 8 left.", "7"),
        ("#### nothing\n\\boxed{8} or 9", "8"),
        ("So 10-3 are left", "3"),
        ("She has 3 eggs, and 4.50 dollars.", "4.50"),
        ("5\n#### 3+4", None),
        ("#### 1, 2, 3, 4", None),
        ("\\boxed{1, 2, 3}", None),
        ("I do not know.", None),
        ("٣ apples", None),
        ("", None),
    ],
)
def test_the_final_number(completion, number):
    assert find_number(completion) == number


@pytest.mark.parametrize(
    "completion, answer",
    [
        (r"\boxed{5}", "5"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{1} or \boxed{2}", "2"),
        (r"\boxed {\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{}", None),
        (r"\boxed{ }", None),
        (r"\boxed{5} and \boxed{", None),
        (r"\boxed 5", "5"),
        (r"\boxed{5} as asked in \boxed{}.", "5"),
        (r"\boxed 5 or 6", None),
        ("5", None),
        ("", None),
    ],
)
def test_the_last_box(completion, answer):
    assert find_boxed(completion) == answer


@pytest.mark.parametrize(
    "text, value",
    [
        ("12", 12),
        ("+12", 12),
        ("-1,234.5", Fraction(-2469, 2)),
        (".5", Fraction(1, 2)),
        ("12.", 12),
        ("12/5", Fraction(12, 5)),
        ("-1./3", Fraction(-1, 3)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"\dfrac 34", Fraction(3, 4)),
        (r"\frac{270}7\text{ degrees}", Fraction(270, 7)),
        (r"-\frac{-3}{4}", Fraction(3, 4)),
        (r"1\frac{1}{2}", Fraction(3, 2)),
        ("2 1/2", Fraction(5, 2)),
        (r"-2\ 1/8", Fraction(-17, 8)),
        (r"2 \, 1/8", Fraction(17, 8)),
        (r"2~\frac{1}{8}", Fraction(17, 8)),
        ("2 100/300", Fraction(7, 3)),
        ("4.5e3", 4500),
        ("1E-3", Fraction(1, 1000)),
        (r"4.5 \times 10^{3}", 4500),
        (r"1.2\cdot10^{-3} \mathrm{~m} / \mathrm{s}", Fraction(12, 10_000)),
        ("10^6", 10**6),
        (r"90^\circ", 90),
        (r"90^{\circ}", 90),
        (r"15\mbox{ cm}^2", 15),
        ("3 cm^2", 3),
        (r"9.6 \AA", Fraction(96, 10)),
        (r"5.4 \text{ cents}", Fraction(54, 10)),
        (r"-1.2\overline{34}", Fraction(-1222, 990)),
        ("£1,234.50", Fraction(2469, 2)),
    ],
)
def test_numbers_are_read(text, value):
    number = read_number(tidy(text))
    assert number is not None and number.value == value and not number.percent


@pytest.mark.parametrize("text", ["50%", r"50\%", r"50 \%"])
def test_percent_signs_are_kept_in_mind(text):
    number = read_number(tidy(text))
    assert number is not None and number.value == 50 and number.percent


@pytest.mark.parametrize(
    "text",
    [
        *("", "3+4", "3 4", "3x", "2^3", "3!", "1,23", "3 or 4", r"3\text{ or }4", r"3\text{ or 4}", "x=3", "--3"),
        *(r"\frac{5}{0}", r"3\frac{5}{2}", r"3 \cdot 4", r"\frac{1}{2}3", "1e9999", "9" * 65, "1" + " " * MAX_ANSWER),
        *("٣", "½", "nan", "inf", "0x10", "1_000"),
    ],
)
def test_anything_else_is_no_number(text):
    assert read_number(text) is None


@pytest.mark.parametrize("unit", [r"^\circ ", r"^{\circ} ", r"\text{m} ^2 ", r"\ \, ", "m "])
def test_many_units_take_no_time(unit):
    """Degree signs with spaces between them were tried in 2^n ways, for hours."""
    assert read_number(f"5 {unit * 50}".rstrip()) is not None
    assert read_number(f"5 {unit * 50}!") is None


def test_tidy_drops_what_is_for_the_eye():
    assert tidy("$ \\displaystyle 10\\,080$.") == "10080"
    assert tidy("11,\\! 111,\\! 100") == "11111100"
    assert tidy("1 200/3") == "1200/3" and tidy("1 000 000/3") == "1000000/3" and tidy("10\\,080/7") == "10080/7"
    assert tidy("2 125/1000") == "2 125/1000" and tidy("2\\,125/1000") == "2\\,125/1000"  # mixed numbers
    for grouped in ("1{,}234/5678", "1,\\!234/5678", "1\\!234/5678"):
        assert tidy(grouped) == "1234/5678"
    assert tidy("1 234 567/1000000") == "1234567/1000000" and tidy("1 234/567 890") == "1234/567890"
    assert tidy("\\$32,348") == "32,348"
    assert tidy("np.arcsin(10/13)") == "\\arcsin(10/13)"
    assert tidy("E_{1}\n+ E_2") == "\\Xi_{1} + \\Xi_2"
    assert without_unit(tidy(r"20\sqrt{7}\text{ cm}^2")) == r"20\sqrt{7}"
    assert without_unit(r"\text{even}") == r"\text{even}"


@pytest.mark.parametrize(
    "text, answers",
    [
        ("1,3,5", ["1", "3", "5"]),
        (r"\{1, 3\}", ["1", "3"]),
        (r"\left\{1, 3\right\}", ["1", "3"]),
        (r"\{1\},\{2\}", [r"\{1\}", r"\{2\}"]),
        ("(1,2),[3,4)", ["(1,2)", "[3,4)"]),
        (r"1 \text{ or } 2; 3 and 4", ["1", "2", "3", "4"]),
        (r"1 \pm \sqrt{2}, 3", [r"1 + \sqrt{2}", r"1 - \sqrt{2}", "3"]),
        (r"f(x)=ax+b, where a is odd, and b not", ["f(x)=ax+b"]),
        (r"f(x)=ax+b, \text{where } a \text{ is odd}", ["f(x)=ax+b"]),
        (",,", []),
    ],
)
def test_lists_are_split(text, answers):
    assert split(text) == answers


def test_nesting():
    assert nesting("") == 0 and nesting("(a)[b]{c}") == 1 and nesting("((" + "{" * 5) == 7


@pytest.mark.parametrize(
    "completion, answer",
    [
        (r"The answer is 4, no: \boxed{5}", "5"),
        ("The answer is 5.", "5"),
        ("the final answer is: **$\\frac{1}{2}$**.", r"\frac{1}{2}"),
        ("**Answer:** 3.5 cm\nAnd so on.", "3.5 cm"),
        ("The answer is\n\\[x=2\\]", "x=2"),
        (r"The answer is \(1, 2\). Or not.", "1, 2"),
        ("The answer is $5$ or $6$.", "5, 6"),
        (r"The answer is \(x=1\), \(x=2\), and \(x=3\).", "x=1, x=2, x=3"),
        ("The answer is $5$, since $2+3=5$.", "5"),
        ("The answer is 12. But no, the answer is 13", "13"),
        ("The answer is 1.5. It is 2.", "1.5"),
        (r"The answer is 3, \boxed{}", "3, \\boxed{}"),
        (r"The answer is $\$18.90$.", r"\$18.90"),
        ("The answer is", None),
        ("The answer is $3", None),
        ("The answers: 5", None),
        ("It is 5.", None),
        ("", None),
    ],
)
def test_the_final_answer(completion, answer):
    assert find_answer(completion) == answer


@pytest.mark.parametrize(
    "text",
    [
        "answer is ",
        "answer *",
        "answer:*",
        "answer is a. ",
        "answer is $",
        "answer is $1$, ",
        "answer is $1$" + " " * 99,
    ],
)
def test_long_texts_of_answers_are_read(text):
    assert len(find_answer(text * 10_000) or "") < 1_000
