"""Numbers as people write them: `7`, `1,234.5`, `7 1/2`, `15\\,\\%`, `\\text{7 hours}`. Plain Python, in linear time.

The task type and the graders of exams read answers with this module. It reads no expression that must be worked out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from trl_populora.tasks.math.quantities import NUMBER_WORDS


MAX_ANSWER = 1_000  # characters of an answer; right answers have at most 210
MAX_DIGITS = 64  # characters of a number
MAX_EXPONENT = 400  # of a power of ten

DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_ARGUMENT = rf"\s*(?:\{{\s*(-?{DECIMAL})\s*\}}|([0-9]))"
_FRACTION = rf"(?:\\[dtc]?frac{_ARGUMENT}{_ARGUMENT}|({DECIMAL})\s*/\s*({DECIMAL}))"
_RAISED = r"(?:\s*\^\s*(?:-?[0-9]|\{-?[0-9]\})|[²³])?"
POWER = r"(?<![A-Za-z])(?:[A-Za-z]{2,}|[mgsLNJKWVACTh])\s*\^\s*(?:-?[0-9]|\{-?[0-9]\})"  # of a unit: x^2 is none
_IN_TEXT = rf"(?:{POWER}|\\(?:[,;:! ]|cdot(?![a-z]))|[^{{}}0-9\\])*"
TEXT = rf"(?:\\(?:text|textrm|mathrm|mbox|operatorname)\s*\{{{_IN_TEXT}\}}|\{{\\rm{_IN_TEXT}\}})"
_WORDS = (  # units written without \\text
    r"(?:[cmknpμ]?m|m?s|k?g|m?L|[kM]?eV|k?J|[kM]?Hz|[VKCNWML]|k?pc|mol|moles?|ergs?|sec|seconds?|minutes?|hours?|days?|"
    r"hrs?|h|min|km/h|mph|ft|lbs?|oz|"
    r"years?|degrees?|radians?|rad|arcsec|arcseconds?|parsecs?|[Aa]ngstroms?|photons?|atoms?|dollars?|cents?|meters?|"
    r"feet|inches|miles|units?|bits|kcal|amu|Volts?)(?![A-Za-z])"
)
_UNIT = (
    rf"(?>(?:\\[,;:! ]|~|\s|/|\\cdot|\^\s*\{{?\s*\\circ\s*\}}?|\\degree|°|\\AA|\\mu|{TEXT}{_RAISED}|"
    rf"(?<=[\s/}}~]){_WORDS}{_RAISED})*)"  # atomic: what follows a degree sign can be read in two ways
)
_POWER = r"10\s*\^\s*(?:\{\s*([-+]?[0-9]{1,4})\s*\}|\(\s*([-+]?[0-9]{1,4})\s*\)|([-+]?[0-9]))"
_TIMES = r"\s*(?:\\times|\\cdot|\*|×|x)\s*"
_SPACE = r"(?:\\[,;:! ]|~|\s)*"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)\s*(?:(?:(?P<whole>[0-9]+(?![0-9.,])){_SPACE})?(?P<fraction>{_FRACTION})|(?P<decimal>{DECIMAL})"
    rf"(?:[eE](?P<exponent>[-+]?[0-9]{{1,4}})|{_TIMES}(?P<power>{_POWER}))?|(?P<bare>{_POWER})|"
    r"(?P<repeating>[0-9]*\.[0-9]*\\(?:overline|bar)\s*(?:\{[0-9]+\}|[0-9])))"
    rf"(?P<unit>{_UNIT})(?P<percent>\\?%|percent)?\s*"
)
_GROUP = r"(?:\\[,;:! ]|~|\{,\}|,\\!|\\!| )\s*[0-9]{3}(?![0-9])"
_GROUPS = re.compile(rf"(?<=[0-9])((?:{_GROUP})+)(?:(\s*/\s*)([0-9]+)((?:{_GROUP})*))?")  # 10\,080, 11,\! 111
_NOT_DIGITS = re.compile(r"[^0-9]+")
_PERCENT = re.compile(r"\\(?:text|textrm|mathrm|mbox)\s*\{\s*(?:per\s?cent|\\?%)\s*\}")
_SIGNS = ("\\$", "$", "£", "€", "¥", "₹", "\\pounds", "\\euro", "\\displaystyle")
_TIDY = {"−": "-", **dict.fromkeys(_SIGNS, " "), "E_": "\\Xi_", "np.": "\\"}
_AS_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm)|mbox|boldsymbol)\s*\{([^{}]*)\}")
_LETTERS = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega ell
"""
_GREEK = "|".join(word for name in _LETTERS.split() for word in (name, f"var{name}", name.capitalize()))
_NAME = re.compile(  # and the sign before a number: `x =`, `f(3) =`, `v_0 \\approx`
    rf"(?:(?:(?!or|no)[A-Za-z]{{1,2}}|\\(?:{_GREEK})|\\(?:text|mathrm|mbox|operatorname)\s*\{{[A-Za-z ]*\}})"
    r"(?:_(?:\{(?:\\(?:text|mathrm)\{[A-Za-z]*\}|[A-Za-z0-9]{1,8})\}|[A-Za-z0-9]))?'?(?:\([A-Za-z0-9.]{1,6}\))?"
    r"\s*(?:=|\\approx|≈)|\\approx|≈)(?!\s*[=≈])\s*"
)
_MOST_WORDS = 3  # behind a number
_WORD = re.compile(r"[A-Za-z]{3,}")  # fewer letters are a product of variables
_NO_UNIT = re.compile(r".*(?:hundred|thousand|illion|dozen|teen|fth|ieth).*")
_NO_UNITS = NUMBER_WORDS | set("and not nor maybe perhaps either except".split())
_NO_UNITS |= set(
    "percent tens score gross point plus minus times over divided multiplied squared cubed factorial".split()
)


@dataclass(frozen=True)
class Number:
    """A number as it was written: its value, whether with a decimal point, and whether with a percent sign."""

    value: Fraction
    decimal: bool
    percent: bool


def tidy(text: str) -> str:
    """An answer without text that math-verify reads wrongly: signs of money and display, line breaks, a full stop,
    `\\text{ percent}`, spaces in `1 000` and `1\\,000`. `E_1`, which it takes for a power of e, has another name; so
    has `np.arcsin`."""
    for old, new in _TIDY.items():
        text = text.replace(old, new)
    text = _PERCENT.sub(r"\\%", text)
    return join_groups(" ".join(text.split()).removesuffix(".").strip())


def join_groups(text: str) -> str:
    """A text without spaces in `1 000` and `1\\,000`, but not without that of a mixed number: `2 125/1000`."""
    return _GROUPS.sub(_joined, text)


def _joined(match: re.Match[str]) -> str:
    """The digits without what stands between groups. A single group before a larger number is the numerator of a mixed
    number, unless signs that are used for groups only, such as `{,}`, say otherwise."""
    groups, slash, under, more = match.groups(default="")
    digits, limit = _NOT_DIGITS.sub("", groups), under.lstrip("0")
    proper = len(digits) == 3 and digits >= "100" and (3, digits) < (len(limit), limit)
    mixed = proper and not more and "{" not in groups and "\\!" not in groups
    return (groups if mixed else digits) + slash + under + _NOT_DIGITS.sub("", more)


def read_number(text: str) -> Number | None:
    """A tidy text as a number: `12`, `-1,234.5`, `\\frac{3}{4}`, `3/4`, `1\\frac{1}{2}`, `0.\\overline{3}`,
    `4.5e33`, `1.2 \\times 10^{-3}`, with a percent sign or a unit behind it. `None` for any other form."""
    match = _NUMBER.fullmatch(text) if len(text) <= MAX_ANSWER else None
    if match is None or match.start("unit") > MAX_DIGITS:
        return None
    parts = match.groupdict(default="")
    exponent = int(parts["exponent"] or _filled(_POWER, parts["power"] or parts["bare"]) or 0)
    if abs(exponent) > MAX_EXPONENT:
        return None
    if parts["repeating"]:
        begin, period = re.findall(r"[0-9.]+", parts["repeating"])
        rest = Fraction(int(period), 10 ** len(period) - 1) / 10 ** len(begin.partition(".")[2])
        value = Fraction(f"0{begin}0") + rest
    elif parts["fraction"]:
        top, under = map(_plain, re.findall(r"-?" + DECIMAL, _filled(_FRACTION, parts["fraction"], " over ")))
        if not under or parts["whole"] and not 0 < top < under:
            return None  # 3\\frac{5}{2}: a product, or nothing
        value = top / under + int(parts["whole"] or 0)
    else:
        value = _plain(parts["decimal"] or "1") * Fraction(10) ** exponent
    decimal = "." in text[: match.start("unit")] or exponent < 0
    return Number(-value if parts["sign"] == "-" else value, decimal, bool(parts["percent"]))


def read_answer(text: str) -> Number | None:
    """
    A tidy answer as a number: as [`read_number`], also as text (`\\text{7 hours}`), with a name before it (`x = 7`),
    and with up to three words behind it. Words of fewer than three letters may be variables, and some words change the
    number: `7 dozen`, `7 or more`.
    """
    if len(text) > MAX_ANSWER:
        return None
    if name := _NAME.match(text):
        text = text[name.end() :]
    whole = _AS_TEXT.fullmatch(text)
    parts = (whole[1] if whole else text).split()
    words = []
    while parts[1:] and _WORD.fullmatch(parts[-1]):
        words.append(parts.pop().lower())
    units = len(words) <= _MOST_WORDS and not any(word in _NO_UNITS or _NO_UNIT.fullmatch(word) for word in words)
    return read_number(" ".join(parts if units else parts + words[::-1]))


def _plain(text: str) -> Fraction:
    return Fraction(text.replace(",", "").removesuffix("."))


def _filled(pattern: str, text: str, between: str = "") -> str:
    """What the groups of a pattern caught in a text that it matches."""
    return between.join(one for found in re.findall(pattern, text) for one in found if one)
