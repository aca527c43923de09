"""Programs over lists and tuples: running values, windows, pairs, two pointers, and searching and sorting without the
standard library."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, choose, define, forever, integer, ints, one_of, word, words


def running(rng: random.Random) -> Sample:
    a, m = rng.randint(0, 4), rng.choice([5, 7, 10])
    forms = f"""
        t += v  # running sums
        t = max(t, v)  # running maxima
        t = (t + v) % {m}  # running sums modulo {m}
        t = v - t  # each number minus the result before it
    """
    update, what = choose(rng, forms)
    program = define("xs", f"t = {a}", "r = []", "for v in xs:", f"    {update}", "    r.append(t)", "return r")
    return program, forever(lambda: (ints(rng),)), f"Starting at {a}: {what}."


def neighbours(rng: random.Random) -> Sample:
    k = rng.randint(1, 3)
    forms = f"""
        return [b - a for a, b in zip(xs, xs[1:])]  # Differences of neighbours.
        return [a + b for a, b in zip(xs, xs[1:])]  # Sums of neighbours.
        return sum(1 for a, b in zip(xs, xs[1:]) if b - a >= {k})  # How often it rises by {k} or more.
        return [xs[i - 1] * xs[i] for i in range(len(xs))]  # Products with the one before, around the ring.
        return all(a <= b for a, b in zip(xs, xs[1:]))  # Does it never fall?
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng),))


def unique(rng: random.Random) -> Sample:
    forms = """
        r = []
        for v in xs:
            if v not in r:
                r.append(v)
        return r  # Drop repeats, keep the first.
        return sorted(set(xs))  # The different values in order.
        return len(xs) - len(set(xs))  # How many items are repeats.
        return [v for i, v in enumerate(xs) if v in xs[:i]]  # The items that came before.
        return list(dict.fromkeys(reversed(xs)))  # From the back, drop repeats.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng, 0, 4, least=4, most=7),))


def turn(rng: random.Random) -> Sample:
    k = rng.randint(1, 3)
    forms = f"""
        n %= len(xs)
        return xs[n:] + xs[:n]  # Rotate to the left.
        n = n * {k} % len(xs)
        return xs[-n:] + xs[:-n] if n else xs  # Rotate right by {k} n.
        for _ in range(n):
            xs.append(xs.pop(0))
        return xs  # Move the front to the back, n times.
        return xs[:n][::-1] + xs[n:]  # Turn the first n items around.
        from collections import deque
        def f(xs, n):
            d = deque(xs)
            d.rotate(n + {k})
            return list(d)  # Rotate right by n + {k}.
    """
    return one_of(rng, "xs, n", forms, lambda: (ints(rng, least=3, most=6), integer(rng, 0, 7)))


def chunks(rng: random.Random) -> Sample:
    k = rng.randint(2, 3)
    forms = f"""
        return [xs[i:i + {k}] for i in range(0, len(xs), {k})]  # Split into pieces of {k}.
        return [sum(xs[i:i + {k}]) for i in range(len(xs) - {k - 1})]  # Sums of all windows of {k}.
        return [xs[i::{k}] for i in range({k})]  # Deal into {k} hands.
        return max(sum(xs[i:i + {k}]) for i in range(len(xs)))  # The best window of up to {k}.
        return [max(xs[i:i + {k}]) for i in range(0, len(xs), {k})]  # Largest of each piece of {k}.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng, least=4, most=7),))


def mix(rng: random.Random) -> Sample:
    forms = """
        return [v for p in zip(a, b) for v in p]  # Take turns, stop with the shorter.
        return sorted(a + b)  # All items in order.
        return [v for v in a if v not in b]  # Items of the first that the second lacks.
        r = []
        while a and b:
            r.append(a.pop(0) if a[0] <= b[0] else b.pop(0))
        return r + a + b  # Merge by the smaller head.
        return [(x, y) for x in a for y in b if x < y]  # Pairs with a smaller first.
        return a[:len(b)] + b[len(a):]  # The first list, cut or filled up by the second.
    """
    return one_of(rng, "a, b", forms, lambda: (ints(rng, least=1, most=4), ints(rng, least=1, most=4)))


def search(rng: random.Random) -> Sample:
    k = rng.randint(1, 3)
    forms = f"""
        for i, v in enumerate(xs):
            if v + {k} > t:
                return i
        return -1  # Place of the first item over t minus {k}, or -1.
        xs = sorted(xs)
        a, b, c = 0, len(xs), 0
        while a < b:
            m = (a + b) // 2
            c += 1
            if xs[m] < t:
                a = m + 1
            else:
                b = m
        return a, c  # Binary search in the sorted list: place and number of looks.
        return [(i, j) for i in range(len(xs)) for j in range(i) if xs[i] + xs[j] == t]
        # Places of pairs that sum to t.
        from bisect import bisect_left
        def f(xs, t):
            return bisect_left(sorted(xs), t)  # How many items are below t.
        return min(xs, key=lambda v: (abs(v - t), v))  # The item nearest to t, the smaller on ties.
    """
    return one_of(rng, "xs, t", forms, lambda: (ints(rng, least=3, most=6), integer(rng, 2, 12)))


def by_key(rng: random.Random) -> Sample:
    k = rng.randint(2, 4)
    if rng.random() < 0.5:
        key, what = rng.choice(
            [("(len(w), w)", "length, then alphabet"), ("w[-1] + w", "last letter"), ("w[::-1]", "reading backwards")]
        )
        program = define("ws", f"return sorted(ws, key=lambda w: {key})")
        return program, forever(lambda: (words(rng, least=3),)), f"Order the words by {what}."
    key, what = rng.choice(
        [(f"v % {k}", f"remainder modulo {k}"), ("-v", "size, largest first"), (f"abs(v - {k})", f"distance to {k}")]
    )
    program = rng.choice(
        [
            define("xs", f"return sorted(xs, key=lambda v: ({key}, v))"),
            f"def g(v):\n    return {key}, v\n" + define("xs", "xs.sort(key=g)", "return xs"),
        ]
    )
    return program, forever(lambda: (ints(rng, least=3, most=6),)), f"Order the numbers by {what}."


def swaps(rng: random.Random) -> Sample:
    n = rng.randint(1, 2)
    forms = f"""
        for _ in range({n}):
            for i in range(len(xs) - 1):
                if xs[i] > xs[i + 1]:
                    xs[i], xs[i + 1] = xs[i + 1], xs[i]
        return xs  # {n} rounds of bubble sort.
        c = 0
        for i in range(len(xs)):
            for j in range(i):
                c += xs[j] > xs[i]
        return c  # Count the inversions.
        a, b = 0, len(xs) - 1
        while a < b:
            if xs[a] > xs[b]:
                xs[a], xs[b] = xs[b], xs[a]
            a, b = a + 1, b - 1
        return xs  # Compare mirrored places and swap if the left is larger.
        p, *r = xs
        return [v for v in r if v < p] + [p] + [v for v in r if v >= p]  # Split around the first item.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng, least=3, most=6),))


def pairs(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    forms = f"""
        return [(b, a) for a, b in ps]  # Swap inside each pair.
        return sorted(ps, key=lambda p: (p[1], p[0]))  # Order by name.
        return [b for a, b in ps if a > {k}]  # Names with a number over {k}.
        return max(ps)[1]  # The name of the largest pair.
        return tuple(a * {k} for a, b in ps)  # The numbers times {k}, as a tuple.
        return sum(a for a, b in ps), ''.join(b[0] for a, b in ps)  # Sum of numbers, first letters.
    """
    return one_of(rng, "ps", forms, lambda: ([(rng.randint(0, 9), word(rng)) for _ in range(rng.randint(2, 4))],))


SEQUENCES = (running, neighbours, unique, pairs, turn, chunks, mix, by_key, search, swaps)
