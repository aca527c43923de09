"""Programs over lists and tuples: running state, windows, pairs, two pointers, searching and sorting by hand."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, define, forever, integer, ints, source, word, words


def running(rng: random.Random) -> Sample:
    a, m = rng.randint(0, 4), rng.choice([5, 7, 10])
    update, what = rng.choice(
        [
            ("t += v", "running sums"),
            ("t = max(t, v)", "running maxima"),
            (f"t = (t + v) % {m}", f"running sums modulo {m}"),
            ("t = v - t", "each number minus the result before it"),
        ]
    )
    program = define("xs", f"t = {a}", "r = []", "for v in xs:", f"    {update}", "    r.append(t)", "return r")
    return program, forever(lambda: (ints(rng),)), f"Starting at {a}: {what}."


def neighbours(rng: random.Random) -> Sample:
    k = rng.randint(1, 3)
    body, message = rng.choice(
        [
            ("return [b - a for a, b in zip(xs, xs[1:])]", "Differences of neighbours."),
            ("return [a + b for a, b in zip(xs, xs[1:])]", "Sums of neighbours."),
            (f"return sum(1 for a, b in zip(xs, xs[1:]) if b - a >= {k})", f"How often it rises by {k} or more."),
            ("return [xs[i - 1] * xs[i] for i in range(len(xs))]", "Products with the one before, around the ring."),
            ("return all(a <= b for a, b in zip(xs, xs[1:]))", "Does it never fall?"),
        ]
    )
    return define("xs", body), forever(lambda: (ints(rng),)), message


def unique(rng: random.Random) -> Sample:
    program, message = rng.choice(
        [
            (
                define("xs", "r = []", "for v in xs:", "    if v not in r:", "        r.append(v)", "return r"),
                "Drop repeats, keep the first.",
            ),
            (define("xs", "return sorted(set(xs))"), "The different values in order."),
            (define("xs", "return len(xs) - len(set(xs))"), "How many items are repeats."),
            (define("xs", "return [v for i, v in enumerate(xs) if v in xs[:i]]"), "The items that came before."),
            (define("xs", "return list(dict.fromkeys(reversed(xs)))"), "From the back, drop repeats."),
        ]
    )
    return program, forever(lambda: (ints(rng, 0, 4, least=4, most=7),)), message


def turn(rng: random.Random) -> Sample:
    k = rng.randint(1, 3)
    program, message = rng.choice(
        [
            (define("xs, n", "n %= len(xs)", "return xs[n:] + xs[:n]"), "Rotate to the left."),
            (
                define("xs, n", f"n = n * {k} % len(xs)", "return xs[-n:] + xs[:-n] if n else xs"),
                f"Rotate right by {k} n.",
            ),
            (
                define("xs, n", "for _ in range(n):", "    xs.append(xs.pop(0))", "return xs"),
                "Move the front to the back, n times.",
            ),
            (define("xs, n", "return xs[:n][::-1] + xs[n:]"), "Turn the first n items around."),
            (
                source(
                    "from collections import deque",
                    define("xs, n", "d = deque(xs)", f"d.rotate(n + {k})", "return list(d)"),
                ),
                f"Rotate right by n + {k}.",
            ),
        ]
    )
    return program, forever(lambda: (ints(rng, least=3, most=6), integer(rng, 0, 7))), message


def chunks(rng: random.Random) -> Sample:
    k = rng.randint(2, 3)
    body, message = rng.choice(
        [
            (f"return [xs[i:i + {k}] for i in range(0, len(xs), {k})]", f"Split into pieces of {k}."),
            (f"return [sum(xs[i:i + {k}]) for i in range(len(xs) - {k - 1})]", f"Sums of all windows of {k}."),
            (f"return [xs[i::{k}] for i in range({k})]", f"Deal into {k} hands."),
            (f"return max(sum(xs[i:i + {k}]) for i in range(len(xs)))", f"The best window of up to {k}."),
            (f"return [max(xs[i:i + {k}]) for i in range(0, len(xs), {k})]", f"Largest of each piece of {k}."),
        ]
    )
    return define("xs", body), forever(lambda: (ints(rng, least=4, most=7),)), message


def mix(rng: random.Random) -> Sample:
    program, message = rng.choice(
        [
            (define("a, b", "return [v for p in zip(a, b) for v in p]"), "Take turns, stop with the shorter."),
            (define("a, b", "return sorted(a + b)"), "All items in order."),
            (define("a, b", "return [v for v in a if v not in b]"), "Items of the first that the second lacks."),
            (
                define(
                    "a, b",
                    "r = []",
                    "while a and b:",
                    "    r.append(a.pop(0) if a[0] <= b[0] else b.pop(0))",
                    "return r + a + b",
                ),
                "Merge by the smaller head.",
            ),
            (define("a, b", "return [(x, y) for x in a for y in b if x < y]"), "Pairs with a smaller first."),
            (define("a, b", "return a[:len(b)] + b[len(a):]"), "The first list, cut or filled up by the second."),
        ]
    )
    return program, forever(lambda: (ints(rng, least=1, most=4), ints(rng, least=1, most=4))), message


def search(rng: random.Random) -> Sample:
    k = rng.randint(1, 3)
    program, message = rng.choice(
        [
            (
                define("xs, t", "for i, v in enumerate(xs):", f"    if v + {k} > t:", "        return i", "return -1"),
                f"Place of the first item over t minus {k}, or -1.",
            ),
            (
                define(
                    "xs, t",
                    "xs = sorted(xs)",
                    "a, b, c = 0, len(xs), 0",
                    "while a < b:",
                    "    m = (a + b) // 2",
                    "    c += 1",
                    "    if xs[m] < t:",
                    "        a = m + 1",
                    "    else:",
                    "        b = m",
                    "return a, c",
                ),
                "Binary search in the sorted list: place and number of looks.",
            ),
            (
                define("xs, t", "return [(i, j) for i in range(len(xs)) for j in range(i) if xs[i] + xs[j] == t]"),
                "Places of pairs that sum to t.",
            ),
            (
                source("from bisect import bisect_left", define("xs, t", "return bisect_left(sorted(xs), t)")),
                "How many items are below t.",
            ),
            (
                define("xs, t", "return min(xs, key=lambda v: (abs(v - t), v))"),
                "The item nearest to t, the smaller on ties.",
            ),
        ]
    )
    return program, forever(lambda: (ints(rng, least=3, most=6), integer(rng, 2, 12))), message


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
            source("def g(v):", f"    return {key}, v", define("xs", "xs.sort(key=g)", "return xs")),
        ]
    )
    return program, forever(lambda: (ints(rng, least=3, most=6),)), f"Order the numbers by {what}."


def swaps(rng: random.Random) -> Sample:
    n = rng.randint(1, 2)
    program, message = rng.choice(
        [
            (
                define(
                    "xs",
                    f"for _ in range({n}):",
                    "    for i in range(len(xs) - 1):",
                    "        if xs[i] > xs[i + 1]:",
                    "            xs[i], xs[i + 1] = xs[i + 1], xs[i]",
                    "return xs",
                ),
                f"{n} rounds of bubble sort.",
            ),
            (
                define(
                    "xs",
                    "c = 0",
                    "for i in range(len(xs)):",
                    "    for j in range(i):",
                    "        c += xs[j] > xs[i]",
                    "return c",
                ),
                "Count the inversions.",
            ),
            (
                define(
                    "xs",
                    "a, b = 0, len(xs) - 1",
                    "while a < b:",
                    "    if xs[a] > xs[b]:",
                    "        xs[a], xs[b] = xs[b], xs[a]",
                    "    a, b = a + 1, b - 1",
                    "return xs",
                ),
                "Compare mirrored places and swap if the left is larger.",
            ),
            (
                define("xs", "p, *r = xs", "return [v for v in r if v < p] + [p] + [v for v in r if v >= p]"),
                "Split around the first item.",
            ),
        ]
    )
    return program, forever(lambda: (ints(rng, least=3, most=6),)), message


def pairs(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    body, message = rng.choice(
        [
            ("return [(b, a) for a, b in ps]", "Swap inside each pair."),
            ("return sorted(ps, key=lambda p: (p[1], p[0]))", "Order by name."),
            (f"return [b for a, b in ps if a > {k}]", f"Names with a number over {k}."),
            ("return max(ps)[1]", "The name of the largest pair."),
            (f"return tuple(a * {k} for a, b in ps)", f"The numbers times {k}, as a tuple."),
            ("return sum(a for a, b in ps), ''.join(b[0] for a, b in ps)", "Sum of numbers, first letters."),
        ]
    )
    draw = forever(lambda: ([(rng.randint(0, 9), word(rng)) for _ in range(rng.randint(2, 4))],))
    return define("ps", body), draw, message


SEQUENCES = (running, neighbours, unique, pairs, turn, chunks, mix, by_key, search, swaps)
