"""Programs of one to four lines over small ints, short lists and short strings.

They use only a few short names and forms, so that a model of a million parameters can learn them.
"""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, choose, define, forever, integer, ints, letters, one_of


def add(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 9), rng.randint(2, 5)
    forms = f"""
        return x + {a}  # Add {a}.
        return {a} - x  # Subtract from {a}.
        return x * {b} + {a}  # Times {b}, then add {a}.
        return (x + {a}) * {b}  # Add {a}, then times {b}.
        return x * x + {a}  # Square, then add {a}.
    """
    return one_of(rng, "x", forms, lambda: (integer(rng, 0, 20),))


def each(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 9), rng.randint(2, 4)
    forms = f"""
        v + {a}  # plus {a}
        v * {b}  # times {b}
        {a} - v  # taken from {a}
        v % {b}  # modulo {b}
        v * v  # squared
    """
    change, what = choose(rng, forms)
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
    forms = f"""
        v > {a}  # over {a}
        v < {a}  # below {a}
        v != {a}  # other than {a}
        v % {b} == 0  # that {b} divides
        v % 2 == 1  # that are odd
    """
    test, what = choose(rng, forms)
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
    forms = f"""
        return sum(xs)  # The sum.
        return sum(xs) + {a}  # The sum plus {a}.
        return sum(xs) * {b}  # The sum times {b}.
        return sum(xs[1:])  # The sum without the first number.
        return sum(xs) - xs[0] * 2  # The sum minus twice the first number.
        return sum(xs) // len(xs)  # The mean, rounded down.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng),))


def extreme(rng: random.Random) -> Sample:
    a = rng.randint(1, 9)
    best = rng.choice(["max", "min"])
    name = {"max": "largest", "min": "smallest"}[best]
    forms = f"""
        return {best}(xs)  # The {name} number.
        return {best}(xs) + {a}  # The {name} number plus {a}.
        return {best}(xs[1:])  # The {name} number after the first.
        return {best}(len(xs), {rng.randint(3, 4)}, xs[0])  # The {name} of length, a constant and first.
        return max(xs) - min(xs)  # The spread of the numbers.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng),))


def reverse(rng: random.Random) -> Sample:
    a = rng.randint(1, 9)
    if rng.random() < 0.5:
        forms = f"""
            return xs[::-1]  # Turn the list around.
            return xs[::-1] + [{a}]  # Turn the list around and put {a} at the end.
            return [{a}] + xs[::-1]  # Turn the list around and put {a} in front.
            return list(reversed(xs[1:]))  # Turn the list around without its first item.
        """
        return one_of(rng, "xs", forms, lambda: (ints(rng),))
    tail = rng.choice("abc")
    forms = f"""
        return s[::-1]  # Turn the string around.
        return s[::-1] + '{tail}'  # Turn the string around and put {tail} at the end.
        return s[::-1] + s[0]  # Turn the string around and repeat its old first letter.
    """
    return one_of(rng, "s", forms, lambda: (letters(rng),))


def cut(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 2), rng.randint(2, 3)
    forms = f"""
        [{a}:]  # without its first {a}
        [:{b}]  # only its first {b}
        [-{b}:]  # only its last {b}
        [{a}:-1]  # without its first {a} and its last
        [::2]  # every second item
    """
    piece, what = choose(rng, forms)
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
    forms = f"""
        return sorted(xs)  # Sort upwards.
        return sorted(xs)[::-1]  # Sort downwards.
        return sorted(xs, reverse=True)  # Sort downwards.
        return sorted(xs)[:{a}]  # The {a} smallest, upwards.
        return sorted(xs)[1]  # The second smallest.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng),))


def count(rng: random.Random) -> Sample:
    a, letter = rng.randint(3, 6), rng.choice("abc")
    if rng.random() < 0.4:
        body = rng.choice([f"return s.count('{letter}')", f"return len([c for c in s if c == '{letter}'])"])
        return define("s", body), forever(lambda: (letters(rng, least=3, most=7),)), f"How often {letter} occurs."
    forms = f"""
        return len([v for v in xs if v > {a}])  # How many numbers are over {a}.
        return sum(1 for v in xs if v < {a})  # How many numbers are below {a}.
        r = 0
        for v in xs:
            if v > {a}:
                r += 1
        return r  # Count over {a}.
        return len(xs) - xs.count(xs[0])  # How many numbers differ from the first.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng),))


def join(rng: random.Random) -> Sample:
    a, n, tail = rng.randint(1, 9), rng.randint(2, 3), letters(rng, least=1, most=2)
    if rng.random() < 0.5:
        forms = f"""
            return xs + [{a}]  # Put {a} at the end.
            return [{a}] + xs  # Put {a} in front.
            return xs + xs[:1]  # Repeat the first item at the end.
            return xs * {n}  # Repeat the list {n} times.
        """
        return one_of(rng, "xs", forms, lambda: (ints(rng, most=4),))
    forms = f"""
        return s + '{tail}'  # Put {tail} at the end.
        return '{tail}' + s  # Put {tail} in front.
        return s * {n}  # Repeat the string {n} times.
        return s[0] + s + s[-1]  # Double the first and the last letter.
    """
    return one_of(rng, "s", forms, lambda: (letters(rng, most=5),))


def repeat(rng: random.Random) -> Sample:
    a, b = rng.randint(0, 5), rng.randint(2, 4)
    forms = f"""
        r += i  # the numbers below it
        r += {b}  # {b} that many times
        r += i * {b}  # {b} times the numbers below it
        r += i * i  # the squares below it
    """
    step, what = choose(rng, forms)
    program = define("n", f"r = {a}", "for i in range(n):", f"    {step}", "return r")
    return program, forever(lambda: (integer(rng, 0, 9),)), f"Start at {a} and add {what}."


def pick(rng: random.Random) -> Sample:
    a, b = rng.randint(0, 2), rng.randint(1, 9)
    forms = f"""
        return xs[{a}]  # The item at place {a}, counted from 0.
        return xs[-1]  # The last item.
        return xs[0] + xs[-1]  # First plus last.
        return [xs[-1], xs[0]]  # Last and first.
        return xs[{a}] * {b}  # The item at place {a}, times {b}.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng),))


def two(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 5), rng.randint(2, 4)
    forms = f"""
        return x + y  # Add the two.
        return x * {b} + y  # The first times {b}, plus the second.
        return x - y + {a}  # The difference plus {a}.
        return max(x, y)  # The larger one.
        return [y, x]  # Swap the two.
        return x * y  # Multiply the two.
    """
    return one_of(rng, "x, y", forms, lambda: (integer(rng, 0, 12), integer(rng, 0, 12)))


def span(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 4), rng.randint(2, 4)
    forms = f"""
        return list(range(n))  # Count up from 0.
        return list(range({a}, n + {a}))  # Count up from {a}.
        return [i * {b} for i in range(n)]  # Multiples of {b}.
        return [{a}] * n  # That many times {a}.
        return list(range(n, 0, -1))  # Count down to 1.
    """
    return one_of(rng, "n", forms, lambda: (integer(rng, 0, 9),))


def yes_no(rng: random.Random) -> Sample:
    a, b = rng.randint(2, 7), rng.randint(2, 3)
    if rng.random() < 0.5:
        forms = f"""
            return x > {a}  # Is it over {a}?
            return x % {b} == 0  # Does {b} divide it?
            return {a} < x < {a + 5}  # Is it between {a} and {a + 5}?
        """
        return one_of(rng, "x", forms, lambda: (integer(rng, 0, 15),))
    forms = f"""
        return {a} in xs  # Does {a} occur?
        return sum(xs) > {a * 3}  # Is the sum over {a * 3}?
        return xs[0] < xs[-1]  # Is the first item below the last?
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng),))


def letter_case(rng: random.Random) -> Sample:
    old, new = rng.sample("abc", 2)
    forms = f"""
        return s.upper()  # In capitals.
        return s.replace('{old}', '{new}')  # Write {new} for every {old}.
        return s.replace('{old}', '')  # Leave out every {old}.
        return s[0].upper() + s[1:]  # Capital first letter.
        return list(s)  # The list of letters.
        return ''.join(sorted(s))  # The letters in order.
    """
    return one_of(rng, "s", forms, lambda: (letters(rng),))


EASY = (add, each, keep, total, extreme, reverse, cut, branch, order, count, join, repeat, pick, two, span, yes_no)
EASY += (letter_case,)
