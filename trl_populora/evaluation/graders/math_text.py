"""Reading mathematical answers as text: where a completion has its answer, and how a list of answers is split. Plain
Python in linear time; `tasks/math/written.py` reads numbers, and comparing anything else is the sandbox's work."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...tasks.math.answers import DOUBT, last_box
from ...tasks.math.written import DECIMAL, POWER, TEXT, join_groups


MARK = "####"
MAX_DEPTH = 12  # of brackets, 5 in right answers: math-verify's parser takes exponential time in it
_GIVEN = re.compile(rf"(?:(?<![0-9A-Za-z)\]}}.])[-+])?{DECIMAL}")  # in prose; the minus of `10-3` is none
_MINUS_MONEY = re.compile(r"(?<![0-9])(?<![0-9]\s)-\s?\\?[$£€¥₹]\s?(?=[0-9.])")
_ANY_TEXT = re.compile(r"\\(?:text[a-z]*|mathrm|mbox|operatorname)\s*\{[^{}]*\}")
_TRAILING_UNIT = re.compile(rf"(?<=.)(?:\\[,;:! ]|~|\s)*{TEXT}(?:\s*\^\s*(?:[0-9]|\{{[0-9]\}}))?\s*$")
_TEXT_WORDS = re.compile(  # with the comma before it
    r"(?:,\s*)?(?:\\(?:text|mathrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|;)"
)
_SPACING = re.compile(r"(?<!\\)\\[,;:! ]|~")
_POWER = re.compile(POWER)
_MEMBER = re.compile(r"[A-Za-z]\s*\\in\s*(?=(?:\\left)?\\\{)")  # of a list in braces
_WHERE = re.compile(r"(?:\\(?:text|mathrm|mbox)\s*\{\s*)?\bwhere\b.*", re.DOTALL)
_OPEN, _CLOSE = "([{", ")]}"
_STATED = re.compile(r"\banswer(?: is\b|(?=\s?\**:))[\s*:]*", re.IGNORECASE)
_FORMULA = (r"\$\$(.*?)\$\$", r"\$(.*?)(?<!\\)\$", r"\\\((.*?)\\\)", r"\\\[(.*?)\\\]")
_AND = r"\s*(?:,\s*(?:(?:and|or)\b\s*)?|(?:and|or)\b\s*)"  # between formulas
_FORMULAS = [(re.compile(one, re.DOTALL), re.compile(f"{one}(?:{_AND}{one})*", re.DOTALL)) for one in _FORMULA]
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\n")


def find_boxed(completion: str) -> str | None:
    """Content of the last `\\boxed{...}`, with nested braces. `None` if there is none, or if it is empty or not
    closed."""
    return last_box(completion) or None


def find_answer(completion: str) -> str | None:
    """
    The final answer of a completion: the content of its last box. Without a box, it is the text after the last "answer
    is" or "answer:" (one or several formulas with "and", "or" or commas between them, or the rest of the sentence), as
    in math-verify and lm-eval.

    Returns:
        `str`: The answer as it was written. `None` if there is neither.
    """
    if (box := find_boxed(completion)) is not None:
        return box
    *_, stated = (None, *_STATED.finditer(completion))
    if stated is None:
        return None
    rest = completion[stated.end() :]
    for begin, (formula, formulas) in zip(("$$", "$", r"\(", r"\["), _FORMULAS, strict=True):
        if rest.startswith(begin):
            found = formulas.match(rest)
            return ", ".join(filter(None, map(str.strip, formula.findall(found[0])))) or None if found else None
    return _SENTENCE_END.split(rest, maxsplit=1)[0].strip("* ") or None


def find_number(completion: str) -> str | None:
    """
    The final number of a completion, as lm-eval's flexible extraction of GSM8K finds it: on the line of the last
    `####`, else in the last box, else the last number of all.

    Returns:
        `str`: Digits with sign and point. `None` if there is no number, or if the line or the box holds several that
        differ: then it says nothing.
    """
    completion = _MINUS_MONEY.sub("-", completion.replace("−", "-"))
    _, mark, rest = completion.rpartition(MARK)
    line = rest.lstrip().partition("\n")[0]
    box = find_boxed(completion)
    for place in (line if mark else "", box or ""):
        given = {_digits(match[0]) for match in _GIVEN.finditer(join_groups(place))}
        if given:
            return given.pop() if len(given) == 1 else None
    numbers = _GIVEN.findall(completion)
    return _digits(numbers[-1]) if numbers else None


def _digits(text: str) -> str:
    return text.replace(",", "").removesuffix(".").removeprefix("+")


def without_unit(text: str) -> str:
    """A tidy text without the `\\text{...}` behind it, unless the rest is text as well."""
    short = _TRAILING_UNIT.sub("", text)
    return short if _ANY_TEXT.sub("", short).strip() else text


def hedges(text: str) -> bool:
    """Whether a text has digits both within and outside `\\text{...}`, those of `cm^2` aside, or takes an answer back
    there. math-verify takes `7\\text{ or 8}` for 7."""
    outside = _ANY_TEXT.sub("", text)
    # A unit is one expression: `x^2\\text{, or y^3}` has another answer.
    parts = (_SPACING.sub(" ", part) for part in _ANY_TEXT.findall(text))
    inside = (part if "," in part or len(part.split()) > 3 else _POWER.sub("", part) for part in parts)
    digits = any(map(str.isdecimal, outside)) and any(map(str.isdecimal, "".join(inside)))
    return digits or DOUBT.search(text) is not None and bool(outside.strip())


def split(text: str) -> list[str]:
    """The answers of a list: split at commas outside brackets, at `;`, "and" and "or"; braces around the list, and
    what follows "where", are dropped; `\\pm` makes two."""
    text = _MEMBER.sub("", with_commas(_WHERE.sub("", text)).strip())
    if text.startswith(("\\{", "\\left\\{")) and text.endswith("\\}") and len(list(_parts(text))) == 1:
        text = text.removeprefix("\\left").removeprefix("\\{").removesuffix("\\}").removesuffix("\\right")
    parts = [part for part in map(str.strip, _parts(text)) if part]
    return [one for part in parts for one in _both(part)]


def is_list(text: str) -> bool:
    """Whether a text has a comma outside brackets."""
    return len(list(_parts(text))) > 1


def with_commas(text: str) -> str:
    """A list with commas for `;`, "and" and "or", and without LaTeX's spaces, such as `\\,` and `\\;`."""
    return _TEXT_WORDS.sub(",", _SPACING.sub(" ", text))


def _both(text: str) -> list[str]:
    return [text.replace("\\pm", sign) for sign in ("+", "-")] if text.count("\\pm") == 1 else [text]


def _parts(text: str) -> Iterator[str]:
    start = depth = 0
    for place, sign in enumerate(text):
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if sign == "," and depth <= 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def nesting(text: str) -> int:
    """Nesting depth of the brackets of a text."""
    level = most = 0
    for sign in text:
        level += (sign in _OPEN) - (sign in _CLOSE)
        most = max(most, level)
    return most
