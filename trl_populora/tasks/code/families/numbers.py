"""Programs over ints, floats and fractions: loops, helper functions and recursion."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, floats, forever, integer, ints, one_of


def digits(rng: random.Random) -> Sample:
    k = rng.randint(2, 5)
    forms = f"""
        return sum(int(c) for c in str(n))  # The sum of the decimal digits.
        s = str(n)
        return int(s[::-1]) + {k}  # Read the digits backwards and add {k}.
        r = 1
        while n:
            r *= n % 10 or 1
            n //= 10
        return r  # Multiply the digits, skipping zeros.
        return [int(c) for c in str(n * {k})]  # The list of digits of {k} times the number.
        while n > 9:
            n = sum(map(int, str(n)))
        return n  # Sum digits until one is left.
    """
    return one_of(rng, "n", forms, lambda: (integer(rng, 10, 9999),))


def divisors(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    forms = f"""
        return [d for d in range({k}, n + 1) if n % d == 0]  # All divisors from {k} up.
        return sum(d for d in range(1, n) if n % d == 0)  # The sum of the proper divisors.
        def f(a, b):
            while b:
                a, b = b, a % b
            return a  # The greatest common divisor.
        def f(a, b):
            r = a
            while r % b:
                r += a
            return r + {k}  # The least common multiple plus {k}.
    """
    program, supply, message = one_of(rng, "n", forms, lambda: (integer(rng, 6, 80),))
    if program.startswith("def f(a"):
        supply = forever(lambda: (integer(rng, 2, 60), integer(rng, 2, 60)))
    return program, supply, message


def primes(rng: random.Random) -> Sample:
    forms = """
        return [i for i in range(n) if p(i)]  # All primes below the number.
        return sum(p(i) for i in range(n + 1))  # How many primes there are up to the number.
        while not p(n):
            n += 1
        return n  # The next prime, or the number itself if it is prime.
        return sum(i for i in range(n) if p(i) and p(n - i))  # Sum of primes that a prime completes to n.
    """
    program, supply, message = one_of(rng, "n", forms, lambda: (integer(rng, 3, 50),))
    helper = "def p(n):\n    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))"
    return f"{helper}\n{program}", supply, message


def collatz(rng: random.Random) -> Sample:
    k = rng.choice([1, 3])
    step = f"n = n // 2 if n % 2 == 0 else 3 * n + {k}"
    forms = f"""
        c = 0
        while n > 9 and c < 20:
            {step}
            c += 1
        return c  # how many steps were made
        m = n
        for _ in range({rng.randint(4, 8)}):
            {step}
            m = max(m, n)
        return m  # the largest value on the way
        r = [n]
        for _ in range({rng.randint(3, 5)}):
            {step}
            r.append(n)
        return r  # the path
    """
    program, supply, what = one_of(rng, "n", forms, lambda: (integer(rng, 3, 40),))
    return program, supply, f"Halve even numbers, map odd n to 3n+{k}, for a while: {what}."


def recurrence(rng: random.Random) -> Sample:
    a, b, m = rng.randint(0, 3), rng.randint(1, 4), rng.choice([7, 10, 13, 100])
    p, q = rng.randint(1, 3), rng.randint(1, 3)
    message = f"A sequence starts {a}, {b}; the next is {p} times the last but one plus {q} times the last, "
    message += f"modulo {m}."
    forms = f"""
        a, b = {a}, {b}
        for _ in range(n):
            a, b = b, ({p} * a + {q} * b) % {m}
        return a  # {message}
        if n < 2:
            return [{a}, {b}][n]
        return ({p} * f(n - 2) + {q} * f(n - 1)) % {m}  # {message}
        from functools import lru_cache
        @lru_cache(None)
        def g(n):
            return {b} if n == 1 else {a} if n == 0 else ({p} * g(n - 2) + {q} * g(n - 1)) % {m}
        def f(n):
            return g(n)  # {message}
    """
    return one_of(rng, "n", forms, lambda: (integer(rng, 0, 14),))


def bases(rng: random.Random) -> Sample:
    b = rng.randint(2, 7)
    forms = f"""
        s = ''
        while n:
            s = str(n % {b}) + s
            n //= {b}
        return s or '0'  # Write the number in base {b}.
        return bin(n)[2:].count('1')  # Count the ones in binary.
        def g(n):
            return [] if n == 0 else g(n // {b}) + [n % {b}]
        def f(n):
            return g(n)  # The digits in base {b}.
        return n ^ (n >> {rng.randint(1, 2)})  # Exclusive or with itself shifted right.
    """
    return one_of(rng, "n", forms, lambda: (integer(rng, 1, 300),))


def real_mean(rng: random.Random) -> Sample:
    k, d = rng.randint(2, 5), rng.randint(1, 2)
    forms = f"""
        return round(sum(xs) / len(xs), {d})  # The mean, to {d} decimals.
        return max(xs) - min(xs)  # The range of the values.
        return [round(v / {k}, {d}) for v in xs]  # Each value over {k}, to {d} decimals.
        m = sum(xs) / len(xs)
        return sum(1 for v in xs if v > m)  # How many values are above the mean.
        return sorted(xs)[len(xs) // 2] * {k}  # The upper median times {k}.
        m = sum(xs) / len(xs)
        return round(sum((v - m) ** 2 for v in xs), 3)  # Sum of squared deviations.
    """
    return one_of(rng, "xs", forms, lambda: (floats(rng),))


def polynomial(rng: random.Random) -> Sample:
    a = [rng.randint(-3, 5) for _ in range(rng.randint(2, 4))]
    forms = f"""
        A = {a}
        def f(x):
            r = 0
            for c in A:
                r = r * x + c
            return r  # The polynomial with coefficients {a}, highest first.
        return sum(c * x ** i for i, c in enumerate({a}))  # The polynomial with coefficients {a}, lowest first.
        g = lambda y: {a[0]} * y + {a[1]}
        return g(g(x))  # Apply {a[0]}y + {a[1]} twice.
    """
    return one_of(rng, "x", forms, lambda: (integer(rng, -4, 9),))


def steps(rng: random.Random) -> Sample:
    a, b, c = rng.randint(2, 4), rng.randint(2, 5), rng.randint(1, 6)
    forms = f"""
        for i in range(n):
            if x % {a} == 0:
                x = x // {a} + i
            else:
                x += {b}
        return x  # Change x by a fixed rule, n times.
        while n > 0:
            x = x + {c} if n % {a} else x * {b} % 17
            n -= 1
        return x  # Change x by a fixed rule, n times.
        r = []
        for i in range(n):
            x = (x * {b} + {c}) % {rng.choice([11, 16, 23])}
            r.append(x)
        return r  # Change x by a fixed rule, n times.
    """
    return one_of(rng, "x, n", forms, lambda: (integer(rng, 0, 20), integer(rng, 1, 6)))


def exact(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 4), rng.randint(2, 6)
    forms = f"""
        from fractions import Fraction
        def f(p, q):
            x = Fraction(p, q) + Fraction({a}, {b})
            return (x.numerator, x.denominator)  # Add {a}/{b} to p/q: numerator and denominator in lowest terms.
        from math import gcd
        def f(p, q):
            g = gcd(p, q)
            return [p // g * {a}, q // g]  # Reduce p/q and take the numerator times {a}.
        import math
        def f(p, q):
            return math.comb(p + {a}, q % (p + {b}))  # A binomial coefficient.
        import math
        def f(p, q):
            return math.isqrt(p * q + {a})  # The rounded root of a product.
    """
    return one_of(rng, "p, q", forms, lambda: (integer(rng, 1, 20), integer(rng, 1, 20)))


def change(rng: random.Random) -> Sample:
    coins = sorted({1, *rng.sample([2, 3, 4, 5, 7, 10], 2)}, reverse=True)
    forms = f"""
        r = []
        for c in {coins}:
            r.append(n // c)
            n %= c
        return r  # Pay greedily with coins {coins}: how many of each.
        w = [1] + [0] * n
        for c in {coins}:
            for i in range(c, n + 1):
                w[i] += w[i - c]
        return w[n]  # In how many ways coins {coins} make the amount.
        b = [0]
        for i in range(1, n + 1):
            b.append(1 + min(b[i - c] for c in {coins} if c <= i))
        return b[n]  # The fewest coins of {coins} that make the amount.
    """
    return one_of(rng, "n", forms, lambda: (integer(rng, 1, 40),))


def vectors(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    forms = f"""
        return sum(x * y for x, y in zip(a, b))  # The dot product.
        return [x + {k} * y for x, y in zip(a, b)]  # The first list plus {k} times the second.
        return max(abs(x - y) for x, y in zip(a, b))  # The largest distance between partners.
        return [max(p) for p in zip(a, b)]  # The larger of each pair.
        return sum(abs(x - y) for x, y in zip(a, b)) * {k}  # The total distance times {k}.
    """

    def draw() -> tuple:
        n = rng.randint(2, 4)
        return ints(rng, least=n, most=n), ints(rng, least=n, most=n)

    return one_of(rng, "a, b", forms, draw)


NUMBERS = (digits, divisors, primes, vectors, bases, real_mean, polynomial, collatz, recurrence, steps, exact, change)
