"""Programs over dicts, sets and records: counting, grouping, inverting, merging."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import (
    Sample,
    choose,
    define,
    forever,
    integer,
    ints,
    letters,
    one_of,
    word,
    words,
)


def _table(rng: random.Random) -> dict[str, int]:
    return {word(rng): rng.randint(0, 9) for _ in range(rng.randint(2, 4))}


def tally(rng: random.Random) -> Sample:
    forms = """
        d = {}
        for c in s:
            d[c] = d.get(c, 0) + 1
        return d  # Count each letter.
        return {c: s.count(c) for c in s if s.count(c) > 1}  # Counts of letters that repeat.
        from collections import Counter
        def f(s):
            return sorted(Counter(s).items())  # Letters with counts, in order.
        from collections import Counter
        def f(s):
            return max(sorted(set(s)), key=Counter(s).get)  # The commonest letter, the first in the alphabet on ties.
        return {c: s.index(c) for c in s}  # The first place of each letter.
    """
    return one_of(rng, "s", forms, lambda: (letters(rng, "abc", least=4, most=8),))


def look_up(rng: random.Random) -> Sample:
    k = rng.randint(1, 9)
    forms = f"""
        return d.get(k, {k})  # The value of the key, or {k}.
        return sum(d.values()) - d.get(k, {k})  # Sum of the values without the key's, by default {k}.
        return k in d and d[k] == max(d.values())  # Has the key the largest value?
        d[k] = d.get(k, 0) + {k}
        return d  # Raise the key's value by {k}.
        return sorted(x for x in d if d[x] > len(k))  # Keys whose value exceeds the length of k.
    """

    def draw() -> tuple:
        table = _table(rng)
        return table, rng.choice([*table, word(rng)])

    return one_of(rng, "d, k", forms, draw)


def invert(rng: random.Random) -> Sample:
    forms = """
        return {v: k for k, v in sorted(d.items())}  # Swap keys and values, the last key wins.
        r = {}
        for k in sorted(d):
            r.setdefault(d[k], []).append(k)
        return r  # From value to the keys that have it.
        return [k for k, v in sorted(d.items(), key=lambda p: (-p[1], p[0]))]  # Keys by falling value.
        return {k[0]: d[k] for k in sorted(d)}  # Shorten keys to a letter.
        m = min(d.values())
        return {k: v - m for k, v in d.items()}  # Values above the least.
    """
    return one_of(rng, "d", forms, lambda: (_table(rng),))


def group(rng: random.Random) -> Sample:
    k = rng.randint(2, 3)
    if rng.random() < 0.5:
        forms = f"""
            v % {k}  # remainder modulo {k}
            v > 4  # whether they exceed 4
            v // {k}  # quotient by {k}
        """
        key, what = choose(rng, forms)
        forms = f"""
            r = {{}}
            for v in xs:
                r.setdefault({key}, []).append(v)
            return r  # Group
            from collections import defaultdict
            def f(xs):
                r = defaultdict(list)
                for v in xs:
                    r[{key}].append(v)
                return dict(r)  # Group
            return {{k: sum(v for v in xs if {key} == k) for k in {{{key} for v in xs}}}}  # Sums of
        """
        program, supply, verb = one_of(rng, "xs", forms, lambda: (ints(rng, least=3, most=6),))
        return program, supply, f"{verb} the numbers by {what}."
    key, what = rng.choice([("len(w)", "length"), ("w[0]", "first letter"), ("w[-1]", "last letter")])
    program = define("ws", "r = {}", "for w in ws:", f"    r[{key}] = r.get({key}, []) + [w]", "return r")
    return program, forever(lambda: (words(rng, least=3),)), f"Group the words by {what}."


def merge(rng: random.Random) -> Sample:
    k = rng.randint(2, 4)
    forms = f"""
        return {{**a, **b}}  # Both tables, the second wins.
        return {{k: a.get(k, 0) + b.get(k, 0) for k in a | b}}  # Add the values.
        return {{k: a[k] for k in a if k not in b}}  # Entries that only the first has.
        return {{k: max(a.get(k, 0), b.get(k, 0)) * {k} for k in a | b}}  # The larger value times {k}.
        return sorted(k for k in a if k in b)  # Keys in both.
        return sum(abs(a.get(k, 0) - b.get(k, 0)) for k in a | b)  # How far the tables are apart.
    """

    def draw() -> tuple:
        keys = "abcd"
        return tuple({k: rng.randint(0, 9) for k in rng.sample(keys, rng.randint(1, 3))} for _ in range(2))

    return one_of(rng, "a, b", forms, draw)


def sets(rng: random.Random) -> Sample:
    k = rng.randint(2, 5)
    forms = f"""
        return a & b  # Members of both.
        return sorted(a ^ b)  # Members of exactly one, in order.
        return {{v + {k} for v in a}} - b  # The first set plus {k}, without the second.
        return len(a | b) - len(a & b)  # How many are in exactly one.
        return a <= b or b <= a  # Does one contain the other?
        return (min(a | b), max(a | b))  # Least and greatest of both.
    """
    return one_of(rng, "a, b", forms, lambda: (set(ints(rng, 0, 6)), set(ints(rng, 0, 6))))


def records(rng: random.Random) -> Sample:
    k = rng.randint(2, 6)
    forms = f"""
        return [r['name'] for r in rs if r['n'] > {k}]  # Names with n over {k}.
        return max(rs, key=lambda r: (r['n'], r['name']))['name']  # The name with the largest n.
        return {{r['name']: r['n'] for r in rs}}  # A table from name to n.
        return [{{**r, 'n': r['n'] * {k}}} for r in rs]  # Each n times {k}.
        return sorted((r['n'], r['name']) for r in rs)  # Pairs of n and name, in order.
        t = sum(r['n'] for r in rs) or 1
        return [round(r['n'] / t, 2) for r in rs]  # Each share of the total.
    """
    return one_of(
        rng, "rs", forms, lambda: ([{"n": rng.randint(0, 9), "name": word(rng)} for _ in range(rng.randint(2, 3))],)
    )


def chain(rng: random.Random) -> Sample:
    n = rng.randint(2, 6)
    forms = f"""
        for _ in range({n}):
            k = d.get(k, k)
        return k  # Follow the table {n} times.
        r = [k]
        while k in d and d[k] not in r:
            k = d[k]
            r.append(k)
        return r  # The path through the table.
        s = set()
        while k in d and k not in s:
            s.add(k)
            k = d[k]
        return len(s), k  # Steps until a repeat or an end, and where.
    """

    def draw() -> tuple:
        return {k: rng.randint(0, 5) for k in rng.sample(range(6), rng.randint(2, 5))}, integer(rng, 0, 5)

    return one_of(rng, "d, k", forms, draw)


TABLES = (look_up, tally, sets, merge, invert, records, group, chain)
