"""Short classic algorithms: dynamic programming, queues, enumeration."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, block, define, forever, integer, ints, letters, source


def subsequence(rng: random.Random) -> Sample:
    k = rng.randint(4, 6)
    program, message = rng.choice(
        [
            (
                block("""
                    def f(xs):
                        b = []
                        for i, v in enumerate(xs):
                            b.append(1 + max((b[j] for j in range(i) if xs[j] < v), default=0))
                        return max(b)
                """),
                "Length of the longest rising subsequence.",
            ),
            (
                define(
                    "xs", "b = t = 0", "for v in xs:", f"    t = max(0, t + v - {k})", "    b = max(b, t)", "return b"
                ),
                f"Best window when each number counts minus {k}.",
            ),
            (
                define("xs", "a = b = 0", "for v in xs:", "    a, b = b, max(b, a + v)", "return b"),
                "Best sum without neighbours.",
            ),
            (
                define("xs", "r = {0}", "for v in xs:", "    r |= {t + v for t in r}", "return sorted(r)"),
                "All sums of subsets.",
            ),
        ]
    )
    return program, forever(lambda: (ints(rng, 1, 9, least=3, most=5),)), message


def distance(rng: random.Random) -> Sample:
    cost = rng.randint(1, 2)
    program = rng.choice(
        [
            block(f"""
                from functools import lru_cache
                def f(a, b):
                    @lru_cache(None)
                    def g(i, j):
                        if i == 0 or j == 0:
                            return i + j
                        c = {cost} * (a[i - 1] != b[j - 1])
                        return min(g(i - 1, j) + 1, g(i, j - 1) + 1, g(i - 1, j - 1) + c)
                    return g(len(a), len(b))
            """),
            block(f"""
                def f(a, b):
                    p = list(range(len(b) + 1))
                    for i, x in enumerate(a):
                        q = [i + 1]
                        for j, y in enumerate(b):
                            q.append(min(p[j + 1] + 1, q[j] + 1, p[j] + {cost} * (x != y)))
                        p = q
                    return p[-1]
            """),
        ]
    )
    draw = forever(lambda: (letters(rng, least=2, most=5), letters(rng, least=2, most=5)))
    return program, draw, f"Edit distance, where a replacement costs {cost}."


def queue(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    program, message = rng.choice(
        [
            (
                block(f"""
                    import heapq
                    def f(xs, n):
                        heapq.heapify(xs)
                        for _ in range(n):
                            heapq.heappush(xs, heapq.heappop(xs) + {k})
                        return sorted(xs)
                """),
                f"n times, raise the smallest by {k}.",
            ),
            (source("import heapq", define("xs, n", "return heapq.nlargest(n, xs)")), "The n largest."),
            (
                block("""
                    def f(xs, n):
                        q = list(enumerate(xs))
                        r = []
                        while q:
                            i, t = q.pop(0)
                            if t > n:
                                q.append((i, t - n))
                            else:
                                r.append(i)
                        return r
                """),
                "Jobs in turns of n: the order in which they finish.",
            ),
        ]
    )
    return program, forever(lambda: (ints(rng, 1, 9), integer(rng, 1, 4))), message


def choices(rng: random.Random) -> Sample:
    program, message = rng.choice(
        [
            (
                source(
                    "from itertools import permutations",
                    define("n, s", "return [''.join(p) for p in permutations(s)][n % 6]"),
                ),
                "The n-th arrangement of the letters.",
            ),
            (
                source(
                    "from itertools import combinations",
                    define("n, s", "return [''.join(c) for c in combinations(s, n % 3 + 1)]"),
                ),
                "All choices of n modulo 3, plus one, letters.",
            ),
            (
                define("n, s", "return [c for i, c in enumerate(s) if n >> i & 1]"),
                "Letters at the places where n has a one in binary.",
            ),
            (
                source(
                    "from itertools import accumulate",
                    define("n, s", "return list(accumulate(s))[n % 3] * (n // 3 + 1)"),
                ),
                "A start of the letters, repeated.",
            ),
        ]
    )
    return program, forever(lambda: (integer(rng, 0, 9), rng.choice(["abc", "xyz", "bca", "pqr"]))), message


def towers(rng: random.Random) -> Sample:
    result, what = rng.choice(
        [("r", "all moves"), ("len(r), r[n - 1]", "number of moves and the n-th"), ("[a for a, b in r]", "where from")]
    )
    program = block(f"""
        def g(n, a, b, c):
            if n == 0:
                return []
            return g(n - 1, a, c, b) + [(a, c)] + g(n - 1, b, a, c)
        def f(n, s):
            r = g(n, *s)
            return {result}
    """)
    draw = forever(lambda: (integer(rng, 1, 3), "".join(rng.sample("abcxyz", 3))))
    return program, draw, f"Towers of Hanoi with n discs, from the first to the last of three pegs: {what}."


CLASSICS = (subsequence, queue, choices, towers, distance)
