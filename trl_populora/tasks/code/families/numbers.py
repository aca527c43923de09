"""Programs over ints, floats and fractions of them: loops, helpers and recursion."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, define, floats, forever, integer, ints, source


def digits(rng: random.Random) -> Sample:
    k = rng.randint(2, 5)
    program, message = rng.choice(
        [
            (define("n", "return sum(int(c) for c in str(n))"), "The sum of the decimal digits."),
            (define("n", "s = str(n)", f"return int(s[::-1]) + {k}"), f"Read the digits backwards and add {k}."),
            (
                define("n", "r = 1", "while n:", "    r *= n % 10 or 1", "    n //= 10", "return r"),
                "Multiply the digits, skipping zeros.",
            ),
            (define("n", f"return [int(c) for c in str(n * {k})]"), f"The list of digits of {k} times the number."),
            (
                define("n", "while n > 9:", "    n = sum(map(int, str(n)))", "return n"),
                "Sum digits until one is left.",
            ),
        ]
    )
    return program, forever(lambda: (integer(rng, 10, 9999),)), message


def divisors(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    program, message = rng.choice(
        [
            (define("n", f"return [d for d in range({k}, n + 1) if n % d == 0]"), f"All divisors from {k} up."),
            (define("n", "return sum(d for d in range(1, n) if n % d == 0)"), "The sum of the proper divisors."),
            (define("a, b", "while b:", "    a, b = b, a % b", "return a"), "The greatest common divisor."),
            (
                define("a, b", "r = a", "while r % b:", "    r += a", f"return r + {k}"),
                f"The least common multiple plus {k}.",
            ),
        ]
    )
    if program.startswith("def f(a"):
        return program, forever(lambda: (integer(rng, 2, 60), integer(rng, 2, 60))), message
    return program, forever(lambda: (integer(rng, 6, 80),)), message


def primes(rng: random.Random) -> Sample:
    helper = source("def p(n):", "    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))")
    body, message = rng.choice(
        [
            ("return [i for i in range(n) if p(i)]", "All primes below the number."),
            ("return sum(p(i) for i in range(n + 1))", "How many primes there are up to the number."),
            ("while not p(n):\n        n += 1\n    return n", "The next prime, or the number itself if it is prime."),
            (
                "return sum(i for i in range(n) if p(i) and p(n - i))",
                "Sum of primes that another prime completes to n.",
            ),
        ]
    )
    return source(helper, define("n", body)), forever(lambda: (integer(rng, 3, 50),)), message


def collatz(rng: random.Random) -> Sample:
    k = rng.choice([1, 3])
    step = f"n = n // 2 if n % 2 == 0 else 3 * n + {k}"
    result, what, body = rng.choice(
        [
            ("c", "how many steps were made", ["c = 0", "while n > 9 and c < 20:", f"    {step}", "    c += 1"]),
            (
                "m",
                "the largest value on the way",
                ["m = n", f"for _ in range({rng.randint(4, 8)}):", f"    {step}", "    m = max(m, n)"],
            ),
            ("r", "the path", ["r = [n]", f"for _ in range({rng.randint(3, 5)}):", f"    {step}", "    r.append(n)"]),
        ]
    )
    message = f"Halve even numbers, map odd n to 3n+{k}, for a while: {what}."
    return define("n", *body, f"return {result}"), forever(lambda: (integer(rng, 3, 40),)), message


def recurrence(rng: random.Random) -> Sample:
    a, b, m = rng.randint(0, 3), rng.randint(1, 4), rng.choice([7, 10, 13, 100])
    p, q = rng.randint(1, 3), rng.randint(1, 3)
    program = rng.choice(
        [
            define(
                "n", f"a, b = {a}, {b}", "for _ in range(n):", f"    a, b = b, ({p} * a + {q} * b) % {m}", "return a"
            ),
            source(
                define(
                    "n",
                    "if n < 2:",
                    f"    return [{a}, {b}][n]",
                    f"return ({p} * f(n - 2) + {q} * f(n - 1)) % {m}",
                )
            ),
            source(
                "from functools import lru_cache",
                "@lru_cache(None)",
                "def g(n):",
                f"    return {b} if n == 1 else {a} if n == 0 else ({p} * g(n - 2) + {q} * g(n - 1)) % {m}",
                define("n", "return g(n)"),
            ),
        ]
    )
    message = (
        f"A sequence starts {a}, {b}; the next is {p} times the last but one plus {q} times the last, modulo {m}."
    )
    return program, forever(lambda: (integer(rng, 0, 14),)), message


def bases(rng: random.Random) -> Sample:
    b = rng.randint(2, 7)
    program, message = rng.choice(
        [
            (
                define("n", "s = ''", "while n:", f"    s = str(n % {b}) + s", f"    n //= {b}", "return s or '0'"),
                f"Write the number in base {b}.",
            ),
            (define("n", "return bin(n)[2:].count('1')"), "Count the ones in binary."),
            (
                source(
                    "def g(n):", f"    return [] if n == 0 else g(n // {b}) + [n % {b}]", define("n", "return g(n)")
                ),
                f"The digits in base {b}.",
            ),
            (define("n", f"return n ^ (n >> {rng.randint(1, 2)})"), "Exclusive or with itself shifted right."),
        ]
    )
    return program, forever(lambda: (integer(rng, 1, 300),)), message


def real_mean(rng: random.Random) -> Sample:
    k, d = rng.randint(2, 5), rng.randint(1, 2)
    body, message = rng.choice(
        [
            (f"return round(sum(xs) / len(xs), {d})", f"The mean, to {d} decimals."),
            ("return max(xs) - min(xs)", "The range of the values."),
            (f"return [round(v / {k}, {d}) for v in xs]", f"Each value over {k}, to {d} decimals."),
            ("m = sum(xs) / len(xs)\n    return sum(1 for v in xs if v > m)", "How many values are above the mean."),
            (f"return sorted(xs)[len(xs) // 2] * {k}", f"The upper median times {k}."),
            (
                "m = sum(xs) / len(xs)\n    return round(sum((v - m) ** 2 for v in xs), 3)",
                "Sum of squared deviations.",
            ),
        ]
    )
    return define("xs", body), forever(lambda: (floats(rng),)), message


def polynomial(rng: random.Random) -> Sample:
    a = [rng.randint(-3, 5) for _ in range(rng.randint(2, 4))]
    program, message = rng.choice(
        [
            (
                source(f"A = {a}", define("x", "r = 0", "for c in A:", "    r = r * x + c", "return r")),
                f"The polynomial with coefficients {a}, highest first.",
            ),
            (
                define("x", f"return sum(c * x ** i for i, c in enumerate({a}))"),
                f"The polynomial with coefficients {a}, lowest first.",
            ),
            (define("x", f"g = lambda y: {a[0]} * y + {a[1]}", "return g(g(x))"), f"Apply {a[0]}y + {a[1]} twice."),
        ]
    )
    return program, forever(lambda: (integer(rng, -4, 9),)), message


def steps(rng: random.Random) -> Sample:
    a, b, c = rng.randint(2, 4), rng.randint(2, 5), rng.randint(1, 6)
    program = rng.choice(
        [
            define(
                "x, n",
                "for i in range(n):",
                f"    if x % {a} == 0:",
                f"        x = x // {a} + i",
                "    else:",
                f"        x += {b}",
                "return x",
            ),
            define("x, n", "while n > 0:", f"    x = x + {c} if n % {a} else x * {b} % 17", "    n -= 1", "return x"),
            define(
                "x, n",
                "r = []",
                "for i in range(n):",
                f"    x = (x * {b} + {c}) % {rng.choice([11, 16, 23])}",
                "    r.append(x)",
                "return r",
            ),
        ]
    )
    return program, forever(lambda: (integer(rng, 0, 20), integer(rng, 1, 6))), "Change x by a fixed rule, n times."


def exact(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 4), rng.randint(2, 6)
    program, message = rng.choice(
        [
            (
                source(
                    "from fractions import Fraction",
                    define("p, q", f"x = Fraction(p, q) + Fraction({a}, {b})", "return (x.numerator, x.denominator)"),
                ),
                f"Add {a}/{b} to p/q: numerator and denominator in lowest terms.",
            ),
            (
                source("from math import gcd", define("p, q", "g = gcd(p, q)", f"return [p // g * {a}, q // g]")),
                f"Reduce p/q and take the numerator times {a}.",
            ),
            (
                source("import math", define("p, q", f"return math.comb(p + {a}, q % (p + {b}))")),
                "A binomial coefficient.",
            ),
            (
                source("import math", define("p, q", f"return math.isqrt(p * q + {a})")),
                "The rounded root of a product.",
            ),
        ]
    )
    return program, forever(lambda: (integer(rng, 1, 20), integer(rng, 1, 20))), message


def change(rng: random.Random) -> Sample:
    coins = sorted({1, *rng.sample([2, 3, 4, 5, 7, 10], 2)}, reverse=True)
    program, message = rng.choice(
        [
            (
                define("n", "r = []", f"for c in {coins}:", "    r.append(n // c)", "    n %= c", "return r"),
                f"Pay greedily with coins {coins}: how many of each.",
            ),
            (
                define(
                    "n",
                    "w = [1] + [0] * n",
                    f"for c in {coins}:",
                    "    for i in range(c, n + 1):",
                    "        w[i] += w[i - c]",
                    "return w[n]",
                ),
                f"In how many ways coins {coins} make the amount.",
            ),
            (
                define(
                    "n",
                    "b = [0]",
                    "for i in range(1, n + 1):",
                    f"    b.append(1 + min(b[i - c] for c in {coins} if c <= i))",
                    "return b[n]",
                ),
                f"The fewest coins of {coins} that make the amount.",
            ),
        ]
    )
    return program, forever(lambda: (integer(rng, 1, 40),)), message


def vectors(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    body, message = rng.choice(
        [
            ("return sum(x * y for x, y in zip(a, b))", "The dot product."),
            (f"return [x + {k} * y for x, y in zip(a, b)]", f"The first list plus {k} times the second."),
            ("return max(abs(x - y) for x, y in zip(a, b))", "The largest distance between partners."),
            ("return [max(p) for p in zip(a, b)]", "The larger of each pair."),
            (f"return sum(abs(x - y) for x, y in zip(a, b)) * {k}", f"The total distance times {k}."),
        ]
    )

    def draw() -> tuple:
        n = rng.randint(2, 4)
        return ints(rng, least=n, most=n), ints(rng, least=n, most=n)

    return define("a, b", body), forever(draw), message


NUMBERS = (digits, divisors, primes, vectors, bases, real_mean, polynomial, collatz, recurrence, steps, exact, change)
