"""Reading mathematical answers as text: where a completion has its answer, which texts are numbers, and how a list of
answers is split. Plain Python in linear time; comparing anything but numbers is the sandbox's work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ...tasks.math.answers import DOUBT, last_box


MARK = "####"
MAX_ANSWER = 1_000  # characters of an answer; right answers have at most 210
MAX_DEPTH = 12  # of brackets, 5 in right answers: math-verify's parser takes exponential time in it
MAX_DIGITS = 64  # characters of a number
MAX_EXPONENT = 400  # of a power of ten

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_GIVEN = re.compile(rf"(?:(?<![0-9A-Za-z)\]}}.])[-+])?{_DECIMAL}")  # in prose; the minus of `10-3` is none
_ARGUMENT = rf"\s*(?:\{{\s*(-?{_DECIMAL})\s*\}}|([0-9]))"
_FRACTION = rf"(?:\\[dtc]?frac{_ARGUMENT}{_ARGUMENT}|({_DECIMAL})\s*/\s*({_DECIMAL}))"
_TEXT = r"(?:\\(?:text|textrm|mathrm|mbox|operatorname)\s*\{[^{}0-9\\]*\}|\{\\rm[^{}0-9\\]*\})"
_WORDS = (  # units written without \\text
    r"(?:[cmknpμ]?m|m?s|k?g|m?L|[kM]?eV|k?J|[kM]?Hz|[VKCNWML]|k?pc|mol|moles?|ergs?|sec|seconds?|minutes?|hours?|days?|"
    r"years?|degrees?|radians?|rad|arcsec|arcseconds?|parsecs?|[Aa]ngstroms?|photons?|atoms?|dollars?|cents?|meters?|"
    r"feet|inches|miles|units?|bits|kcal|amu|Volts?)(?![A-Za-z])"
)
_RAISED = r"(?:\s*\^\s*(?:-?[0-9]|\{-?[0-9]\}))?"
_UNIT = (
    rf"(?:\\[,;:! ]|~|\s|/|\\cdot|\^\s*\{{?\s*\\circ\s*\}}?|\\degree|°|\\AA|\\mu|{_TEXT}{_RAISED}|"
    rf"(?<=[\s/}}~]){_WORDS}{_RAISED})*+"  # possessive: what follows a degree sign can be read in two ways
)
_POWER = r"10\s*\^\s*(?:\{\s*([-+]?[0-9]{1,4})\s*\}|\(\s*([-+]?[0-9]{1,4})\s*\)|([-+]?[0-9]))"
_TIMES = r"\s*(?:\\times|\\cdot|\*|×|x)\s*"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)\s*(?:(?P<whole>[0-9]+(?![0-9.,]))?\s*(?P<fraction>{_FRACTION})|(?P<decimal>{_DECIMAL})"
    rf"(?:[eE](?P<exponent>[-+]?[0-9]{{1,4}})|{_TIMES}(?P<power>{_POWER}))?|(?P<bare>{_POWER}))"
    rf"(?P<unit>{_UNIT})(?P<percent>\\?%|percent)?\s*"
)
_ANY_TEXT = re.compile(r"\\(?:text[a-z]*|mathrm|mbox|operatorname)\s*\{[^{}]*\}")
_TRAILING_UNIT = re.compile(rf"(?<=.)(?:\\[,;:! ]|~|\s)*{_TEXT}(?:\s*\^\s*(?:[0-9]|\{{[0-9]\}}))?\s*$")
_GROUPS = re.compile(r"(?<=[0-9])(?:\\[,;:! ]|~|\{,\}|,\\!|\\!| )\s*(?=[0-9]{3}(?![0-9]))")  # 10\,080, 11,\! 111
_TEXT_WORDS = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|;")
_WHERE = re.compile(r"(?:\\(?:text|mathrm|mbox)\s*\{\s*)?\bwhere\b.*", re.DOTALL)
_TIDY = {"−": "-", "\\$": " ", "$": " ", "\\displaystyle": " ", "E_": "\\Xi_", "np.": "\\"}
_OPEN, _CLOSE = "([{", ")]}"
_STATED = re.compile(r"\banswer(?: is\b|(?=\s?\**:))[\s*:]*", re.IGNORECASE)
_DELIMITERS = (("$$", r"\$\$"), ("$", r"(?<!\\)\$"), (r"\(", r"\\\)"), (r"\[", r"\\\]"))  # as they are, as a pattern
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\n")


@dataclass(frozen=True)
class Number:
    """A number as it was written: its value, whether with a decimal point, and whether with a percent sign."""

    value: Fraction
    decimal: bool
    percent: bool


def find_boxed(completion: str) -> str | None:
    """Content of the last `\\boxed{...}`, with nested braces. `None` if there is none, or if it is empty or not
    closed."""
    return last_box(completion) or None


def find_answer(completion: str) -> str | None:
    """
    The final answer of a completion: the content of its last box. Without a box, it is the text after the last "answer
    is" or "answer:" (a formula or the rest of the sentence), as in math-verify and lm-eval.

    Returns:
        `str`: The answer as it was written. `None` if there is neither.
    """
    if (box := find_boxed(completion)) is not None:
        return box
    *_, stated = (None, *_STATED.finditer(completion))
    if stated is None:
        return None
    rest = completion[stated.end() :]
    for begin, end in _DELIMITERS:
        if rest.startswith(begin):
            inside, *closed = re.split(end, rest.removeprefix(begin), maxsplit=1)
            return inside.strip() or None if closed else None
    return _SENTENCE_END.split(rest, maxsplit=1)[0].strip("* ") or None


def find_number(completion: str) -> str | None:
    """
    The final number of a completion, as lm-eval's flexible extraction of GSM8K finds it: on the line of the last
    `####`, else in the last box, else the last number of all.

    Returns:
        `str`: Digits with sign and point. `None` if there is no number, or if the line or the box holds several that
        differ: then it says nothing.
    """
    completion = completion.replace("−", "-")
    _, mark, rest = completion.rpartition(MARK)
    line = rest.lstrip().partition("\n")[0]
    box = find_boxed(completion)
    for place in (line if mark else "", box or ""):
        given = {_digits(match[0]) for match in _GIVEN.finditer(_GROUPS.sub("", place))}
        if given:
            return given.pop() if len(given) == 1 else None
    numbers = _GIVEN.findall(completion)
    return _digits(numbers[-1]) if numbers else None


def _digits(text: str) -> str:
    return text.replace(",", "").removesuffix(".").removeprefix("+")


def tidy(text: str) -> str:
    """An answer without text that math-verify reads wrongly: dollar signs, line breaks, signs of display, a full stop,
    spaces in `1 000` and `1\\,000`. `E_1`, which it takes for a power of e, has another name; so has `np.arcsin`."""
    for old, new in _TIDY.items():
        text = text.replace(old, new)
    return _GROUPS.sub("", " ".join(text.split()).removesuffix(".").strip())


def read_number(text: str) -> Number | None:
    """A tidy text as a number: `12`, `-1,234.5`, `\\frac{3}{4}`, `3/4`, `1\\frac{1}{2}`, `4.5e33`, `1.2 \\times
    10^{-3}`, with a percent sign or a unit behind it. `None` for any other form."""
    match = _NUMBER.fullmatch(text) if len(text) <= MAX_ANSWER else None
    if match is None or match.start("unit") > MAX_DIGITS:
        return None
    parts = match.groupdict(default="")
    exponent = int(parts["exponent"] or _filled(_POWER, parts["power"] or parts["bare"]) or 0)
    if abs(exponent) > MAX_EXPONENT:
        return None
    if parts["fraction"]:
        top, under = map(_plain, re.findall(r"-?" + _DECIMAL, _filled(_FRACTION, parts["fraction"], " over ")))
        if not under or parts["whole"] and not 0 < top < under:
            return None  # 3\\frac{5}{2}: a product, or nothing
        value = top / under + int(parts["whole"] or 0)
    else:
        value = _plain(parts["decimal"] or "1") * Fraction(10) ** exponent
    decimal = "." in text[: match.start("unit")] or exponent < 0
    return Number(-value if parts["sign"] == "-" else value, decimal, bool(parts["percent"]))


def _plain(text: str) -> Fraction:
    return Fraction(text.replace(",", "").removesuffix("."))


def _filled(pattern: str, text: str, between: str = "") -> str:
    """What the groups of a pattern caught in a text that it matches."""
    return between.join(one for found in re.findall(pattern, text) for one in found if one)


def without_unit(text: str) -> str:
    """A tidy text without the `\\text{...}` behind it, unless the rest is text as well."""
    short = _TRAILING_UNIT.sub("", text)
    return short if _ANY_TEXT.sub("", short).strip() else text


def hedges(text: str) -> bool:
    """Whether a text has digits both within and outside `\\text{...}`, or takes an answer back there. math-verify
    takes `7\\text{ or 8}` for 7."""
    outside = _ANY_TEXT.sub("", text)
    digits = any(map(str.isdigit, outside)) and sum(map(str.isdigit, text)) > sum(map(str.isdigit, outside))
    return digits or DOUBT.search(text) is not None and bool(outside.strip())


def split(text: str) -> list[str]:
    """The answers of a list: split at commas outside brackets, at `;`, "and" and "or"; braces around the list, and
    what follows "where", are dropped; `\\pm` makes two."""
    text = _TEXT_WORDS.sub(",", _WHERE.sub("", text)).strip()
    if text.startswith(("\\{", "\\left\\{")) and text.endswith("\\}") and len(list(_parts(text))) == 1:
        text = text.removeprefix("\\left").removeprefix("\\{").removesuffix("\\}").removesuffix("\\right")
    parts = [part for part in map(str.strip, _parts(text)) if part]
    return [one for part in parts for one in _both(part)]


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
