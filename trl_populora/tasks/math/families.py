"""Seed families of `math`, the simplest first. A family is a function that draws a problem, a program and the answer.

The answer is computed here without the program. Tests run every program in the executor and compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction


# Text, program, answer.
Sample = tuple[str, str, int | float | Fraction]
Family = Callable[[random.Random], Sample]

_NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kim", "Leo")
_THINGS = ("apples", "books", "pens", "cards", "shells", "stamps", "marbles", "stickers", "eggs", "nuts")
_BOXES = ("boxes", "bags", "shelves", "baskets", "rows")


def wording(problem: str) -> list[str]:
    """The words of a problem without case, punctuation, and which names, things and boxes it is about.

    `"Anna has 3 pens."` and `"Ben has 3 nuts."` are worded alike.
    """
    kinds = {word.casefold(): kind for kind in (_NAMES, _THINGS, _BOXES) for word in kind}
    words, seen = [], dict[str, str]()
    for word in (word.strip(".,;:!?()\"'_").removesuffix("'s") for word in problem.casefold().split()):
        if word in kinds:
            word = seen.setdefault(word, f"{kinds[word][0]} {len(seen)}")
        if word:
            words.append(word)
    return words


def _define(*lines: str) -> str:
    return "\n".join(["def f():", *(f"    {line}" for line in lines)])


def change(rng: random.Random) -> Sample:
    name, things, a, b = rng.choice(_NAMES), rng.choice(_THINGS), rng.randint(5, 40), rng.randint(3, 30)
    if rng.random() < 0.5 or a == b:
        text = f"{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?"
        return text, _define(f"return {a} + {b}"), a + b
    a, b = max(a, b), min(a, b)
    text = f"{name} has {a} {things} and gives away {b} of them. How many {things} are left?"
    return text, _define(f"return {a} - {b}"), a - b


def groups(rng: random.Random) -> Sample:
    things, boxes, a, b = rng.choice(_THINGS), rng.choice(_BOXES), rng.randint(3, 12), rng.randint(3, 15)
    text = f"There are {a} {boxes} with {b} {things} each. How many {things} are there in all?"
    return text, _define(f"return {a} * {b}"), a * b


def sharing(rng: random.Random) -> Sample:
    things, people, each, rest = rng.choice(_THINGS), rng.randint(3, 9), rng.randint(3, 12), rng.randint(1, 2)
    total = people * each + rest
    text = f"{total} {things} are shared equally among {people} children, as many as possible to each. "
    if rng.random() < 0.5:
        return text + f"How many {things} does each child get?", _define(f"return {total} // {people}"), each
    return text + f"How many {things} are left over?", _define(f"return {total} % {people}"), rest


def shopping(rng: random.Random) -> Sample:
    (first, second), name = rng.sample(_THINGS, 2), rng.choice(_NAMES)
    a, b, p, q = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 12)
    note = 50 * ((a * p + b * q) // 50 + 1)
    text = f"{name} buys {a} {first} at {p} dollars each and {b} {second} at {q} dollars each"
    cost = _define(f"cost = {a} * {p} + {b} * {q}", "return cost")
    if rng.random() < 0.5:
        return f"{text}. How many dollars does {name} pay?", cost, a * p + b * q
    text += f", and pays with {note} dollars. How many dollars of change does {name} get?"
    return text, cost.replace("return cost", f"return {note} - cost"), note - a * p - b * q


def part(rng: random.Random) -> Sample:
    things, under = rng.choice(_THINGS), rng.randint(3, 9)
    top, times = rng.randint(1, under - 1), rng.randint(2, 12)
    text = f"There are {under * times} {things}. {top}/{under} of them are sold. How many {things} are "
    sold = f"{under * times} * {top} // {under}"
    if rng.random() < 0.5:
        return text + "sold?", _define(f"return {sold}"), times * top
    return text + "left?", _define(f"return {under * times} - {sold}"), times * (under - top)


def discount(rng: random.Random) -> Sample:
    price, percent = rng.randint(2, 40) * 10, rng.choice((5, 10, 15, 20, 25, 30, 40, 60, 75))
    name, up = rng.choice(_NAMES), rng.random() < 0.5
    done, sign = ("raised", "+") if up else ("lowered", "-")
    text = (
        f"A ticket costs {price} dollars. The price is {done} by {percent}%. How many dollars does {name} pay for it?"
    )
    answer = Fraction(price * (100 + percent if up else 100 - percent), 100)
    return text, _define(f"return {price} * (100 {sign} {percent}) / 100"), float(answer)


def journey(rng: random.Random) -> Sample:
    speed, minutes, pause = rng.randint(2, 12) * 10, rng.randint(4, 40) * 5, rng.randint(2, 6) * 5
    text = f"A train goes {speed} kilometers per hour. How many kilometers does it go in {minutes + pause} minutes "
    text += f"of which it stands still for {pause}? Give the exact value."
    lines = (f"minutes = {minutes + pause} - {pause}", f"return Fraction({speed} * minutes, 60)")
    return text, "from fractions import Fraction\n\n\n" + _define(*lines), Fraction(speed * minutes, 60)


def average(rng: random.Random) -> Sample:
    name, scores = rng.choice(_NAMES), [rng.randint(40, 95) for _ in range(rng.randint(3, 5))]
    wanted = max(scores) - rng.randint(0, 5)
    answer = wanted * (len(scores) + 1) - sum(scores)
    listed = ", ".join(map(str, scores[:-1]))
    text = f"{name} has scored {listed} and {scores[-1]} points so far. How many points does {name} need in the next "
    text += f"game for an average of {wanted}?"
    lines = (f"scores = {scores}", f"return {wanted} * (len(scores) + 1) - sum(scores)")
    return text, _define(*lines), answer


def together(rng: random.Random) -> Sample:
    (first, second), (a, b) = rng.sample(_NAMES, 2), rng.sample(range(3, 16), 2)
    text = f"{first} paints a fence alone in {a} hours, {second} in {b} hours. How many hours do both take together? "
    text += "Give the exact value."
    program = "from fractions import Fraction\n\n\n" + _define(f"return 1 / (Fraction(1, {a}) + Fraction(1, {b}))")
    return text, program, Fraction(a * b, a + b)


def ages(rng: random.Random) -> Sample:
    (old, young), child, times, later = (
        rng.sample(_NAMES, 2),
        rng.randint(3, 15),
        rng.randint(2, 5),
        rng.randint(2, 12),
    )
    gap = (times - 1) * (child + later)
    text = f"{old} is {gap} years older than {young}. In {later} years {old} will be {times} times as old as {young} "
    text += f"then. How old is {young} now?"
    lines = ("age = 0", f"while age + {gap} + {later} != {times} * (age + {later}):", "    age += 1", "return age")
    return text, _define(*lines), child


def growth(rng: random.Random) -> Sample:
    start, out, factor, days = rng.randint(3, 20), rng.randint(1, 5), rng.randint(2, 4), rng.randint(3, 6)
    out = min(out, start - 2)
    text = (
        f"A pond has {start} frogs. Every day the number of frogs is multiplied by {factor}, and then {out} of them "
    )
    text += f"leave. How many frogs are there after {days} days?"
    lines = (f"frogs = {start}", f"for _ in range({days}):", f"    frogs = frogs * {factor} - {out}", "return frogs")
    frogs = start
    for _ in range(days):
        frogs = frogs * factor - out
    return text, _define(*lines), frogs


def packs(rng: random.Random) -> Sample:
    (a, b, c), total = rng.sample((2, 3, 4, 5, 7, 9, 10), 3), rng.randint(20, 60)
    text = (
        f"A shop sells nails in packs of {a}, {b} and {c}. In how many ways can one buy exactly {total} nails, if the "
    )
    text += "order of the packs does not matter?"
    ways = [1] + [0] * total
    for size in (a, b, c):
        for filled in range(size, total + 1):
            ways[filled] += ways[filled - size]
    lines = (
        f"ways = [1] + [0] * {total}",
        f"for size in ({a}, {b}, {c}):",
        f"    for total in range(size, {total} + 1):",
    )
    return text, _define(*lines, "        ways[total] += ways[total - size]", f"return ways[{total}]"), ways[total]


FAMILIES: dict[str, Family] = {
    family.__name__: family
    for family in (
        change, groups, sharing, shopping, part, discount, journey, average, together, ages, growth, packs,
    )
}  # fmt: skip
