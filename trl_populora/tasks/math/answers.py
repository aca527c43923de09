"""Answers of word problems: reads them from a program's value or from a box, and compares them.

A number as people write it (`written.py`) is compared here. Any other answer is hostile text for math-verify, so it
is compared in the sandbox (`harness.py`), under limits of time and memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from trl_populora.executor import Execution, Job, Limits, Status
from trl_populora.tasks.base import Run, refused_by
from trl_populora.tasks.math.written import DECIMAL, read_answer, tidy
from trl_populora.tasks.task import Refusal


MODULE = "trl_populora.tasks.math.harness"
JUDGE = f"from {MODULE} import judge as f"
Item = TypeVar("Item")
Result = TypeVar("Result")
BATCH = 64  # answers judged in one job
LIMITS = Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=512)  # of a job; an answer takes a few milliseconds

MAX_DIGITS = 12  # of an integer, a numerator
MAX_DENOMINATOR = 1_000
MAX_DECIMALS = 4  # math-verify rounds decimals to six
MAX_FLOAT = 10**8
MAX_BRACKETS = 10  # opened in an answer: math-verify's parser takes exponential time in their depth

BOX = "\\boxed"
_BOX = re.compile(
    r"(?P<mention>(?:(?<=[A-Za-z] )|(?<=[A-Za-z] [`$]))\\boxed\s*\{\s*\})"
    rf"|\\boxed\s*(?:(?P<bare>[+-]?{DECIMAL})(?=\s*(?:\\[)\]]|\$)|,?\s*(?:\n|\Z)))?"
)
_ONE = r"\s*(?:\{\s*(-?[0-9][0-9,]*(?:\.[0-9]+)?)\s*\}|([0-9]))"
_FRACTION = re.compile(r"\\[dtc]?frac" + _ONE + _ONE)
_OPERATOR = re.compile(r"[-+/=:<>,.*]|\^(?!\s*\{?\s*\\circ)|\\(?:times|cdot|div|over|approx|pm)(?![a-z])")
_EQUAL = re.compile(r"=|\\approx(?![a-z])")
_RESULT = re.compile(r"=\s*[-+]?[0-9PQ.,]+\s*\Z")  # `5\text{ A}+7\text{ B}=12`
_ANY_TEXT = re.compile(r"\\(?:text[a-z]*|mathrm|mbox|operatorname)(?![a-z])")
_IGNORED = re.compile(r"_(?:10|\{10\})(?![0-9])|(?<=[A-Za-z}])\s*\^\s*(?:-?[0-9]|\{-?[0-9]\})")  # base 10; of a unit
_TAKEN_BACK = "or|not|nor|maybe|perhaps|either|except"
_CHANGED = (
    "(?:hundred|thousand|(?:m|b|tr)illion)(?:s|ths?)?|dozens?|(?:ten|fif|six|seven|eigh|nin|twelf|twentie)ths|tens|"
    "thirds|factorial|and a half|plus|minus"
)
DOUBT = re.compile(
    r"\\(?:text[a-z]*|mathrm|mbox|operatorname)\s*\{"
    rf"(?:[^{{}}]*\b(?:{_TAKEN_BACK}|{_CHANGED})\b|\s*(?:squared|cubed)\b)",
    re.IGNORECASE,
)
"""Words in `\\text{...}` that take an answer back, or make it another number. math-verify does not read them."""
_RANGE = re.compile(r"\s*(?:\\left)?\s*\[.*,")  # math-verify takes [7,7] for 7


def answer_text(value: object) -> str | Refusal:
    """
    The right answer as text, from what a program returned.

    Args:
        value (`object`): A plain value; a fraction as `("Fraction", numerator, denominator)`.

    Returns:
        `str`: Such as `"12"`, `"-0.25"` or `"3/4"`. A float that differs by rounding only from a number with at most
        four digits after its point becomes that number: 0.1 + 0.2 becomes 0.3. Another float, such as 1 / 3, is
        refused.
    """
    if type(value) is tuple and len(value) == 3 and value[0] == "Fraction":
        if not (type(value[1]) is type(value[2]) is int and 0 < value[2] <= MAX_DENOMINATOR):
            return Refusal("not_a_number", f"a denominator is at most {MAX_DENOMINATOR}")
        exact = Fraction(value[1], value[2])
    elif type(value) is int:
        exact = Fraction(value)
    elif type(value) is float and abs(value) <= MAX_FLOAT:  # not nan
        exact = Fraction(f"{value:.{MAX_DECIMALS}f}")
        if abs(Fraction(value) - exact) > Fraction(max(1.0, abs(value))) / 10**13:
            return Refusal("not_a_number", f"a float has at most {MAX_DECIMALS} digits after its point")
        if exact.denominator > 1:
            return f"{value:.{MAX_DECIMALS}f}".rstrip("0")
    elif type(value) is float:
        return Refusal("not_a_number", f"a float above {MAX_FLOAT:,}, or not finite")
    else:
        return Refusal("not_a_number", f"a value of type {type(value).__name__}")
    if abs(exact.numerator) >= 10**MAX_DIGITS:
        return Refusal("not_a_number", f"more than {MAX_DIGITS} digits")
    return str(exact)


def last_box(text: str) -> str | None:
    """
    The content of the last `\\boxed{...}` of a text, or `None`. Braces inside may be nested. Takes linear time.

    An empty box behind a word is passed over: "as asked in \\boxed{}". A box may hold a number without braces if the
    formula or the line ends there: `$\\boxed 7$`.
    """
    boxes = list(_BOX.finditer(text))
    box = next((one for one in reversed(boxes) if one["mention"] is None), None)
    if box is None or box["bare"]:
        return box["bare"] if box else "" if boxes else None
    rest = text[box.end() :]
    if not rest.startswith("{"):
        return None
    depth, place = 0, 0
    while place < len(rest):
        sign = rest[place]
        depth += (sign == "{") - (sign == "}")
        if not depth:
            return rest[1:place].strip()
        place += 2 if sign == "\\" else 1
    return None


def compare_plain(right: str, answer: str) -> bool | None:
    """The verdict on an answer that needs no math-verify; `None` for any other answer.

    A written number ([`read_answer`]) is compared exactly; for a percentage, the number before the sign is right, too.
    An answer with too many brackets is wrong, and so are a range, a sum that is not worked out, and an answer with
    words that take it back (`7\\text{ or 8}`) or make it another number (`7\\text{ dozen}`). A number whose distance
    from the right one is below 10^-6 goes to math-verify, which rounds.
    """
    if sum(map(answer.count, "([{")) > MAX_BRACKETS or DOUBT.search(answer) or _RANGE.match(answer):
        return False
    given = read_answer(answer)
    if given is None:
        return False if _hides_work(answer) else None
    exact, readings = Fraction(right), (given.value, given.value / 100 if given.percent else given.value)
    if exact in readings:
        return True
    return None if any(abs(exact - one) <= Fraction(1, 10**6) for one in readings) else False


def _hides_work(answer: str) -> bool:
    """Whether an answer leaves work to math-verify: numbers side by side, or a binomial.

    math-verify adds numbers that stand side by side, as in `1\\frac{1}{2}`. So it would read `90\\ 17` as 107 and
    `4{3}` as 7. Only a whole number with a proper fraction after it is allowed. math-verify also works out binomials,
    and leaves out text, a number behind it (`2\\text{ hours }30\\text{ minutes}`) and the base of a number (`7_8`).
    """
    text = _FRACTION.sub(_proper, re.sub(r"\\[,;:! ]", " ", _IGNORED.sub("", answer)))
    pairs = re.findall(r"([0-9PQ])([^0-9PQ]*)(?=([0-9PQ]))", text)
    beside = any(
        not (after == "P" and before.isdigit() or not gap and (before + after).isdigit() or _OPERATOR.search(gap))
        for before, gap, after in pairs
    )
    words = any(_ANY_TEXT.search(gap) and not _EQUAL.search(gap) for _, gap, _ in pairs)
    return "binom" in text or beside or words and not _RESULT.search(text)


def _proper(match: re.Match[str]) -> str:
    """`P` for a fraction below one, `Q` for any other."""
    top, under = (match[a] or match[b] for a, b in ((1, 2), (3, 4)))
    return "P" if float(top.replace(",", "")) < float(under.replace(",", "")) else "Q"


def judge_pairs(pairs: Sequence[tuple[str, str]], run: Run) -> list[bool | Refusal]:
    """
    Verdicts on answers. Written numbers are compared here, exactly. Others go to the sandbox; equal ones once.

    The answers of a batch share a process ([`in_batches`]). If an answer alone exceeds a limit of time or memory, it
    is wrong.

    Args:
        pairs (`Sequence[tuple[str, str]]`): Right answer, as `answer_text` writes it, and the text to judge.
        run (`Run`): The sandbox.

    Returns:
        `list[bool | Refusal]`: In the order of `pairs`; a refusal where the executor failed.
    """
    clean = [(right, tidy(answer)) for right, answer in pairs]
    verdicts: dict[tuple[str, str], bool | Refusal] = {}
    for pair in dict.fromkeys(clean):
        verdict = compare_plain(*pair)
        if verdict is not None:
            verdicts[pair] = verdict
    left = [pair for pair in dict.fromkeys(clean) if pair not in verdicts]
    verdicts |= in_batches(left, run, _job, _read, batch=BATCH, limits=LIMITS)
    return [verdicts[pair] for pair in clean]


def in_batches(
    items: Sequence[Item],
    run: Run,
    job: Callable[[Sequence[Item]], Job],
    read: Callable[[Execution, int], Result],
    *,
    batch: int,
    limits: Limits,
) -> dict[Item, Result]:
    """
    What executions say of items that share a process. If anything goes wrong in it, or it needs half of its memory,
    nothing in it counts, and each of its items runs again, alone.

    Args:
        items (`Sequence`): Items, each once.
        run (`Run`): The sandbox.
        job (`Callable`): Items -> the job that has one input for each.
        read (`Callable`): An execution, and the place of an item in it -> the result. An execution of several items
            has the status `OK`.
        batch (`int`): Items in one job. limits ([`Limits`]): Those of each job.
    """
    known: dict[Item, Result] = {}
    for size in (batch, 1):
        left = [item for item in items if item not in known]
        parts = [left[place : place + size] for place in range(0, len(left), size)]
        for part, execution in zip(parts, run([job(part) for part in parts]) if parts else (), strict=True):
            sound = execution.status is Status.OK and execution.peak_memory < limits.memory_mb << 19
            if len(part) == 1 or sound:
                known |= {item: read(execution, place) for place, item in enumerate(part)}
    return known


def _job(pairs: Sequence[tuple[str, str]]) -> Job:
    rights = [Fraction(right) for right, _ in pairs]
    inputs = tuple((right.numerator, right.denominator, answer) for right, (_, answer) in zip(rights, pairs))
    return Job(JUDGE, inputs, LIMITS, modules=(MODULE,))


def _read(execution: Execution, place: int) -> bool | Refusal:
    if execution.status is Status.INFRA_ERROR:
        return refused_by(execution)
    return execution.status is Status.OK and execution.values[place].value is True
