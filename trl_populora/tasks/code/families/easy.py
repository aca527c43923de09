"""Programs of one to four lines over small ints, short lists and short strings.

A model of a million parameters must be able to learn these, so they share a few short names and forms.
"""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, define, forever, integer, ints, letters


def add(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 9), rng.randint(2, 5)
    body, message = rng.choice(
        [
            (f"return x + {a}", f"Add {a}."),
            (f"return {a} - x", f"Subtract from {a}."),
            (f"return x * {b} + {a}", f"Times {b}, then add {a}."),
            (f"return (x + {a}) * {b}", f"Add {a}, then times {b}."),
            (f"return x * x + {a}", f"Square, then add {a}."),
        ]
    )
    return define("x", body), forever(lambda: (integer(rng, 0, 20),)), message


def each(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 9), rng.randint(2, 4)
    change, what = rng.choice(
        [
            (f"v + {a}", f"plus {a}"),
            (f"v * {b}", f"times {b}"),
            (f"{a} - v", f"taken from {a}"),
            (f"v % {b}", f"modulo {b}"),
            ("v * v", "squared"),
        ]
    )
    program = rng.choice(
        [
            define("xs", f"return [{change} for v in xs]"),
            define("xs", f"return list(map(lambda v: {change}, xs))"),
            define("xs", "r = []", "for v in xs:", f"    r.append({change})", "return r"),
        ]
    )
    return program, forever(lambda: (ints(rng),)), f"Each number {what}."


def keep(rng: random.Random) -> Sample:
    a, b = rng.randint(2, 6), rng.randint(2, 3)
    test, what = rng.choice(
        [
            (f"v > {a}", f"over {a}"),
            (f"v < {a}", f"below {a}"),
            (f"v != {a}", f"other than {a}"),
            (f"v % {b} == 0", f"that {b} divides"),
            ("v % 2 == 1", "that are odd"),
        ]
    )
    program = rng.choice(
        [
            define("xs", f"return [v for v in xs if {test}]"),
            define("xs", f"return list(filter(lambda v: {test}, xs))"),
            define("xs", "r = []", "for v in xs:", f"    if {test}:", "        r.append(v)", "return r"),
        ]
    )
    return program, forever(lambda: (ints(rng),)), f"Keep the numbers {what}."


def total(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 9), rng.randint(2, 4)
    body, message = rng.choice(
        [
            ("return sum(xs)", "The sum."),
            (f"return sum(xs) + {a}", f"The sum plus {a}."),
            (f"return sum(xs) * {b}", f"The sum times {b}."),
            ("return sum(xs[1:])", "The sum without the first number."),
            ("return sum(xs) - xs[0] * 2", "The sum minus twice the first number."),
            ("return sum(xs) // len(xs)", "The mean, rounded down."),
        ]
    )
    return define("xs", body), forever(lambda: (ints(rng),)), message


def extreme(rng: random.Random) -> Sample:
    a = rng.randint(1, 9)
    best = rng.choice(["max", "min"])
    name = {"max": "largest", "min": "smallest"}[best]
    body, message = rng.choice(
        [
            (f"return {best}(xs)", f"The {name} number."),
            (f"return {best}(xs) + {a}", f"The {name} number plus {a}."),
            (f"return {best}(xs[1:])", f"The {name} number after the first."),
            (f"return {best}(len(xs), {rng.randint(3, 4)}, xs[0])", f"The {name} of length, a constant and first."),
            ("return max(xs) - min(xs)", "The spread of the numbers."),
        ]
    )
    return define("xs", body), forever(lambda: (ints(rng),)), message


def reverse(rng: random.Random) -> Sample:
    a = rng.randint(1, 9)
    if rng.random() < 0.5:
        body, message = rng.choice(
            [
                ("return xs[::-1]", "Turn the list around."),
                (f"return xs[::-1] + [{a}]", f"Turn the list around and put {a} at the end."),
                (f"return [{a}] + xs[::-1]", f"Turn the list around and put {a} in front."),
                ("return list(reversed(xs[1:]))", "Turn the list around without its first item."),
            ]
        )
        return define("xs", body), forever(lambda: (ints(rng),)), message
    tail = rng.choice("abc")
    body, message = rng.choice(
        [
            ("return s[::-1]", "Turn the string around."),
            (f"return s[::-1] + '{tail}'", f"Turn the string around and put {tail} at the end."),
            ("return s[::-1] + s[0]", "Turn the string around and repeat its old first letter."),
        ]
    )
    return define("s", body), forever(lambda: (letters(rng),)), message


def cut(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 2), rng.randint(2, 3)
    piece, what = rng.choice(
        [
            (f"[{a}:]", f"without its first {a}"),
            (f"[:{b}]", f"only its first {b}"),
            (f"[-{b}:]", f"only its last {b}"),
            (f"[{a}:-1]", f"without its first {a} and its last"),
            ("[::2]", "every second item"),
        ]
    )
    if rng.random() < 0.5:
        return define("xs", f"return xs{piece}"), forever(lambda: (ints(rng, least=4, most=6),)), f"The list, {what}."
    return define("s", f"return s{piece}"), forever(lambda: (letters(rng, "abcd", least=4),)), f"The string, {what}."


def branch(rng: random.Random) -> Sample:
    a, b, c = rng.randint(3, 9), rng.randint(1, 9), rng.randint(1, 5)
    test, what = rng.choice([(f"x > {a}", f"over {a}"), (f"x < {a}", f"below {a}"), ("x % 2 == 0", "even")])
    program = rng.choice(
        [
            define("x", f"if {test}:", f"    return x + {b}", f"return x - {c}"),
            define("x", f"return x + {b} if {test} else x - {c}"),
            define("x", f"if {test}:", f"    x = x + {b}", "else:", f"    x = x - {c}", "return x"),
        ]
    )
    return program, forever(lambda: (integer(rng, 0, 15),)), f"Add {b} when {what}, else subtract {c}."


def order(rng: random.Random) -> Sample:
    a = rng.randint(1, 3)
    body, message = rng.choice(
        [
            ("return sorted(xs)", "Sort upwards."),
            ("return sorted(xs)[::-1]", "Sort downwards."),
            ("return sorted(xs, reverse=True)", "Sort downwards."),
            (f"return sorted(xs)[:{a}]", f"The {a} smallest, upwards."),
            ("return sorted(xs)[1]", "The second smallest."),
        ]
    )
    return define("xs", body), forever(lambda: (ints(rng),)), message


def count(rng: random.Random) -> Sample:
    a, letter = rng.randint(3, 6), rng.choice("abc")
    if rng.random() < 0.4:
        body = rng.choice([f"return s.count('{letter}')", f"return len([c for c in s if c == '{letter}'])"])
        return define("s", body), forever(lambda: (letters(rng, least=3, most=7),)), f"How often {letter} occurs."
    program, message = rng.choice(
        [
            (define("xs", f"return len([v for v in xs if v > {a}])"), f"How many numbers are over {a}."),
            (define("xs", f"return sum(1 for v in xs if v < {a})"), f"How many numbers are below {a}."),
            (
                define("xs", "r = 0", "for v in xs:", f"    if v > {a}:", "        r += 1", "return r"),
                f"Count over {a}.",
            ),
            (define("xs", "return len(xs) - xs.count(xs[0])"), "How many numbers differ from the first."),
        ]
    )
    return program, forever(lambda: (ints(rng),)), message


def join(rng: random.Random) -> Sample:
    a, n, tail = rng.randint(1, 9), rng.randint(2, 3), letters(rng, least=1, most=2)
    if rng.random() < 0.5:
        body, message = rng.choice(
            [
                (f"return xs + [{a}]", f"Put {a} at the end."),
                (f"return [{a}] + xs", f"Put {a} in front."),
                ("return xs + xs[:1]", "Repeat the first item at the end."),
                (f"return xs * {n}", f"Repeat the list {n} times."),
            ]
        )
        return define("xs", body), forever(lambda: (ints(rng, most=4),)), message
    body, message = rng.choice(
        [
            (f"return s + '{tail}'", f"Put {tail} at the end."),
            (f"return '{tail}' + s", f"Put {tail} in front."),
            (f"return s * {n}", f"Repeat the string {n} times."),
            ("return s[0] + s + s[-1]", "Double the first and the last letter."),
        ]
    )
    return define("s", body), forever(lambda: (letters(rng, most=5),)), message


def repeat(rng: random.Random) -> Sample:
    a, b = rng.randint(0, 5), rng.randint(2, 4)
    step, what = rng.choice(
        [
            ("r += i", "the numbers below it"),
            (f"r += {b}", f"{b} that many times"),
            (f"r += i * {b}", f"{b} times the numbers below it"),
            ("r += i * i", "the squares below it"),
        ]
    )
    program = define("n", f"r = {a}", "for i in range(n):", f"    {step}", "return r")
    return program, forever(lambda: (integer(rng, 0, 9),)), f"Start at {a} and add {what}."


def pick(rng: random.Random) -> Sample:
    a, b = rng.randint(0, 2), rng.randint(1, 9)
    body, message = rng.choice(
        [
            (f"return xs[{a}]", f"The item at place {a}, counted from 0."),
            ("return xs[-1]", "The last item."),
            ("return xs[0] + xs[-1]", "First plus last."),
            ("return [xs[-1], xs[0]]", "Last and first."),
            (f"return xs[{a}] * {b}", f"The item at place {a}, times {b}."),
        ]
    )
    return define("xs", body), forever(lambda: (ints(rng),)), message


def two(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 5), rng.randint(2, 4)
    body, message = rng.choice(
        [
            ("return x + y", "Add the two."),
            (f"return x * {b} + y", f"The first times {b}, plus the second."),
            (f"return x - y + {a}", f"The difference plus {a}."),
            ("return max(x, y)", "The larger one."),
            ("return [y, x]", "Swap the two."),
            ("return x * y", "Multiply the two."),
        ]
    )
    return define("x, y", body), forever(lambda: (integer(rng, 0, 12), integer(rng, 0, 12))), message


def span(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 4), rng.randint(2, 4)
    body, message = rng.choice(
        [
            ("return list(range(n))", "Count up from 0."),
            (f"return list(range({a}, n + {a}))", f"Count up from {a}."),
            (f"return [i * {b} for i in range(n)]", f"Multiples of {b}."),
            (f"return [{a}] * n", f"That many times {a}."),
            ("return list(range(n, 0, -1))", "Count down to 1."),
        ]
    )
    return define("n", body), forever(lambda: (integer(rng, 0, 9),)), message


def yes_no(rng: random.Random) -> Sample:
    a, b = rng.randint(2, 7), rng.randint(2, 3)
    if rng.random() < 0.5:
        body, message = rng.choice(
            [
                (f"return x > {a}", f"Is it over {a}?"),
                (f"return x % {b} == 0", f"Does {b} divide it?"),
                (f"return {a} < x < {a + 5}", f"Is it between {a} and {a + 5}?"),
            ]
        )
        return define("x", body), forever(lambda: (integer(rng, 0, 15),)), message
    body, message = rng.choice(
        [
            (f"return {a} in xs", f"Does {a} occur?"),
            (f"return sum(xs) > {a * 3}", f"Is the sum over {a * 3}?"),
            ("return xs[0] < xs[-1]", "Is the first item below the last?"),
        ]
    )
    return define("xs", body), forever(lambda: (ints(rng),)), message


def letter_case(rng: random.Random) -> Sample:
    old, new = rng.sample("abc", 2)
    body, message = rng.choice(
        [
            ("return s.upper()", "In capitals."),
            (f"return s.replace('{old}', '{new}')", f"Write {new} for every {old}."),
            (f"return s.replace('{old}', '')", f"Leave out every {old}."),
            ("return s[0].upper() + s[1:]", "Capital first letter."),
            ("return list(s)", "The list of letters."),
            ("return ''.join(sorted(s))", "The letters in order."),
        ]
    )
    return define("s", body), forever(lambda: (letters(rng),)), message


EASY = (add, each, keep, total, extreme, reverse, cut, branch, order, count, join, repeat, pick, two, span, yes_no)
EASY += (letter_case,)
