"""Programs that are, or are not, functions of their input, and whether a deterministic job must accept them.

A case that rests on chance is written so that two servers agree by accident less than once in a million: many elements,
wide numbers. Hash seeds are fixed, so that even these cases come out the same in every run.
"""

WORDS = "'alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi'.split()"
FIVE = ((3,), (1,), (4,), (2,), (5,))

# name: (program, whether it must be accepted) and, if need be, the inputs
CASES = {
    # the order of sets
    "set of str, popped": (f"def f(x):\n s = set({WORDS})\n return [s.pop() for _ in range(16)]", False),
    "set of bytes": (f"def f(x): return list({{w.encode() for w in {WORDS}}})", False),
    "set of tuples of str": (f"def f(x): return list({{(w, x) for w in {WORDS}}})", False),
    "frozenset of str": (f"def f(x): return list(frozenset({WORDS}))", False),
    "dict from a set": (f"def f(x): return list(dict.fromkeys(set({WORDS})))", False),
    "repr of a set": (f"def f(x): return repr(set({WORDS}))", False),
    "difference of sets": (f"def f(x): return list(set({WORDS}) - {{'mu'}})", False),
    "enumerated set": (f"def f(x): return {{w: i for i, w in enumerate(set({WORDS}))}}", False),
    "set of str, sorted": (f"def f(x): return sorted(set({WORDS}))", True),
    "set of str, returned": (f"def f(x): return set({WORDS})", True),
    "set of str, counted": (f"def f(x): return len(set({WORDS})), max(set({WORDS}))", True),
    "membership": (f"def f(x): return [w for w in {WORDS} if w in {{'mu', 'nu'}}]", True),
    "set of floats": ("def f(x): return list({x / 7, 2.5, -1e300, 1e-9})", True),
    "set of tuples of int": ("def f(x): return list({(i, i * x) for i in range(20)})", True),
    "sums of floats over a set": (  # not by `sum`, which rounds only once from Python 3.12 on
        f"import functools, operator\ndef f(x):\n s = {{w: 7.0 ** i / 3 for i, w in enumerate({WORDS})}}\n return [functools.reduce(operator.add, (s[w] / k for w in set(s))) for k in range(1, 60)]",
        False,
    ),
    "set argument, sorted": ("def f(s): return sorted(s)", True, (({8, 0, 16},),)),
    "dict argument in its own order": ("def f(d): return list(d)", True, (({"b": 1, "a": 2},),)),
    # hashes
    "hash of bytes": ("def f(x): return hash(b'abc')", False),
    "hash of a date": ("import datetime\ndef f(x): return hash(datetime.date(2020, 1, x))", False),
    "hash of a tuple of str": ("def f(x): return hash(('a', x))", False),
    "hash of an enum member": ("import enum\nclass E(enum.Enum): A = 1\ndef f(x): return hash(E.A)", False),
    "hash of a decimal": ("import decimal\ndef f(x): return hash(decimal.Decimal(x) / 7)", True),
    "hash of a fraction": ("import fractions\ndef f(x): return hash(fractions.Fraction(x, 7))", True),
    "hash of empty text": ("def f(x): return hash(''), hash(b'')", True),
    "hash of a function": ("def f(x): return hash(f) % 10**12", False),
    "hash of an object, by its method": ("def f(x): return object().__hash__()", False),
    "hash of nan": ("def f(x): return hash(float('nan'))", False),
    "digest": ("import hashlib\ndef f(x): return hashlib.sha256(bytes([x])).hexdigest()", True),
    # addresses and the heap
    "repr of a function": ("def f(x): return repr(f)", False),
    "repr of a generator": ("def f(x): return str(i for i in ())", False),
    "text of an exception with an object": (
        "def f(x):\n try: {}[object]; raise KeyError(object())\n except KeyError as e: return str(e) if 'object at' in str(e) else repr(object())",
        False,
    ),
    "same identity": ("def f(x):\n a = [x]\n return id(a) == id(a), a is a, 'ab' is 'ab'", True),
    "size of an object": ("import sys\ndef f(x): return sys.getsizeof([x]), sys.getsizeof('abc')", True),
    "last digits of an address": ("def f(x): return repr(object())[-4:]", False),
    "order of two functions in a set": (
        "def a(): return 0\ndef b(): return 1\ndef f(x): return [g() for g in {a, b}]",
        False,
    ),
    "order of three functions in a set": (
        "def inc(x): return x + 1\ndef dbl(x): return x * 2\ndef neg(x): return -x\n"
        "def f(x):\n for g in {inc, dbl, neg}: x = g(x)\n return x",
        False,
    ),
    "order of bare objects in a set": (
        "def f(x):\n a, b = object(), object()\n return [(a, b).index(o) for o in {a, b}]",
        False,
    ),
    "order of lambdas in a set": (
        "def f(x):\n g = [lambda: 0 for _ in range(x)]\n return [g.index(o) for o in set(g)]",
        False,
    ),
    "order of generators in a set": (
        "def f(x):\n g = [(i for i in ()) for _ in range(4)]\n return [g.index(o) for o in set(g)]",
        False,
    ),
    "order of objects in a set, after many": (
        "class A:\n def __init__(s, n): s.n = n\n"
        "def f(x):\n many = [A(i) for i in range(500)]\n return [a.n for a in {A(0), A(1), A(2)}]",
        False,
    ),
    "graph whose nodes are objects": (
        "class Node:\n def __init__(s, v): s.v, s.e = v, set()\n"
        "def f(n):\n g = [Node(i) for i in range(n)]\n"
        " for i in range(n): g[i].e |= {g[(i + 1) % n], g[i * 2 % n]}\n"
        " seen, left = [], [g[0]]\n"
        " while left:\n  k = left.pop()\n  if k.v not in seen: seen.append(k.v); left.extend(k.e)\n"
        " return seen",
        False,
        ((16,),),
    ),
    "order of texts of objects": (
        "def f(x):\n g = [object() for _ in range(3)]\n return [g.index(o) for o in sorted(g, key=str)]",
        False,
    ),
    "which text of an object is less": (
        "def f(x):\n a, b = map(int, ()), filter(int, ())\n return str(a)[-13:] < str(b)[-13:]",
        False,
    ),
    "objects in a set, sorted": (
        "class A:\n def __init__(s, n): s.n = n\ndef f(x): return sorted(a.n for a in {A(i) for i in range(9)})",
        True,
    ),
    "thread identity": ("import threading\ndef f(x): return threading.get_ident()", False),
    "allocated blocks": ("import sys\ndef f(x): return sys.getallocatedblocks()", False),
    "recursion limit": ("import sys\ndef f(x): return sys.getrecursionlimit()", False),
    "thresholds of the collector": ("import gc\ndef f(x): return gc.get_threshold()", False),
    "dead weak reference": (
        "import weakref\nclass A: pass\ndef f(x):\n r = weakref.ref(A())\n return r() is None",
        True,
    ),
    # clocks, processes, chance
    "monotonic clock": ("import time\ndef f(x): return time.monotonic_ns()", False),
    "time of the process": ("import time\ndef f(x): return time.process_time_ns()", False),
    "clock, by another name": ("import datetime\ndef f(x): return datetime.datetime.now().isoformat()", False),
    "work done in a time": (
        "import time\ndef f(x):\n end, n = time.perf_counter() + 0.003, 0\n while time.perf_counter() < end: n += 1\n return n",
        False,
    ),
    "clock that is only compared": ("import time\ndef f(x): return time.time() > 0", True),
    "system random": ("import random\ndef f(x): return random.SystemRandom().getrandbits(64)", False),
    "random generator": ("import random\ndef f(x): return random.Random().getrandbits(64)", False),
    "shuffled": (f"import random\ndef f(x):\n w = {WORDS}\n random.shuffle(w)\n return w", False),
    "shuffled, seeded by text": (
        f"import random\ndef f(x):\n w = {WORDS}\n random.Random('seed').shuffle(w)\n return w",
        True,
    ),
    "random module of another module": (
        "import statistics\ndef f(x): return statistics.random.getrandbits(64)",
        False,
    ),
    "no random bytes": ("import os\ndef f(x): return os.urandom(0)", True),
    "environment": ("import os\ndef f(x): return dict(os.environ)", True),
    # state between calls
    "seeded once": ("import random\nrandom.seed(7)\ndef f(x): return random.getrandbits(64)", False, FIVE),
    "counter of calls": ("n = [0]\ndef f(x):\n n[0] += 1\n return n[0]", False, FIVE),
    "sum of all before": ("n = [0]\ndef f(x):\n n[0] += x\n return n[0]", False, FIVE),
    "largest so far": ("seen = []\ndef f(x):\n seen.append(x)\n return max(seen)", False, FIVE),
    "global iterator": ("import itertools\nc = itertools.count()\ndef f(x): return next(c)", False, FIVE),
    "default that grows": ("def f(x, seen=[]):\n seen.append(x)\n return list(seen)", False, FIVE),
    "attribute of the function": ("def f(x):\n f.n = getattr(f, 'n', 0) + 1\n return f.n", False, FIVE),
    "attribute of a class": ("class A: n = 0\ndef f(x):\n A.n += x\n return A.n", False, FIVE),
    "state in another module": (
        "import math\ndef f(x):\n math.n = getattr(math, 'n', 0) + x\n return math.n",
        False,
        FIVE,
    ),
    "first call only": ("first = [True]\ndef f(x):\n was = first[0]; first[0] = False\n return was", False, FIVE),
    "cache": ("import functools\n@functools.lru_cache(2)\ndef f(x): return x * x", True, FIVE),
    "table filled as needed": (
        "known = {}\ndef f(x):\n if x not in known: known[x] = x ** 3\n return known[x]",
        True,
        FIVE,
    ),
    "argument changed, many calls": ("def f(x):\n x.append(len(x))\n return x", True, (([1],), ([1, 2],), ([],))),
    "generator made anew": ("def g(n):\n while n: n -= 1; yield n\ndef f(x): return list(g(x))", True, FIVE),
    "exceptions of some calls": ("def f(x): return 6 // (x - 3)", True, FIVE),
    # interpreter
    "deep, but not too deep": ("def f(x): return f(x - 1) + 1 if x else 0", True, ((400,),)),
    "deeper than one server allows": ("def f(x): return f(x - 1) + 1 if x else 0", False, ((1100,),)),
    "deeper than both allow": ("def f(x): return f(x - 1) + 1 if x else 0", True, ((5000,),)),
    "line numbers": ("import sys\ndef f(x): return sys._getframe().f_lineno", True),
    "names defined": ("def f(x): return sorted(n for n in globals() if n[0] != '_')", True),
    "version": ("import sys\ndef f(x): return list(sys.version_info[:2]), sys.maxsize", True),
    "trigonometry": ("import math\ndef f(x): return math.sin(x), math.exp(x), x ** 0.5", True),
    "sorting with ties": (f"def f(x): return sorted({WORDS}, key=len)", True),
    "counter of letters": (
        "import collections\ndef f(x): return collections.Counter('abracadabra').most_common()",
        True,
    ),
    "json": ("import json\ndef f(x): return json.dumps({'b': x, 'a': [None, 1.5]})", True),
    "classes and operators": (
        "class V:\n def __init__(s, x): s.x = x\n def __add__(s, o): return V(s.x + o.x)\ndef f(x): return (V(x) + V(2)).x",
        True,
    ),
    "position, alike from both ends": (
        "n = [-1]\ndef f(x):\n n[0] += 1\n return x + [0, 1, 2, 1, 0, 0, 1, 2, 1, 0][n[0] % 10]",
        False,
        tuple((i,) for i in range(10)),
    ),
    "order of a union of keys": (f"def f(x): return list(dict.fromkeys({WORDS}).keys() | [])", False),
    "set argument, as it comes": ("def f(s): return list(s)", True, (({8, 0, 16},),)),
}
