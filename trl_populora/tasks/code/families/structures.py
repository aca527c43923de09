"""Programs over nested lists, grids, trees and graphs."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, block, choose, define, forever, ints, letters, one_of


def _nested(rng: random.Random, depth: int = 2) -> list:
    deeper = depth > 0
    return [
        _nested(rng, depth - 1) if deeper and rng.random() < 0.4 else rng.randint(0, 9)
        for _ in range(rng.randint(1, 3))
    ]


def _grid(rng: random.Random, low: int = 0, high: int = 9) -> list[list[int]]:
    width = rng.randint(2, 3)
    return [ints(rng, low, high, least=width, most=width) for _ in range(rng.randint(2, 3))]


def _tree(rng: random.Random, depth: int = 3) -> tuple | None:
    if depth == 0 or rng.random() < 0.25:
        return None
    return (rng.randint(1, 9), _tree(rng, depth - 1), _tree(rng, depth - 1))


def grid(rng: random.Random) -> Sample:
    k = rng.randint(2, 4)
    forms = f"""
        return [list(r) for r in zip(*m)]  # Swap rows and columns.
        return [sum(r) for r in m]  # Row sums.
        return [max(c) for c in zip(*m)]  # Column maxima.
        return [r[::-1] for r in m[::-1]]  # Half a turn.
        return [list(r) for r in zip(*m[::-1])]  # A quarter turn clockwise.
        return [[v * {k} for v in r] for r in m if sum(r) % 2 == 0]  # Rows with even sum, times {k}.
        return sum(m[i][i] for i in range(min(len(m), len(m[0]))))  # The sum of the diagonal.
        return max((v, -i, -j) for i, r in enumerate(m) for j, v in enumerate(r))  # Largest value and minus its place.
    """
    return one_of(rng, "m", forms, lambda: (_grid(rng),))


def nested(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    forms = f"""
        sum(map(g, x)) if isinstance(x, list) else x  # Sum of all numbers at any depth.
        1 + max(map(g, x), default=0) if isinstance(x, list) else 0  # How deep the list is.
        [w for v in x for w in g(v)] if isinstance(x, list) else [x]  # Flatten.
        [g(v) for v in x][::-1] if isinstance(x, list) else x  # Turn around at every level.
        [g(v) for v in x] if isinstance(x, list) else x + {k}  # Add {k} to every number.
    """
    result, message = choose(rng, forms)
    program = f"def g(x):\n    return {result}\n" + define("x", "return g(x)")
    return program, forever(lambda: (_nested(rng),)), message


def tree(rng: random.Random) -> Sample:
    forms = """
        return t[0] + f(t[1]) + f(t[2]) if t else 0  # Sum of the tree.
        return 1 + max(f(t[1]), f(t[2])) if t else 0  # Height of the tree.
        return f(t[1]) + [t[0]] + f(t[2]) if t else []  # Values from left to right.
        return [t[0]] + f(t[2]) + f(t[1]) if t else []  # Root first, then right, then left.
        return (t[0], f(t[2]), f(t[1])) if t else ()  # Mirror the tree, with () for nothing.
        return max(t[0], f(t[1]), f(t[2])) if t else 0  # The largest value, 0 if empty.
    """
    return one_of(rng, "t", forms, lambda: (_tree(rng),))


def machine(rng: random.Random) -> Sample:
    n = rng.randint(2, 3)
    moves = {f"{state}{c}": rng.randrange(n) for state in range(n) for c in "ab"}
    result, what = rng.choice(
        [("q", "the last state"), ("r", "all states"), ("r.count(0)", "how often state 0 is met")]
    )
    lines = ("q, r = 0, []", "for c in s:", "    q = T[str(q) + c]", "    r.append(q)", f"return {result}")
    program = f"T = {moves}\n" + define("s", *lines)
    return program, forever(lambda: (letters(rng, "ab", least=2, most=7),)), f"States by {moves}, from 0: {what}."


def flood(rng: random.Random) -> Sample:
    near = rng.choice(["(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)", "(i + 1, j), (i, j + 1)"])
    result, what = rng.choice([("len(s)", "how many cells are reached"), ("max(s)", "the last cell in reading order")])
    program = block(f"""
        def f(m):
            s, q = set(), [(0, 0)]
            while q:
                i, j = q.pop()
                if 0 <= i < len(m) and 0 <= j < len(m[0]) and m[i][j] and (i, j) not in s:
                    s.add((i, j))
                    q += [{near}]
            return {result}
    """)

    def draw() -> tuple:
        cells = [[int(rng.random() < 0.7) for _ in range(4)] for _ in range(rng.randint(2, 3))]
        cells[0][0] = 1
        return (cells,)

    return program, forever(draw), f"Walk over the ones from the first cell, {near.count('(')} directions: {what}."


def best_path(rng: random.Random) -> Sample:
    best = rng.choice(["min", "max"])
    message = f"The {best}imal sum on the way right and down."
    forms = f"""
        for i, r in enumerate(m):
            for j in range(len(r)):
                if i or j:
                    r[j] += {best}(([m[i - 1][j]] if i else []) + ([r[j - 1]] if j else []))
        return m[-1][-1]  # {message}
        def g(i, j):
            if i == 0 and j == 0:
                return m[0][0]
            return m[i][j] + {best}(g(a, b) for a, b in ((i - 1, j), (i, j - 1)) if min(a, b) >= 0)
        return g(len(m) - 1, len(m[0]) - 1)  # {message}
    """
    return one_of(rng, "m", forms, lambda: (_grid(rng),))


def graph(rng: random.Random) -> Sample:
    forms = """
        def f(es, a):
            d, q = {a: 0}, [a]
            for v in q:
                for x, y in es:
                    if x == v and y not in d:
                        d[y] = d[v] + 1
                        q.append(y)
            return d  # Least number of directed edges from the start to each node that it reaches.
        r = {a}
        while True:
            n = r | {y for x, y in es if x in r} | {x for x, y in es if y in r}
            if n == r:
                return sorted(r)
            r = n  # Nodes connected with the start.
        return [sum(a == x for x, y in es), sum(a == y for x, y in es)]  # Edges that leave and edges that enter.
    """

    def draw() -> tuple:
        edges = [(rng.randint(0, 4), rng.randint(0, 4)) for _ in range(rng.randint(3, 6))]
        return edges, rng.choice(edges)[0]

    return one_of(rng, "es, a", forms, draw)


STRUCTURES = (grid, nested, tree, machine, graph, flood, best_path)
