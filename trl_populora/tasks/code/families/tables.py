"""Programs over dicts, sets and records: counting, grouping, inverting, merging."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, define, forever, integer, ints, letters, source, word, words


def _table(rng: random.Random) -> dict[str, int]:
    return {word(rng): rng.randint(0, 9) for _ in range(rng.randint(2, 4))}


def tally(rng: random.Random) -> Sample:
    program, message = rng.choice(
        [
            (define("s", "d = {}", "for c in s:", "    d[c] = d.get(c, 0) + 1", "return d"), "Count each letter."),
            (define("s", "return {c: s.count(c) for c in s if s.count(c) > 1}"), "Counts of letters that repeat."),
            (
                source("from collections import Counter", define("s", "return sorted(Counter(s).items())")),
                "Letters with counts, in order.",
            ),
            (
                source(
                    "from collections import Counter", define("s", "return max(sorted(set(s)), key=Counter(s).get)")
                ),
                "The commonest letter, the first in the alphabet on ties.",
            ),
            (define("s", "return {c: s.index(c) for c in s}"), "The first place of each letter."),
        ]
    )
    return program, forever(lambda: (letters(rng, "abc", least=4, most=8),)), message


def look_up(rng: random.Random) -> Sample:
    k = rng.randint(1, 9)
    body, message = rng.choice(
        [
            (f"return d.get(k, {k})", f"The value of the key, or {k}."),
            (f"return sum(d.values()) - d.get(k, {k})", f"Sum of the values without the key's, by default {k}."),
            ("return k in d and d[k] == max(d.values())", "Has the key the largest value?"),
            (f"d[k] = d.get(k, 0) + {k}\n    return d", f"Raise the key's value by {k}."),
            ("return sorted(x for x in d if d[x] > len(k))", "Keys whose value exceeds the length of k."),
        ]
    )

    def draw() -> tuple:
        table = _table(rng)
        return table, rng.choice([*table, word(rng)])

    return define("d, k", body), forever(draw), message


def invert(rng: random.Random) -> Sample:
    program, message = rng.choice(
        [
            (define("d", "return {v: k for k, v in sorted(d.items())}"), "Swap keys and values, the last key wins."),
            (
                define("d", "r = {}", "for k in sorted(d):", "    r.setdefault(d[k], []).append(k)", "return r"),
                "From value to the keys that have it.",
            ),
            (
                define("d", "return [k for k, v in sorted(d.items(), key=lambda p: (-p[1], p[0]))]"),
                "Keys by falling value.",
            ),
            (define("d", "return {k[0]: d[k] for k in sorted(d)}"), "Shorten keys to a letter."),
            (define("d", "m = min(d.values())", "return {k: v - m for k, v in d.items()}"), "Values above the least."),
        ]
    )
    return program, forever(lambda: (_table(rng),)), message


def group(rng: random.Random) -> Sample:
    k = rng.randint(2, 3)
    if rng.random() < 0.5:
        key, what = rng.choice(
            [
                (f"v % {k}", f"remainder modulo {k}"),
                ("v > 4", "whether they exceed 4"),
                (f"v // {k}", f"quotient by {k}"),
            ]
        )
        program = rng.choice(
            [
                define("xs", "r = {}", "for v in xs:", f"    r.setdefault({key}, []).append(v)", "return r"),
                source(
                    "from collections import defaultdict",
                    define("xs", "r = defaultdict(list)", "for v in xs:", f"    r[{key}].append(v)", "return dict(r)"),
                ),
                define("xs", f"return {{k: sum(v for v in xs if {key} == k) for k in {{{key} for v in xs}}}}"),
            ]
        )
        what = f"Sums of the numbers by {what}." if "sum(" in program else f"Group the numbers by {what}."
        return program, forever(lambda: (ints(rng, least=3, most=6),)), what
    key, what = rng.choice([("len(w)", "length"), ("w[0]", "first letter"), ("w[-1]", "last letter")])
    program = define("ws", "r = {}", "for w in ws:", f"    r[{key}] = r.get({key}, []) + [w]", "return r")
    return program, forever(lambda: (words(rng, least=3),)), f"Group the words by {what}."


def merge(rng: random.Random) -> Sample:
    k = rng.randint(2, 4)
    body, message = rng.choice(
        [
            ("return {**a, **b}", "Both tables, the second wins."),
            ("return {k: a.get(k, 0) + b.get(k, 0) for k in a | b}", "Add the values."),
            ("return {k: a[k] for k in a if k not in b}", "Entries that only the first has."),
            (f"return {{k: max(a.get(k, 0), b.get(k, 0)) * {k} for k in a | b}}", f"The larger value times {k}."),
            ("return sorted(k for k in a if k in b)", "Keys in both."),
            ("return sum(abs(a.get(k, 0) - b.get(k, 0)) for k in a | b)", "How far the tables are apart."),
        ]
    )

    def draw() -> tuple:
        keys = "abcd"
        return tuple({k: rng.randint(0, 9) for k in rng.sample(keys, rng.randint(1, 3))} for _ in range(2))

    return define("a, b", body), forever(draw), message


def sets(rng: random.Random) -> Sample:
    k = rng.randint(2, 5)
    body, message = rng.choice(
        [
            ("return a & b", "Members of both."),
            ("return sorted(a ^ b)", "Members of exactly one, in order."),
            (f"return {{v + {k} for v in a}} - b", f"The first set plus {k}, without the second."),
            ("return len(a | b) - len(a & b)", "How many are in exactly one."),
            ("return a <= b or b <= a", "Does one contain the other?"),
            ("return (min(a | b), max(a | b))", "Least and greatest of both."),
        ]
    )
    return define("a, b", body), forever(lambda: (set(ints(rng, 0, 6)), set(ints(rng, 0, 6)))), message


def records(rng: random.Random) -> Sample:
    k = rng.randint(2, 6)
    body, message = rng.choice(
        [
            (f"return [r['name'] for r in rs if r['n'] > {k}]", f"Names with n over {k}."),
            ("return max(rs, key=lambda r: (r['n'], r['name']))['name']", "The name with the largest n."),
            ("return {r['name']: r['n'] for r in rs}", "A table from name to n."),
            (f"return [{{**r, 'n': r['n'] * {k}}} for r in rs]", f"Each n times {k}."),
            ("return sorted((r['n'], r['name']) for r in rs)", "Pairs of n and name, in order."),
            (
                "t = sum(r['n'] for r in rs) or 1\n    return [round(r['n'] / t, 2) for r in rs]",
                "Each share of the total.",
            ),
        ]
    )
    draw = forever(lambda: ([{"n": rng.randint(0, 9), "name": word(rng)} for _ in range(rng.randint(2, 3))],))
    return define("rs", body), draw, message


def chain(rng: random.Random) -> Sample:
    n = rng.randint(2, 6)
    program, message = rng.choice(
        [
            (
                define("d, k", f"for _ in range({n}):", "    k = d.get(k, k)", "return k"),
                f"Follow the table {n} times.",
            ),
            (
                define(
                    "d, k", "r = [k]", "while k in d and d[k] not in r:", "    k = d[k]", "    r.append(k)", "return r"
                ),
                "The path through the table.",
            ),
            (
                define(
                    "d, k",
                    "s = set()",
                    "while k in d and k not in s:",
                    "    s.add(k)",
                    "    k = d[k]",
                    "return len(s), k",
                ),
                "Steps until a repeat or an end, and where.",
            ),
        ]
    )
    draw = forever(
        lambda: ({k: rng.randint(0, 5) for k in rng.sample(range(6), rng.randint(2, 5))}, integer(rng, 0, 5))
    )
    return program, draw, message


TABLES = (look_up, tally, sets, merge, invert, records, group, chain)
