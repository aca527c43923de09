"""Programs as language models write them when they are asked for a puzzle, each with an input block. All are honest.

`ACCEPTED` must become tasks. `REFUSED` are refused, each for the reason that stands beside it. `INPUTS` are ways in
which models write an input block, and the argument list that must come of them.
"""

ACCEPTED = {
    # classes
    "bank account with private balance": (
        '''
class Account:
    """A simple bank account."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self._balance = balance
        self._history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self._balance += amount
        self._history.append(("deposit", amount))

    def withdraw(self, amount):
        if amount > self._balance:
            self._history.append(("failed", amount))
            return False
        self._balance -= amount
        self._history.append(("withdraw", amount))
        return True


def f(operations):
    account = Account("alice", 100)
    for op in operations:
        if op > 0:
            account.deposit(op)
        else:
            account.withdraw(-op)
    print("final", account._balance)
    return account._balance, len(account._history)
''',
        "[50, -30, -200, 10]",
    ),
    "two accounts of any variable name": (
        """
class Acc:
    def __init__(self, n): self._n = n
    def move(self, target, k):
        self._n -= k
        target._n += k

def f(moves):
    accounts = [Acc(100) for _ in range(4)]
    for a, b, k in moves:
        accounts[a].move(accounts[b], k)
    richest = max(accounts, key=lambda account: account._n)
    return [acc._n for acc in accounts], accounts.index(richest)
""",
        "[(0, 1, 30), (1, 2, 70), (3, 0, 5)]",
    ),
    "linked list": (
        """
class Node:
    __slots__ = ("value", "next")

    def __init__(self, value, next=None):
        self.value = value
        self.next = next


class LinkedList:
    def __init__(self):
        self._head = None
        self._size = 0

    def push(self, value):
        self._head = Node(value, self._head)
        self._size += 1

    def reverse(self):
        prev, cur = None, self._head
        while cur:
            cur.next, prev, cur = prev, cur, cur.next
        self._head = prev

    def __iter__(self):
        cur = self._head
        while cur is not None:
            yield cur.value
            cur = cur.next

    def __len__(self):
        return self._size


def f(values, k):
    lst = LinkedList()
    for i, v in enumerate(values):
        lst.push(v)
        if i % k == 0:
            lst.reverse()
    return list(lst), len(lst)
""",
        "[4, 8, 15, 16, 23, 42], 2",
    ),
    "vector with operators": (
        """
import math

class Vector:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)
    __radd__ = __add__
    def __mul__(self, k):
        return Vector(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __eq__(self, other):
        return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)
    def __hash__(self):
        return hash((self.x, self.y))
    def __repr__(self):
        return f"{self.__class__.__name__}({self.x}, {self.y})"

def f(points: list[tuple[int, int]]) -> str:
    total = Vector(0, 0)
    seen = set()
    for p in points:
        v = Vector(*p)
        if v in seen:
            continue
        seen.add(v)
        total = total + 2 * v
    return repr(total) + " " + str(math.gcd(total.x, total.y))
""",
        "[(1, 2), (3, 4), (1, 2)]",
    ),
    "frozen dataclass": (
        """
from __future__ import annotations
from dataclasses import dataclass, field, replace
from typing import List, Optional

@dataclass(frozen=True, eq=True, order=True)
class Item:
    id: int
    name: str
    tags: List[str] = field(default_factory=list, compare=False)
    parent: Optional[int] = None

def f(rows):
    items = [Item(id=i, name=n, tags=t) for i, n, t in rows]
    items = [replace(it, parent=items[0].id) if it.tags else it for it in items]
    return [(it.id, it.name.title(), it.parent) for it in sorted(items, reverse=True)]
""",
        "[(2, 'pear', ['x']), (1, 'fig', []), (7, 'plum', ['y', 'z'])]",
    ),
    "post init with object setattr": (
        """
from dataclasses import dataclass

@dataclass(frozen=True)
class Temperature:
    celsius: float
    def __post_init__(self):
        object.__setattr__(self, "kelvin", round(self.celsius + 273.15, 2))

def f(values):
    return [Temperature(v).kelvin for v in values]
""",
        "[0, 36.6, -40]",
    ),
    "shapes with abc": (
        """
from abc import ABC, abstractmethod

class Shape(ABC):
    @abstractmethod
    def area(self):
        ...

    def describe(self):
        return "{}: {:.2f}".format(type(self).__name__, self.area())

class Square(Shape):
    def __init__(self, side):
        super().__init__()
        self.side = side
    def area(self):
        return self.side ** 2

class Circle(Shape):
    PI = 3.14159
    def __init__(self, r):
        self.r = r
    def area(self):
        return Circle.PI * self.r * self.r

def f(specs):
    shapes = [Square(n) if kind == "s" else Circle(n) for kind, n in specs]
    return "; ".join(s.describe() for s in sorted(shapes, key=lambda s: s.area()))
""",
        "[('s', 3), ('c', 1.5), ('s', 1)]",
    ),
    "singleton with new": (
        """
class Registry:
    _instance = None

    def __new__(cls, *args, **kwargs):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.names = {}
        return cls._instance

    def register(self, name):
        self.names[name] = self.names.get(name, 0) + 1
        return self.names[name]

def f(words):
    counts = [Registry().register(w) for w in words]
    return counts, Registry() is Registry()
""",
        "['a', 'b', 'a', 'a']",
    ),
    "property and setter": (
        """
class Clamp:
    def __init__(self, low, high):
        self.__low, self.__high = low, high
        self.__value = low
        self.clips = 0

    @property
    def value(self):
        return self.__value

    @value.setter
    def value(self, v):
        if v < self.__low or v > self.__high:
            self.clips += 1
        self.__value = max(self.__low, min(self.__high, v))

    @classmethod
    def unit(cls):
        return cls(0, 1)

    @staticmethod
    def scale(xs, k):
        return [x * k for x in xs]

def f(xs, k):
    c = Clamp(-5, 5)
    out = []
    for x in Clamp.scale(xs, k):
        c.value = c.value + x
        out.append(c.value)
    return out, c.clips, Clamp.unit().value
""",
        "[1, 2, -9, 4], 2",
    ),
    "descriptor": (
        """
class Positive:
    def __set_name__(self, owner, name):
        self.name = '_' + name
    def __get__(self, obj, objtype=None):
        return getattr(obj, "stored_" + self.name, 0)
    def __set__(self, obj, value):
        setattr(obj, "stored_" + self.name, abs(value))

class Box:
    width = Positive()
    height = Positive()

def f(w, h):
    b = Box()
    b.width, b.height = w, h
    return b.width * b.height - (b.width + b.height)
""",
        "-3, 7",
    ),
    "nested classes and enum": (
        """
from enum import Enum, auto, IntEnum

class Color(Enum):
    RED = auto()
    GREEN = auto()
    BLUE = auto()

    def next(self):
        members = list(Color)
        return members[(members.index(self) + 1) % len(members)]

class Machine:
    class State(IntEnum):
        IDLE = 0
        RUN = 1
    def __init__(self):
        self.state = Machine.State.IDLE
        self.color = Color.RED
    def step(self, c):
        if c == "go":
            self.state = Machine.State.RUN
        elif c == "stop":
            self.state = Machine.State.IDLE
        elif self.state is Machine.State.RUN:
            self.color = self.color.next()

def f(commands):
    m = Machine()
    trace = []
    for c in commands.split():
        m.step(c)
        trace.append((m.color.name, m.color._value_, int(m.state)))
    return trace[-1], len(trace)
""",
        "'x go x x stop x go x'",
    ),
    "visitor with getattr": (
        """
class Num:
    def __init__(self, v): self.v = v
class Add:
    def __init__(self, a, b): self.a, self.b = a, b
class Mul:
    def __init__(self, a, b): self.a, self.b = a, b

class Evaluator:
    def visit(self, node):
        method = getattr(self, f"visit_{type(node).__name__}")
        return method(node)
    def visit_Num(self, node): return node.v
    def visit_Add(self, node): return self.visit(node.a) + self.visit(node.b)
    def visit_Mul(self, node): return self.visit(node.a) * self.visit(node.b)

def build(t):
    if not isinstance(t, (list, tuple)):
        return Num(t)
    op, a, b = t
    return {"+": Add, "*": Mul}[op](build(a), build(b))

def f(tree):
    return Evaluator().visit(build(tree))
""",
        "('+', 2, ('*', 3, ('+', 4, 1)))",
    ),
    "door with open and id": (
        """
class Door:
    def __init__(self, id):
        self.id = id
        self.is_open = False
    def open(self):
        self.is_open = not self.is_open

def f(n):
    doors = [Door(id) for id in range(1, n + 1)]
    for step in range(1, n + 1):
        for door in doors[step - 1::step]:
            door.open()
    return [d.id for d in doors if d.is_open]
""",
        "30",
    ),
    "context manager": (
        """
from contextlib import contextmanager

log = []

class Indent:
    def __init__(self): self.level = 0
    def __enter__(self):
        self.level += 1
        return self
    def __exit__(self, exc_type, exc, tb):
        self.level -= 1
        return exc_type is KeyError

@contextmanager
def section(name, lines):
    lines.append("<" + name + ">")
    try:
        yield lines
    finally:
        lines.append("</" + name + ">")

def f(names):
    lines, ind = [], Indent()
    for n in names:
        with section(n, lines) as out, ind:
            out.append("." * ind.level + n[::-1])
            if n == "bad":
                raise KeyError(n)
    return " ".join(lines)
""",
        "['abc', 'bad', 'de']",
    ),
    "polynomial": (
        """
class Poly:
    def __init__(self, *c):
        self.c = list(c)
        while self.c and self.c[-1] == 0: self.c.pop()
    def __call__(self, x):
        r = 0
        for a in reversed(self.c): r = r * x + a
        return r
    def __mul__(self, o):
        out = [0] * (len(self.c) + len(o.c))
        for i, a in enumerate(self.c):
            for j, b in enumerate(o.c): out[i + j] += a * b
        return Poly(*out)
    def __getitem__(self, i): return self.c[i]
    def __bool__(self): return bool(self.c)
    def __str__(self):
        return ' + '.join('%d*x^%d' % (a, i) for i, a in enumerate(self.c) if a) or '0'
def f(a, b, x):
    p = Poly(*a) * Poly(*b)
    return str(p), p(x), p[0] if p else None
""",
        "[1, 2], [0, -1, 3], 2",
    ),
    "lru cache class": (
        """
from collections import OrderedDict

class LRUCache:
    def __init__(self, capacity: int):
        self.capacity = capacity
        self._data = OrderedDict()
        self.hits = self.misses = 0

    def get(self, key):
        if key in self._data:
            self._data.move_to_end(key)
            self.hits += 1
            return self._data[key]
        self.misses += 1
        return None

    def put(self, key, value):
        self._data[key] = value
        self._data.move_to_end(key)
        if len(self._data) > self.capacity:
            self._data.popitem(last=False)

def f(keys, capacity):
    cache = LRUCache(capacity)
    for i, key in enumerate(keys):
        if cache.get(key) is None:
            cache.put(key, i)
    return cache.hits, cache.misses, list(cache._data.items())
""",
        "'abcabdaeb', 3",
    ),
    # memo and global state
    "global memo": (
        """
memo = {}

def fib(n):
    global memo
    if n in memo:
        return memo[n]
    if n < 2:
        return n
    memo[n] = fib(n - 1) + fib(n - 2)
    return memo[n]

def f(n):
    return fib(n) % 1000, len(memo)
""",
        "25",
    ),
    "global counter": (
        """
counter = 0

def hanoi(n, a, b, c):
    global counter
    if n == 0:
        return
    hanoi(n - 1, a, c, b)
    counter += 1
    hanoi(n - 1, c, b, a)

def f(n):
    global counter
    counter = 0
    hanoi(n, 'A', 'B', 'C')
    return counter
""",
        "5",
    ),
    "cache decorator": (
        """
from functools import lru_cache

@lru_cache(maxsize=None)
def ways(n, coins):
    if n == 0: return 1
    if n < 0 or not coins: return 0
    return ways(n - coins[0], coins) + ways(n, coins[1:])

def f(n, coins):
    return ways(n, tuple(sorted(coins, reverse=True)))
""",
        "50, [1, 5, 10, 25]",
    ),
    "decorator by hand": (
        """
import functools

def memoize(fn):
    cache = {}
    @functools.wraps(fn)
    def wrapper(*args):
        if args not in cache:
            cache[args] = fn(*args)
        return cache[args]
    wrapper.cache = cache
    return wrapper

def count_calls(func):
    def inner(*args, **kwargs):
        inner.calls += 1
        return func(*args, **kwargs)
    inner.calls = 0
    inner.name = func.__name__ if hasattr(func, "__name__") else "inner"
    return inner

@memoize
@count_calls
def grid_paths(r, c):
    return 1 if r == 0 or c == 0 else grid_paths(r - 1, c) + grid_paths(r, c - 1)

def f(r, c):
    total = grid_paths(r, c)
    return total, len(grid_paths.cache), grid_paths.name
""",
        "4, 3",
    ),
    "closures and nonlocal": (
        """
def make_counter(start=0, step=1):
    value = start
    def tick(times=1):
        nonlocal value
        for _ in range(times):
            value += step
        return value
    def reset():
        nonlocal value
        old, value = value, start
        return old
    return tick, reset

def f(calls):
    tick, reset = make_counter(10, 3)
    out = []
    for c in calls:
        out.append(reset() if c == 0 else tick(c))
    return out
""",
        "[1, 2, 0, 4, 0, 1]",
    ),
    "function attribute": (
        """
def helper(x):
    helper.calls += 1
    return x * helper.calls
helper.calls = 0

def f(xs):
    helper.calls = 0
    return [helper(x) for x in xs] + [helper.calls]
""",
        "[5, 5, 5]",
    ),
    # module-level tables
    "tables by comprehension": (
        '''
"""Roman numerals, both ways."""
VALUES = [("M", 1000), ("CM", 900), ("D", 500), ("CD", 400), ("C", 100), ("XC", 90),
          ("L", 50), ("XL", 40), ("X", 10), ("IX", 9), ("V", 5), ("IV", 4), ("I", 1)]
LOOKUP = {k: v for k, v in VALUES}
SINGLE = {k for k in LOOKUP if len(k) == 1}

def to_roman(n):
    out = ""
    for sym, val in VALUES:
        while n >= val:
            out += sym
            n -= val
    return out

def from_roman(s):
    total = 0
    for a, b in zip(s, s[1:] + " "):
        v = LOOKUP[a]
        total += -v if b in SINGLE and LOOKUP[b] > v else v
    return total

def f(a, b):
    return to_roman(from_roman(a) + from_roman(b))
''',
        "'XLIV', 'MCMXC'",
    ),
    "lambdas in a table": (
        """
OPS = {
    '+': lambda a, b: a + b,
    '-': lambda a, b: a - b,
    '*': lambda a, b: a * b,
    '/': lambda a, b: a // b if b else 0,
}
compose = lambda *fs: (lambda x: [x := g(x) for g in fs][-1])

def f(expr):
    # reverse polish
    stack = []
    for tok in expr.split():
        if tok in OPS:
            b, a = stack.pop(), stack.pop()
            stack.append(OPS[tok](a, b))
        else:
            stack.append(int(tok))
    return stack.pop(), compose(abs, lambda v: v + 1)(-3)
""",
        "'3 4 + 2 * 7 -'",
    ),
    "sieve at the top": (
        """
LIMIT = 200
sieve = [True] * (LIMIT + 1)
sieve[0] = sieve[1] = False
for i in range(2, int(LIMIT ** 0.5) + 1):
    if sieve[i]:
        for j in range(i * i, LIMIT + 1, i):
            sieve[j] = False
PRIMES = [i for i, ok in enumerate(sieve) if ok]

def f(n):
    for a in PRIMES:
        if a > n: break
        if n - a >= 0 and sieve[n - a]:
            return a, n - a
    return None, None
""",
        "98",
    ),
    "own function at the top": (
        """
def _build(n):
    row, rows = [1], []
    for _ in range(n):
        rows.append(row)
        row = [a + b for a, b in zip([0] + row, row + [0])]
    return rows

PASCAL = _build(12)
TOTAL = sum(map(sum, PASCAL))
assert len(PASCAL) == 12

def f(n, k):
    return PASCAL[n][k] * TOTAL % 1009
""",
        "9, 4",
    ),
    "main block": (
        """
def f(text):
    \"\"\"Count vowels by position parity.\"\"\"
    even = sum(ch in 'aeiou' for ch in text[::2])
    odd = sum(ch in 'aeiou' for ch in text[1::2])
    return {'even': even, 'odd': odd}

if __name__ == "__main__":
    print(f("hello world"))
""",
        "'beautiful education'",
    ),
    "try import style constants": (
        """
import string
ALPHABET = string.ascii_lowercase
SHIFTED = str.maketrans(ALPHABET, ALPHABET[13:] + ALPHABET[:13])
WEIGHTS = dict(zip(ALPHABET, range(1, 27)))

def f(s):
    enc = s.lower().translate(SHIFTED)
    return enc, sum(WEIGHTS.get(c, 0) for c in enc)
""",
        "'Hello, World'",
    ),
    # names of builtins as variables
    "variables called id input dir": (
        """
def f(input):
    id = 0
    dir = 1
    x = y = 0
    vars = {}
    for hash in input:
        if hash == 'L': dir = (dir - 1) % 4
        elif hash == 'R': dir = (dir + 1) % 4
        else:
            x += [0, 1, 0, -1][dir]; y += [1, 0, -1, 0][dir]
        id += 1
        vars[(x, y)] = id
    return x, y, len(vars)
""",
        "'FFRFFLFRFF'",
    ),
    "own hash function": (
        """
def hash(s, mod=997):
    h = 7
    for c in s:
        h = (h * 31 + ord(c)) % mod
    return h

def f(words):
    buckets = {}
    for word in words:
        buckets.setdefault(hash(word) % 5, []).append(word)
    return buckets
""",
        "['red', 'green', 'blue', 'cyan']",
    ),
    "records with ids": (
        """
def f(records, *, default=None):
    by_id = {}
    for id, name, *rest in records:
        by_id.setdefault(id, []).append({'id': id, 'name': name, 'rest': rest})
    return {id: [r['name'] for r in group] for id, group in by_id.items() if id % 2}
""",
        "[(1, 'a', 9), (2, 'b'), (1, 'c'), (3, 'd', 4, 5)]",
    ),
    "vars and dict of self": (
        """
class Config:
    def __init__(self, **options):
        self.__dict__.update(options)
    def __eq__(self, other):
        return self.__dict__ == other.__dict__

def f(a, b):
    c, d = Config(**a), Config(**b)
    return sorted(vars(c).items()), c == d, hasattr(c, 'depth'), getattr(d, 'depth', -1)
""",
        "{'width': 3, 'depth': 4}, {'width': 3}",
    ),
    # generators and itertools
    "generators": (
        """
import itertools

def collatz(n):
    while n != 1:
        yield n
        n = 3 * n + 1 if n & 1 else n // 2
    yield 1

def take_while_growing(it):
    last = None
    for v in it:
        if last is not None and v < last:
            return
        yield v
        last = v

def f(n, m):
    a = list(itertools.islice(collatz(n), m))
    b = list(take_while_growing(iter(a)))
    c = [k for k, g in itertools.groupby(a, key=lambda v: v % 3)]
    return a, b, c
""",
        "27, 10",
    ),
    "generator with send": (
        """
def averager():
    total, n, avg = 0, 0, None
    while True:
        x = yield avg
        if x is None:
            return total
        total += x
        n += 1
        avg = total / n

def runner(xs):
    result = yield from averager()
    yield ('done', result)

def f(xs):
    g = runner(xs)
    next(g)
    out = [g.send(x) for x in xs]
    out.append(g.send(None))
    return out
""",
        "[2, 4, 9, 1]",
    ),
    "iterator class": (
        """
class Countdown:
    def __init__(self, n, skip):
        self.n, self.skip = n, skip
    def __iter__(self):
        return self
    def __next__(self):
        while self.n > 0:
            self.n -= 1
            if self.n % self.skip:
                return self.n
        raise StopIteration

def f(n, skip):
    return list(Countdown(n, skip)), sum(Countdown(n, skip))
""",
        "12, 3",
    ),
    "combinations and products": (
        """
from itertools import combinations, product, permutations, accumulate, chain, zip_longest, starmap
from operator import mul, itemgetter, attrgetter

def f(xs, target):
    hits = [c for r in range(1, len(xs) + 1) for c in combinations(xs, r) if sum(c) == target]
    signs = sum(1 for s in product((1, -1), repeat=len(xs)) if sum(starmap(mul, zip(s, xs))) == 0)
    pre = list(accumulate(xs, mul, initial=1))
    flat = list(chain.from_iterable(zip_longest(xs, pre, fillvalue=0)))
    return sorted(hits, key=itemgetter(0)), signs, flat
""",
        "[1, 2, 3, 4], 5",
    ),
    "namedtuple and attrgetter": (
        """
from collections import namedtuple
from operator import attrgetter
import typing

Point = namedtuple("Point", ["x", "y", "label"])

class Edge(typing.NamedTuple):
    a: int
    b: int
    w: float = 1.0

def f(rows):
    pts = sorted((Point(*r) for r in rows), key=attrgetter("y", "x"))
    moved = [p._replace(x=p.x + 1) for p in pts]
    e = Edge(1, 2)
    return [tuple(m) for m in moved], moved[0]._asdict(), e._fields, e.w
""",
        "[(3, 1, 'a'), (1, 1, 'b'), (0, 0, 'c')]",
    ),
    # text
    "format on a variable": (
        """
TEMPLATE = "{name:<8}|{qty:>4d}|{price:7.2f}"

def f(rows, fmt):
    lines = [TEMPLATE.format(name=n, qty=q, price=p) for n, q, p in rows]
    return lines + [fmt.format(len(rows), rows[0][0])]
""",
        "[('nut', 3, 1.5), ('bolt', 12, 0.25)], '{0} rows, first {1!r}'",
    ),
    "format map": (
        """
class Default(dict):
    def __missing__(self, key):
        return '<' + key + '>'

def f(template, values):
    return template.format_map(Default(values))
""",
        "'Dear {name}, you owe {sum} to {who}', {'name': 'Bo', 'sum': 5}",
    ),
    "flatten with double underscore": (
        """
def flatten(d, parent="", sep="__"):
    items = {}
    for k, v in d.items():
        key = f"{parent}{sep}{k}" if parent else k
        if isinstance(v, dict):
            items.update(flatten(v, key, sep))
        else:
            items[key] = v
    return items

def f(d):
    flat = flatten(d)
    return flat, [k.split("__") for k in flat if k.startswith("a__")]
""",
        "{'a': {'b': 1, 'c': {'d': 2}}, 'e': 3}",
    ),
    "regex tokenizer": (
        r"""
import re

TOKEN = re.compile(r"\s*(?:(\d+\.?\d*)|([A-Za-z_]\w*)|(.))")

def tokenize(src):
    for m in TOKEN.finditer(src):
        num, name, op = m.groups()
        if num: yield ("NUM", float(num) if '.' in num else int(num))
        elif name: yield ("NAME", name)
        elif op.strip(): yield ("OP", op)

class Parser:
    def __init__(self, text, env):
        self.toks = list(tokenize(text)) + [("END", None)]
        self.pos, self.env = 0, env
    def peek(self): return self.toks[self.pos]
    def eat(self):
        t = self.toks[self.pos]; self.pos += 1
        return t
    def expr(self):
        v = self.term()
        while self.peek() in (("OP", "+"), ("OP", "-")):
            v = v + self.term() if self.eat()[1] == "+" else v - self.term()
        return v
    def term(self):
        v = self.atom()
        while self.peek() in (("OP", "*"), ("OP", "%")):
            v = v * self.atom() if self.eat()[1] == "*" else v % self.atom()
        return v
    def atom(self):
        kind, val = self.eat()
        if kind == "NUM": return val
        if kind == "NAME": return self.env[val]
        if val == "(":
            v = self.expr()
            self.eat()
            return v
        raise SyntaxError(f"unexpected {val!r}")

def f(text, env):
    return Parser(text, env).expr()
""",
        "'2 * (x + 3) - y % 4', {'x': 5, 'y': 7}",
    ),
    "json and text": (
        """
import json, textwrap

def f(data, width):
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    back = json.loads(text)
    lines = textwrap.wrap(" ".join(back), width=width)
    return text[:40], len(lines), max(map(len, lines))
""",
        "{'lorem': 1, 'ipsum': [1, None, True], 'dolor': {'x': 'y'}}, 10",
    ),
    "run length": (
        """
def encode(s):
    if not s: return ''
    out, prev, n = [], s[0], 1
    for ch in s[1:]:
        if ch == prev: n += 1
        else:
            out.append(f'{n}{prev}' if n > 1 else prev)
            prev, n = ch, 1
    return ''.join(out) + (f'{n}{prev}' if n > 1 else prev)

def f(s, rounds):
    for _ in range(rounds):
        s = encode(s)
        print('round', _, s)   # debug
    return s
""",
        "'aaabccd', 3",
    ),
    "caesar and words": (
        """
def f(text: str, shift: int = 3) -> dict:
    result = {}
    for word in text.split():
        enc = ''.join(
            chr((ord(c) - (base := ord('A') if c.isupper() else ord('a')) + shift) % 26 + base) if c.isalpha() else c
            for c in word
        )
        result[word] = enc if (n := len(enc)) > 3 else enc * n
    return result
""",
        "'Hello to you All!'",
    ),
    "longest palindrome": (
        """
def f(s):
    best = ""
    for c in range(len(s)):
        for lo, hi in ((c, c), (c, c + 1)):
            while lo >= 0 and hi < len(s) and s[lo] == s[hi]:
                lo -= 1; hi += 1
            if hi - lo - 1 > len(best): best = s[lo + 1:hi]
    return best, s.replace(best, best.upper(), 1)
""",
        "'forgeeksskeegfor'",
    ),
    "printing with format and percent": (
        """
def f(table):
    widths = [max(len(str(row[i])) for row in table) for i in range(len(table[0]))]
    rows = []
    for row in table:
        rows.append(" | ".join(str(cell).rjust(w) for cell, w in zip(row, widths)))
        print("%-10s %s" % ("row", rows[-1]), end="", flush=True)
    sep = "-+-".join("-" * w for w in widths)
    return "\\n".join([rows[0], sep] + rows[1:])
""",
        "[['id', 'name'], [1, 'ann'], [22, 'bob']]",
    ),
    # simulation and state machines
    "game of life": (
        """
def step(cells):
    counts = {}
    for (x, y) in cells:
        for dx in (-1, 0, 1):
            for dy in (-1, 0, 1):
                if dx or dy:
                    key = (x + dx, y + dy)
                    counts[key] = counts.get(key, 0) + 1
    return {c for c, n in counts.items() if n == 3 or (n == 2 and c in cells)}

def f(cells, n):
    state = set(map(tuple, cells))
    for gen in range(n):
        state = step(state)
        if not state:
            break
    return sorted(state), gen
""",
        "[(0, 1), (1, 1), (2, 1), (2, 0), (1, -1)], 6",
    ),
    "own generator of numbers": (
        """
class LCG:
    def __init__(self, seed):
        self._state = seed
    def random(self, n):
        self._state = (self._state * 5 + 3) % 16
        return self._state % n

def f(seed, rounds):
    rng, pos, visited = LCG(seed), 0, []
    for _ in range(rounds):
        pos += (-1, 1)[rng.random(2)]
        visited.append(pos)
    return visited, rng._state
""",
        "7, 8",
    ),
    "elevator": (
        """
from collections import deque

UP, DOWN, IDLE = "up", "down", "idle"

class Elevator:
    def __init__(self):
        self.floor, self.direction = 0, IDLE
        self.queue = deque()
        self.log = []
    def request(self, floor): self.queue.append(floor)
    def tick(self):
        if not self.queue:
            self.direction = IDLE
            return False
        target = self.queue[0]
        if target == self.floor:
            self.queue.popleft()
            self.log.append(self.floor)
        else:
            self.direction = UP if target > self.floor else DOWN
            self.floor += 1 if self.direction == UP else -1
        return True

def f(requests):
    e = Elevator()
    for r in requests: e.request(r)
    ticks = 0
    while e.tick():
        ticks += 1
        if ticks > 1000: break
    return e.log, ticks, e.direction
""",
        "[3, 1, 4, 1]",
    ),
    "small virtual machine": (
        """
def f(program, limit=200):
    regs = {"a": 0, "b": 0, "c": 0}
    pc = steps = 0
    while 0 <= pc < len(program) and steps < limit:
        op, *args = program[pc]
        steps += 1
        match op, args:
            case "set", [r, int(v)]:
                regs[r] = v
            case "add", [r, str(s)]:
                regs[r] += regs[s]
            case "add", [r, v]:
                regs[r] += v
            case "jnz", [r, off] if regs[r] != 0:
                pc += off
                continue
            case "jnz" | "nop", _:
                pass
            case _:
                raise ValueError(f"bad op {op}")
        pc += 1
    return regs, steps
""",
        "[('set', 'a', 3), ('add', 'b', 'a'), ('add', 'a', -1), ('jnz', 'a', -2)]",
    ),
    "vending machine": (
        """
TRANSITIONS = {
    ("locked", "coin"): "unlocked",
    ("unlocked", "push"): "locked",
}

def f(events, state="locked"):
    history = [state]
    for e in events:
        state = TRANSITIONS.get((state, e), state)
        history.append(state)
    changes = sum(a != b for a, b in zip(history, history[1:]))
    return state, changes
""",
        "['push', 'coin', 'coin', 'push', 'push']",
    ),
    "bank queue simulation": (
        """
import heapq

def f(arrivals, tellers):
    free = [0] * tellers
    heapq.heapify(free)
    waits = []
    for t, d in sorted(arrivals):
        start = max(t, heapq.heappop(free))
        waits.append(start - t)
        heapq.heappush(free, start + d)
    return waits, max(free)
""",
        "[(0, 5), (1, 3), (2, 4), (2, 1)], 2",
    ),
    # matrices and numbers
    "matrix power": (
        """
from typing import List
Matrix = List[List[int]]

def matmul(A: Matrix, B: Matrix, m: int) -> Matrix:
    return [[sum(a * b for a, b in zip(row, col)) % m for col in zip(*B)] for row in A]

def identity(n): return [[int(i == j) for j in range(n)] for i in range(n)]

def f(M: Matrix, e: int, m: int = 1000) -> Matrix:
    R = identity(len(M))
    while e:
        if e & 1: R = matmul(R, M, m)
        M = matmul(M, M, m)
        e >>= 1
    return R
""",
        "[[1, 1], [1, 0]], 15",
    ),
    "determinant by fractions": (
        """
from fractions import Fraction
def f(m):
    m = [[Fraction(x) for x in r] for r in m]
    n, det = len(m), Fraction(1)
    for i in range(n):
        p = next((r for r in range(i, n) if m[r][i] != 0), None)
        if p is None: return 0
        if p != i:
            m[i], m[p] = m[p], m[i]; det = -det
        det *= m[i][i]
        for r in range(i + 1, n):
            k = m[r][i] / m[i][i]
            m[r] = [a - k * b for a, b in zip(m[r], m[i])]
    return int(det)
""",
        "[[2, 0, 1], [1, 3, 2], [1, 1, 4]]",
    ),
    "spiral": (
        """
def f(matrix):
    out = []
    while matrix:
        out += matrix.pop(0)
        matrix = [list(r) for r in zip(*matrix)][::-1]
    return out
""",
        "[[1, 2, 3], [4, 5, 6], [7, 8, 9]]",
    ),
    "bit tricks": (
        """
def popcount(x):
    c = 0
    while x:
        x &= x - 1
        c += 1
    return c

def f(xs, mask=0b1011):
    acc = 0
    for i, x in enumerate(xs):
        acc ^= (x & mask) << (i % 3)
        acc = ((acc << 1) | (acc >> 7)) & 0xFF
    return acc, popcount(acc), ~acc & 0xF, bin(acc)
""",
        "[5, 12, 9, 255]",
    ),
    "number theory": (
        """
import math
from math import gcd, isqrt
from statistics import mean, median

def factor(n):
    out, p = {}, 2
    while p * p <= n:
        while n % p == 0:
            out[p] = out.get(p, 0) + 1
            n //= p
        p += 1 + (p > 2)
    if n > 1: out[n] = 1
    return out

def f(a, b):
    fa, fb = factor(a), factor(b)
    shared = fa.keys() & fb.keys()
    same = math.prod(p ** min(fa[p], fb[p]) for p in shared) == gcd(a, b)
    return same, sorted(shared), round(mean(fa), 3), median(fb), isqrt(a)
""",
        "360, 84",
    ),
    "decimal money": (
        """
from decimal import Decimal, ROUND_HALF_UP

def f(prices, rate):
    cents = Decimal("0.01")
    total = sum((Decimal(p) for p in prices), Decimal(0))
    tax = (total * Decimal(rate)).quantize(cents, rounding=ROUND_HALF_UP)
    return str(total), str(tax), float(total + tax)
""",
        "['19.99', '5.01', '0.10'], '0.0825'",
    ),
    "base conversion": (
        """
DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
def f(n, *bases):
    res = []
    for b in bases:
        m, s = n, ''
        while m: m, r = divmod(m, b); s = DIGITS[r] + s
        res.append(s or '0')
    return res
""",
        "255, 2, 7, 16, 36",
    ),
    # dynamic programming, graphs, recursion
    "knapsack": (
        """
def f(items, capacity):
    dp = [[0] * (capacity + 1) for _ in range(len(items) + 1)]
    for i, (w, v) in enumerate(items, 1):
        for c in range(capacity + 1):
            dp[i][c] = max(dp[i - 1][c], dp[i - 1][c - w] + v if c >= w else 0)
    chosen, c = [], capacity
    for i in range(len(items), 0, -1):
        if dp[i][c] != dp[i - 1][c]:
            chosen.append(i - 1); c -= items[i - 1][0]
    return dp[-1][-1], chosen[::-1]
""",
        "[(2, 3), (3, 4), (4, 5), (5, 6)], 5",
    ),
    "edit distance": (
        """
from functools import cache

def f(a, b):
    @cache
    def d(i, j):
        if not i or not j:
            return i + j
        return min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + (a[i - 1] != b[j - 1]))
    return d(len(a), len(b)), d.cache_info().currsize
""",
        "'kitten', 'sitting'",
    ),
    "dijkstra": (
        """
import heapq
from collections import defaultdict

def f(edges, start):
    graph = defaultdict(list)
    for u, v, w in edges:
        graph[u].append((v, w))
        graph[v].append((u, w))
    dist, heap = {start: 0}, [(0, start)]
    while heap:
        d, u = heapq.heappop(heap)
        if d > dist.get(u, float('inf')): continue
        for v, w in graph[u]:
            nd = d + w
            if nd < dist.get(v, float('inf')):
                dist[v] = nd
                heapq.heappush(heap, (nd, v))
    return dict(sorted(dist.items()))
""",
        "[('a', 'b', 4), ('a', 'c', 1), ('c', 'b', 2), ('b', 'd', 5)], 'a'",
    ),
    "topological order": (
        """
from collections import Counter, defaultdict, deque

def f(deps):
    indeg, out = Counter(), defaultdict(set)
    for a, b in deps:
        if b not in out[a]:
            out[a].add(b); indeg[b] += 1; indeg[a] += 0
    ready = deque(sorted(n for n in indeg if indeg[n] == 0))
    order = []
    while ready:
        n = ready.popleft()
        order.append(n)
        for m in sorted(out[n]):
            indeg[m] -= 1
            if not indeg[m]: ready.append(m)
    return order if len(order) == len(indeg) else "cycle"
""",
        "[(1, 2), (1, 3), (3, 4), (2, 4), (4, 5)]",
    ),
    "union find": (
        """
class DSU(object):
    def __init__(self, n):
        self._parent = list(range(n))
        self._rank = [0] * n
    def find(self, x):
        while self._parent[x] != x:
            self._parent[x] = self._parent[self._parent[x]]
            x = self._parent[x]
        return x
    def union(self, a, b):
        a, b = self.find(a), self.find(b)
        if a == b: return False
        if self._rank[a] < self._rank[b]: a, b = b, a
        self._parent[b] = a
        self._rank[a] += self._rank[a] == self._rank[b]
        return True

def f(n, pairs):
    dsu = DSU(n)
    merged = [p for p in pairs if dsu.union(*p)]
    groups = {}
    for i in range(n): groups.setdefault(dsu.find(i), []).append(i)
    return merged, sorted(groups.values()), dsu._rank
""",
        "6, [(0, 1), (2, 3), (1, 3), (0, 2)]",
    ),
    "trie": (
        """
class Trie:
    def __init__(self):
        self.children = {}
        self._end = False

    def insert(self, word):
        node = self
        for ch in word:
            node = node.children.setdefault(ch, Trie())
        node._end = True

    def __contains__(self, word):
        t = self
        for ch in word:
            if ch not in t.children:
                return False
            t = t.children[ch]
        return t._end

    def count(self):
        return int(self._end) + sum(child.count() for child in self.children.values())

def f(words, queries):
    trie = Trie()
    for w in words: trie.insert(w)
    return [q in trie for q in queries], trie.count()
""",
        "['to', 'tea', 'ten', 'to'], ['te', 'tea', 'to']",
    ),
    "binary tree": (
        """
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right

    def __lt__(self, other):
        return self.val < other.val

def insert(root, v):
    if root is None: return TreeNode(v)
    if v < root.val: root.left = insert(root.left, v)
    else: root.right = insert(root.right, v)
    return root

def walk(t):
    if t:
        yield from walk(t.left)
        yield t.val
        yield from walk(t.right)

def depth(t): return 0 if not t else 1 + max(depth(t.left), depth(t.right))

def f(values):
    root = None
    for v in values:
        root = insert(root, v)
    return list(walk(root)), depth(root), min(root, TreeNode(0)).val
""",
        "[5, 2, 8, 1, 9, 3]",
    ),
    "queens": (
        """
def f(n):
    solutions = []
    def place(row, cols, d1, d2, acc):
        if row == n:
            solutions.append(acc)
            return
        for c in range(n):
            if c in cols or row + c in d1 or row - c in d2:
                continue
            place(row + 1, cols | {c}, d1 | {row + c}, d2 | {row - c}, acc + [c])
    place(0, set(), set(), set(), [])
    return len(solutions), solutions[0] if solutions else []
""",
        "6",
    ),
    "maze": (
        """
from collections import deque
MOVES = {'U': (-1, 0), 'D': (1, 0), 'L': (0, -1), 'R': (0, 1)}

def f(grid):
    rows = [list(r) for r in grid.split('/')]
    start = next((i, j) for i, r in enumerate(rows) for j, c in enumerate(r) if c == 'S')
    q, seen = deque([(start, '')]), {start}
    while q:
        (i, j), path = q.popleft()
        if rows[i][j] == 'E': return path
        for name, (di, dj) in MOVES.items():
            a, b = i + di, j + dj
            if 0 <= a < len(rows) and 0 <= b < len(rows[0]) and rows[a][b] != '#' and (a, b) not in seen:
                seen.add((a, b)); q.append(((a, b), path + name))
    return 'no way'
""",
        "'S.#./...E'",
    ),
    "exceptions of its own": (
        """
class ValidationError(Exception):
    def __init__(self, field, msg):
        super().__init__(f"{field}: {msg}")
        self.field = field

def validate(rec):
    if 'age' not in rec: raise ValidationError('age', 'missing')
    if rec['age'] < 0: raise ValidationError('age', 'negative')
    return rec['age']

def f(records):
    ok, errors = [], []
    for rec in records:
        try:
            ok.append(validate(rec))
        except ValidationError as e:
            errors.append((e.field, str(e), type(e).__name__, e.args))
        except (KeyError, TypeError) as exc:
            errors.append(repr(exc))
        else:
            ok[-1] += 1
        finally:
            errors.sort(key=str)
    return ok, errors
""",
        "[{'age': 3}, {}, {'age': -1}, {'age': 'x'}]",
    ),
    "type dispatch": (
        """
def describe(x):
    if callable(x): return 'fn'
    name = type(x).__name__
    return {'int': 'number', 'float': 'number', 'str': 'text'}.get(name, name)

def deep(x, level=0):
    if isinstance(x, (list, tuple)):
        return [deep(i, level + 1) for i in x]
    if isinstance(x, dict):
        return {k: deep(v, level + 1) for k, v in x.items()}
    return f"{describe(x)}@{level}"

def f(x):
    return deep(x)
""",
        "[1, 'a', {'k': (2.5, None)}]",
    ),
    "pipeline with reduce and partial": (
        """
from functools import partial, reduce, total_ordering
import operator

@total_ordering
class Version:
    def __init__(self, s):
        self.parts = tuple(int(p) for p in s.split('.'))
    def __eq__(self, o): return self.parts == o.parts
    def __lt__(self, o): return self.parts < o.parts
    def __str__(self): return '.'.join(map(str, self.parts))

def pipe(value, *fns):
    return reduce(lambda acc, fn: fn(acc), fns, value)

def f(versions):
    newest = max(map(Version, versions))
    size = pipe(versions, len, partial(operator.mul, 10), operator.neg)
    return str(newest), size, Version('1.10') >= Version('1.9')
""",
        "['1.2.10', '1.10', '1.9.9']",
    ),
    "inventory, messy": (
        '''
# Inventory puzzle
DEBUG = True
stock = {}   # filled below
log = []

def dbg(*args):
    if DEBUG:
        print("[dbg]", *args)

def apply(cmd, amount=1, **kw):
    """Apply one command to the stock."""
    global stock
    kind, _, what = cmd.partition(":")
    if kind == "add":
        stock[what] = stock.get(what, 0) + amount
    elif kind == "del":
        stock = {k: v for k, v in stock.items() if k != what}
    else:
        log.append("?" + kind)
    dbg(cmd, stock)

def f(cmds, start=None, reverse=False):
    global stock
    stock = dict(start or {})
    log.clear()
    for c in (reversed(cmds) if reverse else cmds):
        if isinstance(c, str):
            apply(c)
        else:
            apply(*c)
    return stock, log
''',
        "['add:a', ('add:b', 5), 'del:a', 'xyz:q'], {'a': 2}, reverse=True",
    ),
    "sorting variants": (
        """
def bubble(a):
    a, swaps = a[:], 0
    for i in range(len(a)):
        for j in range(len(a) - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
                swaps += 1
    return a, swaps

def merge_sort(a):
    if len(a) < 2: return a
    m = len(a) // 2
    l, r, out = merge_sort(a[:m]), merge_sort(a[m:]), []
    while l and r:
        out.append((l if l[0] <= r[0] else r).pop(0))
    return out + l + r

def f(items, key_mod=10, reverse=False):
    b, swaps = bubble(items)
    assert b == merge_sort(items), "sorts disagree"
    return sorted(items, key=lambda v: (v % key_mod, v), reverse=reverse), swaps
""",
        "items = [31, 4, 15, 9, 26]\nreverse = True",
    ),
    "multiset with missing and getattr": (
        """
from collections import Counter, ChainMap, UserDict

class Bag(UserDict):
    def __missing__(self, key):
        return 0
    def __getattr__(self, name):
        if name.startswith('n_'):
            return self.data.get(name[2:], 0)
        raise AttributeError(name)

def f(words):
    bag = Bag(Counter(words))
    merged = ChainMap({'x': 9}, bag.data)
    return bag.n_a, bag['zzz'], merged['x'], sum(bag.values())
""",
        "['a', 'b', 'a', 'x']",
    ),
}

REFUSED = {
    "seeded random": (
        """
import random

def f(n, seed):
    rng = random.Random(seed)
    deck = list(range(n))
    rng.shuffle(deck)
    return deck
""",
        "8, 42",
        "banned_import",  # nobody can work out a Mersenne twister by hand: write a small generator of your own
    ),
    "hash table of text": (
        """
class HashTable:
    def __init__(self, size=8):
        self.buckets = [[] for _ in range(size)]
    def put(self, key, value):
        self.buckets[hash(key) % len(self.buckets)].append((key, value))

def f(words):
    table = HashTable()
    for i, w in enumerate(words):
        table.put(w, i)
    return [len(b) for b in table.buckets]
""",
        "['red', 'green', 'blue']",
        "banned_name",  # hashes of text differ between processes
    ),
}

SORT = "def f(items, k=2, reverse=False):\n    return sorted(items, reverse=reverse)[:k]"
INPUTS = {
    "positional": ("[3, 1, 2], 1, True", "[3, 1, 2], 1, True"),
    "named": ("[3, 1, 2], reverse=True", "[3, 1, 2], 2, True"),
    "all named": ("items=[3, 1, 2], k=1", "[3, 1, 2], 1"),
    "named in another order": ("k=1, items=[3, 1, 2]", "[3, 1, 2], 1"),
    "named, spaces and a last comma": ("[3, 1],\n k = 1 ,\n reverse = True", "[3, 1], 1, True"),
    "assignment": ("items = [3, 1, 2]", "[3, 1, 2]"),
    "assignments": ("items = [3, 1, 2]\nk = 3\nreverse = True", "[3, 1, 2], 3, True"),
    "assignments in another order": ("reverse = True\n\nitems = [\n  3,\n  1,\n]\n", "[3, 1], 2, True"),
    "assignments with semicolons": ("items = [3, 1]; k = 1", "[3, 1], 1"),
    "text that looks named": ("['a = 1', 'b=2, c=3']", "['a = 1', 'b=2, c=3']"),
    "comments": ("[3, 1],  # f(x = 1), 'a\nk=1  # '", "[3, 1], 1"),
    "a comment at the end": ("[3, 1], 1 # 2,", "[3, 1], 1"),
    "assignments with comments": ("items = ['#']  # a\n# b\nk = 1  # c = 2", "['#'], 1"),
    "lines": ("[3,\n 1,\n 2],\n1", "[3, 1, 2], 1"),
    "nested": ("[(1, {'a'}), (0, {'b'})], 1", "[(1, {'a'}), (0, {'b'})], 1"),
}
