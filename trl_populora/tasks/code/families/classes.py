"""Programs that define a small class and call some of its methods."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, block, choose, forever, ints, one_of, word


def account(rng: random.Random) -> Sample:
    fee, start = rng.randint(0, 2), rng.randint(5, 20)
    result = rng.choice(["a.n, a.bad", "a.n", "[a.bad, a.n]"])
    program = block(f"""
        class A:
            def __init__(self, n):
                self.n = n
                self.bad = 0
            def move(self, x):
                if self.n + x < {fee}:
                    self.bad += 1
                else:
                    self.n += x - {fee}
        def f(xs):
            a = A({start})
            for x in xs:
                a.move(x)
            return {result}
    """)
    message = f"An account starts at {start}, a move costs {fee}, and moves that cannot pay it are refused."
    return program, forever(lambda: (ints(rng, -9, 9),)), message


def points(rng: random.Random) -> Sample:
    k = rng.randint(1, 3)
    forms = f"""
        P(self.x + o.x, self.y + {k} * o.y)  # Add points, second coordinates times {k}.
        P(max(self.x, o.x), min(self.y, o.y))  # Greatest first, least second coordinate.
        P(self.y + o.x, self.x - o.y + {k})  # Fold points with a swap and {k}.
    """
    result, message = choose(rng, forms)
    program = block(f"""
        class P:
            def __init__(self, x, y):
                self.x, self.y = x, y
            def __add__(self, o):
                return {result}
        def f(ps):
            r = P(*ps[0])
            for p in ps[1:]:
                r = r + P(*p)
            return r.x, r.y
    """)
    draw = forever(lambda: ([(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(rng.randint(2, 4))],))
    return program, draw, message


def stack(rng: random.Random) -> Sample:
    a, b = rng.sample(["+", "-", "*"], 2)
    message = f"A stack machine: numbers are pushed, 'a' applies {a} to the top two, 'b' {b}."
    forms = f"""
        s = []
        for t in ts:
            if isinstance(t, int):
                s.append(t)
            elif len(s) > 1:
                y, x = s.pop(), s.pop()
                s.append(x {a} y if t == 'a' else x {b} y)
        return s  # {message}
        class S:
            def __init__(self):
                self.v = []
            def do(self, t):
                if isinstance(t, int):
                    self.v.append(t)
                elif len(self.v) > 1:
                    y, x = self.v.pop(), self.v.pop()
                    self.v.append(x {a} y if t == 'a' else x {b} y)
        def f(ts):
            s = S()
            for t in ts:
                s.do(t)
            return s.v  # {message}
    """

    def draw() -> tuple:
        return ([rng.choice([rng.randint(1, 6), rng.randint(1, 6), "a", "b"]) for _ in range(rng.randint(3, 7))],)

    return one_of(rng, "ts", forms, draw)


def linked(rng: random.Random) -> Sample:
    k = rng.randint(2, 3)
    change, what = rng.choice(
        [
            (["p = None", "while h:", "    h.next, p, h = p, h, h.next", "h = p"], "turned around"),
            (
                ["n = h", "while n and n.next:", "    n.next = n.next.next", "    n = n.next"],
                "without every second item",
            ),
            (["n = h", "while n:", f"    n.v *= {k}", "    n = n.next"], f"with each item times {k}"),
        ]
    )
    middle = "\n            ".join(change)
    program = block(f"""
        class N:
            def __init__(self, v, next):
                self.v, self.next = v, next
        def f(xs):
            h = None
            for v in reversed(xs):
                h = N(v, h)
            {middle}
            r = []
            while h:
                r.append(h.v)
                h = h.next
            return r
    """)
    return program, forever(lambda: (ints(rng, least=2, most=5),)), f"A linked list {what}."


def shop(rng: random.Random) -> Sample:
    price, cut, bulk = rng.randint(2, 6), rng.randint(1, 2), rng.randint(2, 4)
    result, what = rng.choice(
        [("c.total()", "the bill"), ("c.n", "the basket"), ("len(c.n), c.total()", "sorts and bill")]
    )
    program = block(f"""
        class C:
            def __init__(self):
                self.n = {{}}
            def put(self, w):
                self.n[w] = self.n.get(w, 0) + 1
            def total(self):
                return sum(k * ({price} - {cut} * (k >= {bulk})) + len(w) for w, k in self.n.items())
        def f(ws):
            c = C()
            for w in ws:
                c.put(w)
            return {result}
    """)

    def draw() -> tuple:
        goods = [word(rng), word(rng)]
        return ([rng.choice(goods) for _ in range(rng.randint(2, 6))],)

    prices = f"each piece costs {price}, {cut} less from {bulk} of a sort, and each sort the length of its name"
    return program, forever(draw), f"A basket: {prices}: {what}."


CLASSES = (account, points, stack, linked, shop)
