"""Right answers, boxes and the judge: what equals what, and that hostile text decides nothing."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from math_verify import parse, verify

from trl_populora.executor import Execution, Job, Status, Value, canonical
from trl_populora.tasks import Refusal, is_spared
from trl_populora.tasks.math import answers
from trl_populora.tasks.math.answers import LIMITS, MODULE, answer_text, compare_plain, judge_pairs, last_box


def nothing_runs(jobs):
    raise AssertionError(f"{len(jobs)} jobs for plain numbers")


# Right answer, what a student writes, whether it is right. math-verify is asked about each of these directly, too.
AGREED = [
    ("12", "12", True),
    ("12", "12.0", True),
    ("12", "12.00", True),
    ("12", "+12", True),
    ("12", "012", True),
    ("12", "13", False),
    ("12", "-12", False),
    ("12", "1.2", False),
    ("12", "120", False),
    ("12", "12.5", False),
    ("12", "12.000001", False),
    ("12", "$12$", True),
    ("12", r"\$12", True),
    ("12", r"\$12.00", True),
    ("12", r"12\text{ apples}", True),
    ("12", r"12\text{ cm}^2", True),
    ("12", r"12\ \mathrm{km}", True),
    ("12", "12 cm", True),
    ("12", r"13\text{ cm}", False),
    ("12", "x = 12", True),
    ("12", "x=13", False),
    ("12", "5+7=12", True),
    ("12", "12=5+6+1=13", False),
    ("3/4", r"\frac{3}{4}=0.75", True),
    ("3/4", r"x=0.75=\frac{3}{4}", True),
    ("3/4", r"\frac{3}{4}=0.75=75\%", True),
    ("1000", "1000=10^3", True),
    ("12", r"\{12\}", True),
    ("12", "(12)", True),
    ("12", r"\left(12\right)", True),
    ("12", "12, 13", False),
    ("12", "12 or 13", False),
    ("12", r"12 \text{ or } 13", False),
    ("12", "12;13", False),
    ("12", r"\{12, 13\}", False),
    ("12", r"\pm 12", False),
    ("12", "[0, 20]", False),
    ("12", "x < 13", False),
    ("12", "x", False),
    ("12", r"\text{twelve}", False),
    ("12", r"\mathbf{12}", True),
    ("12", r"\text{12}", True),
    ("12", r"12^{\circ}", True),
    ("12", r"12\%", True),
    ("12", r"\infty", False),
    ("12", r"\frac{12}{0}", False),
    ("12", r"\frac{24}{2}", True),
    ("12", "24/2", True),
    ("12", "24/3", False),
    ("-12", "-12", True),
    ("-12", "12", False),
    ("-12", "−12", True),
    ("-12", r"-\frac{24}{2}", True),
    ("-12", r"-12\text{ degrees}", True),
    ("0", "0", True),
    ("0", "-0", True),
    ("0", "0.000001", False),
    ("0", r"0\%", True),
    ("1/2", "1/2", True),
    ("1/2", "0.5", True),
    ("1/2", ".5", True),
    ("1/2", r"\frac12", True),
    ("1/2", r"\frac{1}{2}", True),
    ("1/2", r"\dfrac{1}{2}", True),
    ("1/2", r"\tfrac{2}{4}", True),
    ("1/2", r"\frac{3}{6}", True),
    ("1/2", r"50\%", True),
    ("1/2", "50%", True),
    ("1/2", "0,5", False),
    ("1/2", "2/1", False),
    ("1/2", "0.49", False),
    ("1/2", r"\frac{1}{3}", False),
    ("-1/2", r"\frac{-1}{2}", True),
    ("-1/2", r"-\frac{1}{2}", True),
    ("-1/2", r"\frac{1}{-2}", True),
    ("-1/2", r"\frac{1}{2}", False),
    ("1/3", r"\frac{1}{3}", True),
    ("1/3", "0.333333", True),
    ("1/3", "0.33333", False),
    ("1/3", "0.33", False),
    ("3/2", r"1\frac{1}{2}", True),
    ("3/2", r"1\frac12", True),
    ("3/2", r"\frac{3}{2}\text{ hours}", True),
    ("3/2", "1.5", True),
    ("3/2", r"1\frac{1}{3}", False),
    ("12/5", "2.4", True),
    ("12/5", r"2\frac{2}{5}", True),
    ("0.25", "0.25", True),
    ("0.25", "0.250", True),
    ("0.25", r"\frac14", True),
    ("0.25", r"25\%", True),
    ("0.25", "0.2500001", True),
    ("0.25", "0.251", False),
    ("12.5", r"\$12.50", True),
    ("12.5", r"\frac{25}{2}", True),
    ("1000", "1,000", True),
    ("1000", "1{,}000", True),
    ("1000", r"1.0\times10^3", True),
    ("1000", r"10^{3}", True),
    ("1000", "10,00", False),
    ("1000", "1,001", False),
    ("1234567", "1,234,567", True),
    ("1200", r"1.2\times 10^{3}", True),
    ("1200", r"1.2\cdot10^3", True),
    ("1200", r"12\times10^{2}", True),
    ("1200", r"1.2\times10^4", False),
    ("0.0012", r"1.2\times10^{-3}", True),
    ("7", r"\boxed{7}", True),
    ("7", "x=7", True),
    ("7", r"7\text{ north}", True),
    ("7", "I do not know", False),
    ("7", r"\frac{7}{", False),
    ("7", r"\sqrt{2}", False),
    ("7", "7x", False),
    ("7", r"\pi", False),
    ("7", r"\textbf{7}", True),
    ("7", r"\pounds 7", True),
    ("-3/4", r"-75\%", True),
]
# Where this judge differs from math-verify: right answer, text, and what is said here.
DIFFERENT = [
    ("12", "5+7", False),  # not worked out
    ("12", r"3\times4", False),
    ("12", r"3\cdot 2^2", False),
    ("12", r"\sqrt{144}", False),
    ("12", "|-12|", False),
    ("6", "3!", False),
    ("6", r"\sum_{i=1}^{3} i", False),
    ("107", r"90\ 17", False),  # it adds numbers that stand side by side
    ("7", "4{3}", False),
    ("7", "(4)(3)", False),
    ("7", r"4\phantom{0}3", False),
    ("7", r"4^\circ 3", False),
    ("7", r"4\frac{6}{2}", False),
    ("35", r"\binom{7}{3}", False),
    ("12.5", r"12.5\%", True),  # math-verify takes 12% for 12, and 12.5% for 0.125 only
    ("1000", "1 000", True),  # it takes these for products with zero
    ("1000", r"1\,000", True),
    ("1000000", r"1\,000\,000", True),
    ("12", "12.", True),
    ("7", "8=7", False),  # not equal
    ("3/4", r"\frac{3}{5}=0.75", False),
    ("7", "[7,7]", False),
    ("7", r"\left[ 7, 7\right]", False),
    ("7", r"7~\text{hours}", True),
    ("7", r"\text{7 hours}", True),
    ("7", "£7", True),
    ("7", "7€", True),
    ("7", "7 pens", True),
    ("7", "7 Boys", True),
    ("7", "7 years old", True),
    ("7", "7 dollars per hour", True),
    ("7", "7 books.", True),
    ("0.15", r"15\,\%", True),
    ("15/2", "7 1/2", True),
    ("15/2", r"\text{7.5}", True),
    ("1/3", r"33\frac{1}{3}\%", True),
    ("1/3", r"0.\overline{3}", True),
    ("7/12", r"0.58\bar3", True),
    ("1/3", r"33.\overline{3}\%", True),
    ("7", r"7\text{, or maybe eight}", False),
    ("7", r"7\text{ not }", False),
    ("0.07", r"7\text{ per cent}", True),
    ("7", "¥7", True),
    ("7", "7 cm²", True),
    ("7", "7 oz", True),
    *(("2", text, False) for text in (r"2\text{ hours }30\text{ minutes}", r"2\text{ h and }30\text{ min}")),
    *(("5", text, False) for text in (r"5\text{ feet }11\text{ inches}", r"5\text{ A}+3\text{ B}")),
    *(("5", text, False) for text in (r"5\text{ A}+3\text{ B}=8\text{ C}", r"5\text{ A}^1+3\text{ B}")),
    *(
        ("5", rf"5\text{{ {word}}}", False)
        for word in ("million", "dozen", "hundred", "hundredths", "factorial", "tenths", "and a half")
    ),
    ("7", "7_8", False),
    ("7", "7_{8}", False),
]
# As math-verify says, with units and names that are written in other ways.
AGREED += [
    *(("7", text, True) for text in ("7_{10}", "7_10", "7 h", "7 hr", "7 min", "7 ft", "7 lb", "7 mph")),
    *(
        ("7", text, True)
        for text in (r"7\text{ months}", r"7\text{ m}^2\text{ of cloth}", r"x_1 = 7", r"7\text{ seven}")
    ),
    *(("7", text, True) for text in (r"7\text{ meters squared}", r"7\text{ quarters}", r"7\text{ teenagers}")),
    ("12", r"5\text{ A}+7\text{ B}=12", True),
    ("50", r"50\text{ percent}", True),
]


# What is no number, or another one: words that change it, a choice, work that is left, variables.
NO_NUMBERS = [
    *(("7", f"7 {words}") for words in ("dozen", "hundred", "millions", "halves", "twelfths", "plus two")),
    *(("7", f"7 {words}") for words in ("or eight", "and a half", "not", "maybe", "x", "xy", "pi", "pens or so")),
    *(("7", rf"\text{{{text}}}") for text in ("7 or 8", "7 dozen", "7 hours 30 minutes", "3+4", "7, maybe", "seven")),
    *(("7", text) for text in ("£7 €8", "£7 + 0", "7 pens 8", r"\text{7} 8", r"\text{7}+0", "7 " + "pens " * 4)),
    *(("1/3", text) for text in (r"0.\overline{33}4", r"0.3\overline{4}", r"\overline{3}", r"1.\overline{3}")),
    *(("15/2", text) for text in ("7 3/2", "-7 1/2", "7 1/2 1/2", r"7 \cdot 1/2", "71/2", "7/2")),
    *(("0.15", text) for text in (r"15\%\%", r"-15\%", r"1\,5\%", r"15\,\% + 0")),
]


@pytest.mark.slow
def test_what_is_no_number_or_another_one(run):
    verdicts = judge_pairs(NO_NUMBERS, run)
    assert [pair for pair, verdict in zip(NO_NUMBERS, verdicts, strict=True) if verdict is not False] == []


@pytest.mark.slow
def test_agreement_with_math_verify(run):
    assert len(AGREED) > 100
    here = judge_pairs([(right, text) for right, text, _ in AGREED], run)
    there = [verify(parse(f"${right}$"), parse(f"$\\boxed{{{text}}}$")) for right, text, _ in AGREED]
    wanted = [right for _, _, right in AGREED]
    rows = list(zip(AGREED, here, there, wanted, strict=True))
    assert [row for row, mine, theirs, right in rows if not mine == theirs == right] == []


@pytest.mark.slow
def test_where_the_judge_is_another_than_math_verify(run):
    here = judge_pairs([(right, text) for right, text, _ in DIFFERENT], run)
    there = [verify(parse(f"${right}$"), parse(f"$\\boxed{{{text}}}$")) for right, text, _ in DIFFERENT]
    assert here == [right for _, _, right in DIFFERENT] == [not theirs for theirs in there]


@given(
    st.integers(-(10**12) + 1, 10**12 - 1), st.sampled_from(["{}", "{}.0", "{}.00", "{:,}", " {} ", "${}$", "{:+}"])
)
def test_integers_come_back(value, form):
    text = answer_text(value)
    assert judge_pairs([(text, form.format(value))], nothing_runs) == [True]
    assert judge_pairs([(text, form.format(value + 1))], nothing_runs) == [False]


@given(st.integers(-(10**8), 10**8), st.integers(0, 4))
def test_decimals_come_back(value, decimals):
    number = value / 10**decimals
    text = answer_text(number)
    assert Fraction(text) == Fraction(value, 10**decimals)
    assert judge_pairs([(text, f"{number:.4f}"), (text, f"{number + 0.001:.4f}")], nothing_runs) == [True, False]


def test_fractions_come_back(run):
    rng, pairs = random.Random(0), []
    for _ in range(100):
        value = Fraction(rng.randint(-5000, 5000) or 1, rng.randint(2, 1000))
        text, sign = answer_text(("Fraction", value.numerator, value.denominator)), "-" if value < 0 else ""
        assert Fraction(text) == value
        top, under = abs(value.numerator), value.denominator
        pairs += [(text, f"{sign}\\frac{{{top}}}{{{under}}}"), (text, f"{sign}{2 * top}/{2 * under}")]
        pairs += [(text, f"{sign}\\frac{{{top + 1}}}{{{under}}}"), (text, f"{sign}{top + 1}/{under + 1}")]
    wanted = [
        Fraction(text.replace("\\frac{", "").replace("}{", "/").rstrip("}")) == Fraction(right)
        for right, text in pairs
    ]
    assert judge_pairs(pairs, run) == wanted and sum(wanted) >= 200 and not all(wanted)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-7, "-7"),
        (0.1 + 0.2, "0.3"),
        (-0.0, "0"),
        (12.0, "12"),
        (12.5 * 0.07, "0.875"),
        (99999.9999, "99999.9999"),
        (19.99 * 3, "59.97"),
        (("Fraction", 6, 8), "3/4"),
        (("Fraction", -6, 2), "-3"),
        (10**12 - 1, "999999999999"),
    ],
)
def test_values_that_are_answers(value, text):
    assert answer_text(value) == text


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        "7",
        [7],
        (7,),
        {},
        1 / 3,
        0.00001,
        2**0.5,
        1e-5,
        float("nan"),
        float("inf"),
        1e9 + 0.5,
        10**12,
        10**999,
    ]
    + [("Fraction", 1, 0), ("Fraction", 1, -2), ("Fraction", 1, 1001), ("Fraction", 10**12, 7), ("Fraction", 1.0, 2)]
    + [("Fraction", True, 2), ("Fraction", 1), (1, 2, 3), 2j, b"7"],
)
def test_values_that_are_none(value):
    refusal = answer_text(value)
    assert isinstance(refusal, Refusal) and refusal.reason == "not_a_number"


def test_a_float_that_is_too_large_is_told_so():
    assert answer_text(262_500_000.0) == Refusal("not_a_number", "a float above 100,000,000, or not finite")


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"so \boxed{7}", "7"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}} is it", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{\{7\}}", r"\{7\}"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{}", ""),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed{7} as asked in \boxed{}.", "7"),
        (r"\boxed{7}, in the form `\boxed{ }`", "7"),
        (r"Write it in \boxed{}.", ""),
        (r"\boxed{7} + 1 = \boxed{}", ""),
        (r"\boxed 7", "7"),
        ("It is \\boxed -7.5\nSo it is.", "-7.5"),
        (r"\boxed{1}, no, $\boxed 1,200$.", "1,200"),
        (r"\boxed 7 or 8", None),
        (r"\boxed 7/8", None),
        (r"$\boxed 7 + 1$", None),
        (r"\boxed x", None),
        (r"\boxed{7\}", None),
        ("7", None),
        ("", None),
    ],
)
def test_the_last_box(text, inside):
    assert last_box(text) == inside


@given(st.text(alphabet="{}\\boxed7 ", max_size=40))
def test_boxes_of_any_text(text):
    inside = last_box(text + "\\boxed{" + text.replace("\\", "").replace("{", "").replace("}", "") + "}")
    assert inside == text.replace("\\", "").replace("{", "").replace("}", "").strip()
    last_box(text)


@pytest.mark.slow
@given(st.text(max_size=60))
def test_plain_numbers_of_any_text(text):
    assert compare_plain("12.5", text) in (True, False, None)


LONG = 100_000
HOSTILE = {
    "fractions": r"\frac{1}{" * 10_000 + "2" + "}" * 10_000,
    "fractions above": r"\frac{" * 40 + "1" + "}{2}" * 40,
    "fewer fractions": r"\frac{" * 5 + "1" + "}{2}" * 5,
    "a tower": "10^{10^{10}}",
    "a tower of fives": "5^{5^{5^{5^5}}}",
    "a tower in a box of another": r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}",
    "a power of ten": "10^{999999999}",
    "a factorial": "(10^9)!",
    "a sum": r"\sum_{n=1}^{10^{12}} \frac{\sin n}{n^n}",
    "an integral": r"\int_0^1 \sin(\sin(x^{x^{x}})) dx",
    "a matrix": r"\begin{pmatrix}" + "1 & " * 20_000 + r"1 \end{pmatrix}",
    "braces": "{" * 50_000 + "7" + "}" * 50_000,
    "brackets": "(" * 50_000 + "7" + ")" * 50_000,
    "left and right": r"\left(" * 5000 + "7" + r"\right)" * 5000,
    "digits": "7" * LONG,
    "decimals": "7." + "0" * LONG + "1",
    "groups": "7" + ",777" * 25_000,
    "sum": "1+" * 50_000 + "1",
    "backslashes": "\\" * LONG,
    "spaces": "7" + " " * LONG + "x",
    "null bytes": "\0" * LONG,
    "surrogates": "\ud800" * 1000,
    "dollars": "$" * LONG,
    "two formulas": r"8$ $7",
    "a formula that ends": r"8$ the final answer is $7$ I hope",
    "another formula": r"7 final answer is \(8\) I hope",
    "call": "__import__('os')._exit(0)",
    "call in text": r"\text{__import__('os').write(3, b'v')}",
    "names": r"().__class__.__base__.__subclasses__()",
    "lambda": "(lambda: 7)()",
    "python": "7 if True else 8",
    "nan": "nan",
    "zoo": r"\frac{7}{0}",
    "over a megabyte": "7 + " * 300_000,
}


@pytest.mark.slow
def test_no_hostile_answer_is_right_or_spoils_another(run):
    pairs = [
        pair for text in HOSTILE.values() for pair in (("7", text), ("7/2", r"\frac{7}{2}"), ("7/2", r"\frac{8}{2}"))
    ]
    pairs += [("7/2", rf"\frac{{{7 * n}}}{{{2 * n}}}") for n in range(1, 30)]
    verdicts = judge_pairs(pairs, run)
    hostile = dict(zip(HOSTILE, verdicts[: 3 * len(HOSTILE) : 3], strict=True))
    assert {name: verdict for name, verdict in hostile.items() if verdict is not False} == {}
    honest = verdicts[1 : 3 * len(HOSTILE) : 3] + verdicts[3 * len(HOSTILE) :]
    assert set(honest) == {True} and set(verdicts[2 : 3 * len(HOSTILE) : 3]) == {False}


def test_nests_of_brackets_are_no_numbers():
    texts = [r"\frac{" * 11 + "1" + "}{2}" * 11, "{" * 11 + "7" + "}" * 11, "([{" * 4 + "7" + "}])" * 4]
    assert judge_pairs([("7", text) for text in texts], nothing_runs) == [False] * 3


def test_equal_answers_run_once_and_plain_ones_not_at_all():
    jobs = []

    def count(some):
        jobs.extend(some)
        return [Execution(Status.INFRA_ERROR, (), 0.0, 0)] * len(some)

    verdicts = judge_pairs([("1/2", r"(\frac12)"), ("1/2", "0.5"), ("1/2", r"$(\frac12)$"), ("1/2", "3")], count)
    assert [len(job.inputs) for job in jobs] == [1] and jobs[0].modules == (MODULE,) and jobs[0].limits == LIMITS
    assert verdicts[1] is True and verdicts[3] is False and is_spared(verdicts[0]) and is_spared(verdicts[2])


@pytest.mark.slow
def test_a_batch_that_went_wrong_is_judged_again_one_by_one(run, monkeypatch):
    """The first answer dies at the limit of time, and takes the batch with it."""
    monkeypatch.setattr(answers, "BATCH", 8)
    sizes = []

    def watched(jobs: list[Job]) -> list[Execution]:
        sizes.append([len(job.inputs) for job in jobs])
        return run(jobs)

    pairs = [("1/2", HOSTILE["sum"])]
    pairs += [("1/2", rf"(\frac{{{n}}}{{{2 * n + n % 2}}})") for n in range(1, 14)]
    verdicts = judge_pairs(pairs, watched)
    assert verdicts == [False, *(n % 2 == 0 for n in range(1, 14))]
    assert sizes == [[8, 6], [1] * 8]


def test_a_batch_in_which_memory_ran_short_says_nothing():
    """math-verify takes a lack of memory for a wrong answer."""

    def run(jobs):
        wrong, right = (Value(Status.OK, canonical.encode(value)) for value in (False, True))
        batch = Execution(Status.OK, (wrong, wrong), 0.1, (LIMITS.memory_mb << 20) - 1)
        return [Execution(Status.OK, (right,), 0.1, 1 << 20) if len(job.inputs) == 1 else batch for job in jobs]

    assert judge_pairs([("1/2", r"x=\frac12"), ("1/2", r"x=\frac24")], run) == [True, True]
