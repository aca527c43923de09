"""Short classic algorithms: dynamic programming, queues, enumeration."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, block, forever, integer, ints, letters, one_of


def subsequence(rng: random.Random) -> Sample:
    k = rng.randint(4, 6)
    forms = f"""
        b = []
        for i, v in enumerate(xs):
            b.append(1 + max((b[j] for j in range(i) if xs[j] < v), default=0))
        return max(b)  # Length of the longest rising subsequence.
        b = t = 0
        for v in xs:
            t = max(0, t + v - {k})
            b = max(b, t)
        return b  # Best window when each number counts minus {k}.
        a = b = 0
        for v in xs:
            a, b = b, max(b, a + v)
        return b  # Best sum without neighbours.
        r = {{0}}
        for v in xs:
            r |= {{t + v for t in r}}
        return sorted(r)  # All sums of subsets.
    """
    return one_of(rng, "xs", forms, lambda: (ints(rng, 1, 9, least=3, most=5),))


def distance(rng: random.Random) -> Sample:
    cost = rng.randint(1, 2)
    message = f"Edit distance, where a replacement costs {cost}."
    forms = f"""
        from functools import lru_cache
        def f(a, b):
            @lru_cache(None)
            def g(i, j):
                if i == 0 or j == 0:
                    return i + j
                c = {cost} * (a[i - 1] != b[j - 1])
                return min(g(i - 1, j) + 1, g(i, j - 1) + 1, g(i - 1, j - 1) + c)
            return g(len(a), len(b))  # {message}
        p = list(range(len(b) + 1))
        for i, x in enumerate(a):
            q = [i + 1]
            for j, y in enumerate(b):
                q.append(min(p[j + 1] + 1, q[j] + 1, p[j] + {cost} * (x != y)))
            p = q
        return p[-1]  # {message}
    """
    return one_of(rng, "a, b", forms, lambda: (letters(rng, least=2, most=5), letters(rng, least=2, most=5)))


def queue(rng: random.Random) -> Sample:
    k = rng.randint(1, 4)
    forms = f"""
        import heapq
        def f(xs, n):
            heapq.heapify(xs)
            for _ in range(n):
                heapq.heappush(xs, heapq.heappop(xs) + {k})
            return sorted(xs)  # n times, raise the smallest by {k}.
        import heapq
        def f(xs, n):
            return heapq.nlargest(n, xs)  # The n largest.
        q = list(enumerate(xs))
        r = []
        while q:
            i, t = q.pop(0)
            if t > n:
                q.append((i, t - n))
            else:
                r.append(i)
        return r  # Jobs in turns of n: the order in which they finish.
    """
    return one_of(rng, "xs, n", forms, lambda: (ints(rng, 1, 9), integer(rng, 1, 4)))


def choices(rng: random.Random) -> Sample:
    forms = """
        from itertools import permutations
        def f(n, s):
            return [''.join(p) for p in permutations(s)][n % 6]  # The n-th arrangement of the letters.
        from itertools import combinations
        def f(n, s):
            return [''.join(c) for c in combinations(s, n % 3 + 1)]  # All choices of n modulo 3, plus one, letters.
        return [c for i, c in enumerate(s) if n >> i & 1]  # Letters at the places where n has a one in binary.
        from itertools import accumulate
        def f(n, s):
            return list(accumulate(s))[n % 3] * (n // 3 + 1)  # A start of the letters, repeated.
    """
    return one_of(rng, "n, s", forms, lambda: (integer(rng, 0, 9), rng.choice(["abc", "xyz", "bca", "pqr"])))


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
