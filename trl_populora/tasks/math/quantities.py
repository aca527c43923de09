"""Compares the numbers that a word problem states with the numbers that its program uses.

If the program uses a number that the problem does not state, the problem cannot be solved. If the problem states the
answer, nothing has to be solved. So these rules hold:

- Every number in the program is stated in the problem, in digits or in words. A problem also states what follows from
  its numbers: `15%` states 0.15, 1.15 and 0.85, `3/4` and `75 cents` state 0.75, `a third` states 3 and 1/3.
- Some numbers need not be stated: 0, 1, 2 and 1/2; the digits of `round`; one more than a stated number in `range`;
  numbers that everybody knows from a word of the problem, such as 60 from `minutes` and 100 from `%` (`COMMON`), and
  1 divided by them.
- Counts of what the problem lists need not be stated, up to one more than its commas and "and"s, and at most 10. "Ann,
  Ben and Carla" allows three.
- Every word in a string of the program is a word of the problem, so that no number hides in `len("...")`.
- The program uses at least one number that the problem states.
- The problem states the answer only if the program uses that number, too.
- If `round` changes the answer, the problem asks for it (`ROUNDING`).

These rules find mistakes. They do not find every bad intention, because any number can be computed from 0, 1 and 2.
A problem with such a program cannot be solved, and with `teacher_reward: solvable` its author gets no reward for it.

This module only reads numbers from text and from a syntax tree, and evaluates nothing.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from math import inf
from typing import NamedTuple

from trl_populora.tasks.task import Refusal


REASONS = {
    "number_not_in_problem": "a number of the program is not stated in the problem",
    "text_not_in_problem": "a string of the program has words that are not in the problem",
    "no_numbers": "the program uses no number of the problem",
    "answer_in_problem": "the problem states its answer",
    "unstated_rounding": "the program rounds its answer, and the problem does not ask for it",
}

_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_UNITS += "seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "third fourth fifth sixth seventh eighth ninth tenth"
_CARDINALS = {word: value for value, word in enumerate(_UNITS.split())}
_CARDINALS |= {word: 10 * value for value, word in enumerate(_TENS.split(), start=2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "halves": 2, "quarter": 4, "quarters": 4}
_PARTS |= {word + end: value for value, word in enumerate(_ORDINALS.split(), start=3) for end in ("", "s")}
_TIMES = {"once": 1, "twice": 2, "double": 2, "doubles": 2, "doubled": 2, "triple": 3, "triples": 3, "tripled": 3}
_TIMES |= {"thrice": 3, "quadruple": 4, "dozen": 12, "dozens": 12}
_HUNDREDTHS = frozenset({"percent", "cent", "cents"})
NUMBER_WORDS = frozenset({*_CARDINALS, *_SCALES, *_PARTS, *_TIMES})

COMMON = {
    numbers: frozenset(words.split())
    for numbers, words in {
        (60, 3600): "second minute min hour hr h clock am pm",
        (24,): "hour day daily",
        (7,): "day daily week weekly",
        (5,): "week weekly weekday workday pentagon",
        (5, 10): "finger toe",
        (12, 24): "clock am pm",
        (12, 30): "month monthly",
        (12, 52, 365): "year yearly annual annually",
        (31,): "january march may july august october december",
        (30,): "april june september november",
        (28, 29): "february",
        (10, 100, 1000): "mm cm m km millimeter centimeter meter kilometer millimetre centimetre metre kilometre",
        (1000,): "g kg gram kilogram ton tonne l ml liter litre milliliter millilitre kilo",
        (12, 3, 36, 5280): "inch foot feet yard mile",
        (16,): "ounce oz pound lb",
        (100,): "% percent percentage cent dollar euro $ € £ century",
        (10,): "digit decade",
        (5, 10, 25): "coin nickel dime quarter",
        (90, 180, 360): "angle degree ° circle",
        (3, 180): "triangle triangular",
        (4,): "square rectangle rectangular quarter quarterly leg wheel quart season",
        (3, 6, 8, 12): "cube cubic",
        (6, 8): "hexagon octagon die dice insect spider leg",
        (4, 13, 52): "card deck",
        (26,): "letter alphabet",
    }.items()
}
"""Numbers that a problem need not state if it has one of these words, in singular or plural."""

_ASKING = (
    "rounded|rounding|rounds|round (?:it|the|your|to|up|down|off|each|all)",
    "nearest|closest|roughly|about how|approximat|estimat|truncat|integer|decimal|significant|in cents",
    "whole (?:number|dollar|euro|cent|percent|unit)",
    "to the (?:tenth|hundredth|thousandth|cent|penny|dollar|euro)",
    "to (?:one|two|three|four|[0-9]) (?:digit|place|d[.]?p)",
)
ROUNDING = re.compile(rf"\b(?:{'|'.join(_ASKING)})")
"""A problem with one of these, in lower case, may ask for a rounded answer."""

_UNROUNDED = """\
def round(number, ndigits=None, _round=round, _abs=abs):
    near = _round(number, ndigits)
    return near if _abs(near - number) <= (1 + _abs(number)) / 10**13 else number


"""

_EXEMPT = frozenset({Fraction(0), Fraction(1), Fraction(2), Fraction(1, 2)})
_FRACTIONS = {"½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"}
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(
    rf"(?:(?P<whole>[0-9]+)\s+)?(?:\\[dt]?frac\{{(?P<top>[0-9]+)\}}\{{(?P<under>[0-9]+)\}}"
    rf"|(?P<over>[0-9]+)\s?/\s?(?P<below>[0-9]+))"
    rf"|(?P<number>{_DIGITS})\s*(?P<unit>\\?%|per\s?cent\b|cents?\b|¢|hundred|thousand|[mb]illion)?"
)
_WORD = re.compile(r"[a-z]+|[%$€£°]")
_PHRASE = re.compile(r"[a-z]+(?:[ -][a-z]+)*")


class Stated(NamedTuple):
    """The numbers of a text, all positive.

    Attributes:
        written (`frozenset[Fraction]`): Those in the text itself, without the words one, two and half.
        known (`frozenset[Fraction]`): These, and those that follow from the text.
        words (`frozenset[str]`): The words of the text in lower case.
    """

    written: frozenset[Fraction]
    known: frozenset[Fraction]
    words: frozenset[str]


def stated(text: str) -> Stated:
    """The numbers of a text. Takes linear time."""
    for sign, plain in _FRACTIONS.items():
        text = text.replace(sign, f" {plain}")
    text = re.sub("['’][a-z]+", "", text.lower())
    text = re.sub(r"\b([ap])\.m\b", r"\1m", text)
    written: set[Fraction] = set()
    known: set[Fraction] = set()
    for match in _NUMBER.finditer(text):
        _add_digits(match, written, known)
    for match in _PHRASE.finditer(_NUMBER.sub(lambda match: "#" * len(match.group()), text)):  # not 100 in "5 hundred"
        _add_words(re.split("[ -]", match.group()), written, known)
    return Stated(frozenset(written), frozenset(written | known), frozenset(_WORD.findall(text)))


def _add_digits(match: re.Match[str], written: set[Fraction], known: set[Fraction]) -> None:
    top, under, unit = match["top"] or match["over"], match["under"] or match["below"], match["unit"]
    if top is None:
        value = Fraction(match["number"].replace(",", ""))
        known.add(value)
        written.add(value * _SCALES.get(unit, 1))
        if unit and unit not in _SCALES:  # per cent, or cents
            known |= _hundredths(value)
        return
    known |= {Fraction(int(part)) for part in (top, under, match["whole"]) if part}
    if int(under):
        value = Fraction(int(top), int(under))
        known |= {value, abs(1 - value)}
        written.add(int(match["whole"] or 0) + value)


def _hundredths(value: Fraction) -> set[Fraction]:
    """What a number of per cent or of cents states."""
    return {value / 100, 1 + value / 100, abs(1 - value / 100), 100 + value, abs(100 - value)}


def _add_words(words: list[str], written: set[Fraction], known: set[Fraction]) -> None:
    """Adds numbers in words. Words in sequence are one number: `two hundred and five`, `three quarters`."""
    place = 0
    while place < len(words):
        value, end = _cardinal(words, place)
        rest = words[end : end + 3]
        if value is not None and rest:
            if rest[0] in _PARTS:  # three quarters
                part = Fraction(value, _PARTS[rest[0]])
                known |= {part, abs(1 - part)}
            if rest[0] in _HUNDREDTHS or rest[:2] == ["per", "cent"]:
                known |= _hundredths(Fraction(value))
            if rest[0] == "and" and rest[1:2] and rest[-1] in _PARTS:  # two and a half, one and three quarters
                known.add(value + Fraction(1 if rest[1] == "a" else _CARDINALS.get(rest[1], 0), _PARTS[rest[-1]]))
        if words[place : place + 3] == ["half", "a", "dozen"]:
            known.add(Fraction(6))
        if value is None:
            part = _PARTS.get(words[place])
            if part is not None:
                known |= {Fraction(part), Fraction(1, part), 1 - Fraction(1, part)}
            value, end = _TIMES.get(words[place]), place + 1
        if value is not None:
            (written if value > 2 else known).add(Fraction(value))
        place = end


def _cardinal(words: list[str], start: int) -> tuple[int | None, int]:
    """The number that begins with the word at `start`, or `None`, and the place after it."""
    total, group, place, found = 0, 0, start, False
    while place < len(words):
        word = words[place]
        if word in _CARDINALS and (not found or group % 100 == 0 or group % 10 == 0 < _CARDINALS[word] < 10):
            group += _CARDINALS[word]
        elif word in _SCALES:
            group = max(group, 1) * _SCALES[word]
            if word != "hundred":
                total, group = total + group, 0
        elif word == "and" and words[place - 1] in _SCALES and found and words[place + 1 : place + 2]:
            if words[place + 1] not in _CARDINALS:
                break
        else:
            break
        found, place = True, place + 1
    return (total + group if found else None), max(place, start + found)


def constants(tree: ast.AST) -> frozenset[Fraction]:
    """The finite numbers in a program, without their signs."""
    values = (_exact(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return frozenset(value for value in values if value is not None)


def _exact(value: object) -> Fraction | None:
    """A finite number as it is written, without its sign; `None` for anything else."""
    if type(value) is int:
        return Fraction(abs(value))
    return Fraction(repr(abs(value))) if type(value) is float and abs(value) < inf else None


def _shown(value: Fraction) -> str:
    return f"{float(value):g}" if value < 10**20 else "a huge number"


def check_numbers(problem: str, tree: ast.AST) -> Refusal | None:
    """
    Checks the rules of this module, except the one on the answer.

    Args:
        problem (`str`): The text, of limited size.
        tree (`ast.AST`): Syntax tree of the program.

    Returns:
        `Refusal` or `None`: The first broken rule, if there is one.
    """
    numbers = stated(problem)
    allowed = numbers.known | _EXEMPT | _of_words(numbers.words) | _counts(problem)
    ranges, digits = _arguments(tree, "range", 0), _arguments(tree, "round", 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "__round__":
            return Refusal("unstated_rounding", f"line {node.lineno}: write `round` for `__round__`")
        if not isinstance(node, ast.Constant) or type(node.value) in (bool, type(None), type(...)):
            continue
        value, refusal = _exact(node.value), None
        if isinstance(node.value, str):
            refusal = _check_text(node.value, numbers, allowed)
        elif value is None:
            refusal = Refusal("number_not_in_problem", f"line {node.lineno}: a {type(node.value).__name__}")
        elif not (value in allowed or id(node) in digits or id(node) in ranges and value - 1 in allowed):
            refusal = Refusal("number_not_in_problem", f"line {node.lineno}: {_shown(value)}")
        if refusal is not None:
            return refusal
    if not constants(tree) & numbers.known:
        return Refusal("no_numbers", "the program uses no number that the problem states")
    return None


def rounds(tree: ast.AST) -> bool:
    """Whether a program has the name `round`."""
    return any(isinstance(node, ast.Name) and node.id == "round" for node in ast.walk(tree))


def unrounded(program: str, tree: ast.Module) -> str:
    """The program with a `round` that only takes away what is left of rounding errors, and makes integers of these."""
    futures = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
    first = max((node.end_lineno or 0 for node in futures), default=0)
    lines = program.splitlines(keepends=True)
    return "".join([*lines[:first], _UNROUNDED, *lines[first:]])


def gives_away(problem: str, tree: ast.AST, answer: Fraction) -> bool:
    """Whether the problem states the answer, although the program does not use that number."""
    return abs(answer) in stated(problem).written and abs(answer) not in constants(tree)


def _check_text(text: str, numbers: Stated, allowed: frozenset[Fraction]) -> Refusal | None:
    own = stated(text)
    foreign = sorted(word for word in own.words if not _singular(word) & numbers.words)
    if foreign:
        return Refusal("text_not_in_problem", f"the word {foreign[0]!r}"[:100])
    hidden = own.written - allowed
    return Refusal("number_not_in_problem", "in a string") if hidden else None


def _of_words(words: frozenset[str]) -> frozenset[Fraction]:
    present = frozenset().union(*map(_singular, words))
    common = frozenset(Fraction(number) for numbers, known in COMMON.items() if known & present for number in numbers)
    return common | {1 / number for number in common}


def _counts(problem: str) -> frozenset[Fraction]:
    most = min(10, 1 + problem.count(",") + len(re.findall(r"\band\b", problem)))
    return frozenset(Fraction(count) for count in range(most + 1))


def _singular(word: str) -> frozenset[str]:
    """A word, the words that it may be the plural of, and its plural."""
    return frozenset({word, word.removesuffix("s"), word.removesuffix("es"), f"{word}s"})


def _arguments(tree: ast.AST, name: str, first: int) -> set[int]:
    """Identities of the arguments of calls of a builtin, from number `first` on."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name]
    return {id(argument) for call in calls for argument in call.args[first:]}
