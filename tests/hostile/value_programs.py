"""Programs that attack by what they compute and return: bombs and odd values."""

import sys

from programs import CRASH, MEMORY, TIMEOUT

SLOW = TIMEOUT | MEMORY

BOMBS = {
    "number to text": ("def f(): return len(str(10 ** 10 ** 6))", {"exception ValueError"} | TIMEOUT),
    "number to text, limit lifted": (
        "import sys\nsys.set_int_max_str_digits(0)\ndef f(): return len(str(1 << 10**8))",
        SLOW,
    ),
    "text to number, limit lifted": (
        "import sys\nsys.set_int_max_str_digits(0)\ndef f(): return int('9' * 10**7) % 7",
        SLOW,
    ),
    "tower of powers": ("def f(): return 9 ** 9 ** 9 ** 9", SLOW),
    "power with a modulus": ("def f(): return pow(3, 1 << 10**6, (1 << 10**6) - 1) % 7", TIMEOUT),
    "binomial": ("import math\ndef f(): return math.comb(10**8, 5 * 10**7) % 7", SLOW),
    "least common multiples": ("import math\ndef f(): return math.lcm(*range(1, 10**6)) % 7", SLOW),
    "width from an argument": ("def f(): return len('%*d' % (2147483000, 1))", MEMORY),
    "precision": (
        "def f(): return len('%.2147483000f' % 1)",
        MEMORY | {"exception ValueError", "exception OverflowError"},
    ),
    "width of braces": ("def f(): return len('{:>{}}'.format(1, 10**10))", MEMORY | {"exception ValueError"}),
    "format in format": (
        "def f():\n s = '{0}'\n for _ in range(60): s = s.replace('{0}', '{0}{0}')\n return len(s)",
        MEMORY,
    ),
    "repeated join": ("def f():\n s = 'ab'\n while True: s = s.join([s, s, s])", MEMORY),
    "replace grows": ("def f():\n s = 'a'\n while True: s = s.replace('a', 'aa' * 99)", MEMORY),
    "expandtabs": ("def f(): return len(('\\t' * 9999).expandtabs(10**8))", MEMORY | {"exception OverflowError"}),
    "centre": ("def f(): return len('a'.center(10**13))", MEMORY),
    "encodings": ("def f(): return len(('\\U0001f600' * 10**7).encode('utf-32') * 99)", MEMORY),
    "regex repeats": (
        "import re\ndef f(): return re.compile('((a{0,9999}){0,9999}){0,9999}').match('a' * 9999) is None",
        SLOW | {"ok False"},
    ),
    "regex of many groups": (
        "import re\ndef f(): return re.compile('(?:' * 20000)",
        CRASH | MEMORY | {"exception RecursionError", "exception error"},
    ),
    "regex that looks ahead": (
        "import re\ndef f(): return re.match('(?=(a+))*(a*)*b', 'a' * 40)",
        TIMEOUT | {"ok None", "exception error"},
    ),
    "regex alternatives": ("import re\ndef f(): return bool(re.fullmatch('(a|a|a|a)*b', 'a' * 40))", TIMEOUT),
    "decimal exponent": (
        "from decimal import *\ndef f(): return int(Decimal('1e999999')) % 7",
        SLOW | {"exception OverflowError"},
    ),
    "decimal precision": (
        "from decimal import *\ndef f():\n getcontext().prec = 10**18 - 1\n return Decimal(1) / 3",
        MEMORY | {"exception InvalidOperation"},
    ),
    "decimal power": (
        "from decimal import *\ndef f():\n getcontext().prec = 10**6\n return Decimal(3) ** Decimal('1234567.5')",
        SLOW,
    ),
    "fraction from text": ("from fractions import Fraction\ndef f(): return Fraction('1e100000000')", SLOW),
    "fraction power": ("from fractions import Fraction\ndef f(): return Fraction(3, 7) ** 10**8", SLOW),
    "nested json": ("import json\ndef f(): return json.loads('[' * 10**6)", {"exception RecursionError", *CRASH}),
    "json of itself": (
        "import json\ndef f():\n x = []\n x.append(x)\n return json.dumps(x, check_circular=False)",
        {"exception RecursionError", *CRASH},
    ),
    "product of ranges": ("import itertools\ndef f(): return len(list(itertools.product(range(99), repeat=9)))", SLOW),
    "product of a long range": (
        "import itertools\ndef f(): return next(itertools.product(range(10**10), repeat=2))",
        MEMORY,
    ),
    "chain of chains": (
        "import itertools\ndef f():\n it = iter(())\n for _ in range(10**6): it = itertools.chain(it)\n return list(it)",
        CRASH | MEMORY,
    ),
    "filter of filters": (
        "def f():\n it = iter(())\n for _ in range(10**6): it = filter(None, it)\n return list(it)",
        CRASH | MEMORY,
    ),
    "tee far behind": (
        "import itertools\ndef f():\n a, b = itertools.tee(itertools.count())\n for _ in a: pass",
        SLOW,
    ),
    "copies of deep lists": (
        "import copy\ndef f():\n x = []\n for _ in range(9999): x = [x]\n return copy.deepcopy(x)",
        {"exception RecursionError"},
    ),
    "comparison of deep lists": (
        "def f():\n x, y = [], []\n for _ in range(10**5): x, y = [x], [y]\n return x == y",
        # since Python 3.14, it compares as deep as the stack reaches
        {"exception RecursionError", *CRASH} | ({"ok True"} if sys.version_info >= (3, 14) else set()),
    ),
    "hash of a deep tuple": (
        "def f():\n t = ()\n for _ in range(10**6): t = (t,)\n return {t: 1}",
        CRASH | MEMORY | {"exception RecursionError"},
    ),
    "key of a deep tuple, shallow enough": (
        "def f():\n t = ()\n for _ in range(70): t = (t,)\n return {t: 1}",
        {"unplain nested too deeply"},
    ),
    "partial of partials": (
        "import functools\ndef f():\n p = print\n for _ in range(10**5): p = functools.partial(lambda g: g(), p)\n return p()",
        CRASH | MEMORY | {"exception RecursionError"},
    ),
    "key derivation": (
        "import hashlib\ndef f(): return hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)",
        TIMEOUT | {"exception AttributeError"},
    ),
    "memory-hard hash": (
        "import hashlib\ndef f(): return hashlib.scrypt(b'', salt=b'', n=1 << 20, r=8, p=1, maxmem=1 << 31)",
        MEMORY | {"exception ValueError", "exception AttributeError"},
    ),
    "hash of much": (
        "import hashlib\ndef f():\n h = hashlib.sha256()\n while True: h.update(bytes(1 << 20))",
        TIMEOUT,
    ),
    "array": ("import array\ndef f(): return len(array.array('d', [0.0]) * 10**12)", MEMORY),
    "struct size": ("import struct\ndef f(): return len(struct.pack('999999999999x'))", MEMORY),
    "struct size overflow": ("import struct\ndef f(): return struct.calcsize('9' * 30 + 'x')", {"exception error"}),
    "difference of long texts": (
        "import difflib\ndef f(): return difflib.SequenceMatcher(None, 'ab' * 5000, 'ba' * 5000, False).ratio()",
        TIMEOUT,
    ),
    "normalisation": (
        "import unicodedata\ndef f(): return len(unicodedata.normalize('NFC', 'a' + '\\u0301\\u0323' * 50000))",
        TIMEOUT | {"ok 100000", "ok"},
    ),
    "one glyph, eighteen characters": (
        "import unicodedata\ndef f(): return len(unicodedata.normalize('NFKC', '\\ufdfa' * 10**7))",
        SLOW,
    ),
    "collisions in a dict": ("def f(): return len({i * (2**61 - 1): 0 for i in range(10**5)})", TIMEOUT),
    "collisions in a set of tuples": ("def f(): return len({(i * (2**61 - 1), 'a') for i in range(10**5)})", TIMEOUT),
    "collisions of its own": (
        "class A:\n def __hash__(self): return 1\ndef f(): return len({A() for _ in range(10**5)})",
        TIMEOUT,
    ),
    "equality that loops": (
        "class A:\n def __hash__(self): return 1\n def __eq__(self, other):\n  while True: pass\ndef f(): return {A(), A()}",
        TIMEOUT,
    ),
    "length that lies": (
        "class A:\n def __len__(self): return 10**18\n def __getitem__(self, i): return i\ndef f(): return list(A())",
        SLOW,
    ),
    "length hint that lies": (
        "class A:\n def __iter__(self): return self\n def __next__(self): raise StopIteration\n def __length_hint__(self): return 10**15\ndef f(): return list(A())",
        MEMORY,
    ),
    "slice of a range": ("def f(): return list(range(10**18))[::10**9]", MEMORY),
    "bytearray": ("def f(): return len(bytearray(10**13))", MEMORY),
    "memory view": ("def f(): return memoryview(bytearray(1)).cast('B', shape=[1]).tolist() * 10**12", MEMORY),
    "many attributes": (
        "class A: pass\ndef f():\n i = 0\n while True: i += 1; setattr(A, 'a' * 999 + str(i), [i] * 99)",
        SLOW,
    ),
    "many classes": ("def f():\n keep = []\n while True: keep.append(type('A', (), {'a': [0] * 999}))", SLOW),
    "deep inheritance": (
        "def f():\n a = object\n for _ in range(3000): a = type('A', (a,), {})\n return len(a.__mro__)",
        SLOW | {"ok 3001", "killed", "exception RecursionError"},
    ),
    "interned names": (
        "import sys\ndef f():\n i = 0\n while True: i += 1; sys.intern('a' * 999 + str(i)) and keep.append(sys.intern(str(i) * 500))\nkeep = []",
        SLOW,
    ),
    "dictionary of everything": ("def f(): return dict.fromkeys(range(10**9))", MEMORY),
    "long source of one line": ("x = [" + "1," * 30000 + "]\ndef f(): return len(x)", {"ok 30000"} | TIMEOUT),
    "many nested functions": (
        "def f():\n" + "".join(" " * (i + 1) + f"def g{i}():\n" for i in range(90)) + " " * 91 + "pass",
        {"ok None", "syntax_error", "compile_failed"},
    ),
    "many arguments": ("def f(" + ",".join(f"a{i}=0" for i in range(5000)) + "): return a4999", {"ok 0"}),
    "f-string in f-string": ("x = " + "f'{" * 200 + "1" + "}'" * 200, {"syntax_error", "compile_failed"}),
    "long identifier": ("a" * 60000 + " = 1\ndef f(): return 1", {"ok 1"}),
    "dedent to nowhere": (
        "def f():\n" + "".join(" " * i + "if 1:\n" for i in range(1, 120)) + " " * 120 + "pass",
        {"syntax_error", "compile_failed"},
    ),
}

RESULTS = {
    f"result of type {name}": (f"{setup}\ndef f(): return {expression}", {f"unplain type {name} is not plain"})
    for name, setup, expression in (
        ("bytearray", "", "bytearray(b'a')"),
        ("memoryview", "", "memoryview(b'a')"),
        ("range", "", "range(3)"),
        ("slice", "", "slice(3)"),
        ("ellipsis", "", "..."),
        ("NotImplementedType", "", "NotImplemented"),
        ("Decimal", "import decimal", "decimal.Decimal(1)"),
        ("Fraction", "import fractions", "fractions.Fraction(1)"),
        ("Counter", "import collections", "collections.Counter('a')"),
        ("OrderedDict", "import collections", "collections.OrderedDict()"),
        ("defaultdict", "import collections", "collections.defaultdict(int)"),
        ("deque", "import collections", "collections.deque()"),
        ("dict_keys", "", "{}.keys()"),
        ("dict_items", "", "{}.items()"),
        ("map", "", "map(int, '1')"),
        ("zip", "", "zip()"),
        ("array", "import array", "array.array('b')"),
        ("mappingproxy", "", "vars(int)"),
        ("date", "import datetime", "datetime.date.min"),
        ("Colour", "import enum\nclass Colour(enum.IntEnum): RED = 1", "Colour.RED"),
        ("Flag", "import enum\nclass Flag(enum.IntFlag): A = 1", "[Flag.A]"),
        ("Word", "import enum\nclass Word(enum.StrEnum): A = 'a'", "{'a': Word.A}"),
        ("Point", "import dataclasses\n@dataclasses.dataclass\nclass Point: x: int = 0", "(Point(),)"),
        ("ValueError", "", "ValueError(1)"),
        ("L", "class L(list):\n def __iter__(self): return iter([1])", "L()"),
        ("D", "class D(dict):\n def items(self): return [(1, 1)]", "D()"),
        ("S", "class S(set): pass", "[S()]"),
        ("T", "class T(tuple): pass", "{T(): 1}"),
        ("F", "class F(float):\n def __eq__(self, other): return True", "F('nan')"),
        ("C", "class C(complex): pass", "C(1)"),
        ("B", "class B(bytes): pass", "B(b'a')"),
        ("Fake", "class Fake:\n __class__ = int\n def __index__(self): return 1", "Fake()"),
        ("Proxy", "class Proxy:\n def __getattribute__(self, name): return getattr(1, name)", "Proxy()"),
        ("ReprOf", "class ReprOf:\n def __repr__(self): return '[1]'\n __str__ = __repr__", "ReprOf()"),
    )
}
RESULTS |= {
    "shared without end": (
        "def f():\n x = []\n for _ in range(55): x = [x, x]\n return x",
        {"unplain value too large"},
    ),
    "shared and too deep": (
        "def f():\n x = []\n for _ in range(99): x = [x, x]\n return x",
        {"unplain nested too deeply"},
    ),
    "shared keys without end": (
        "def f():\n x = ()\n for _ in range(30): x = (x, x)\n return {x}",
        {"unplain value too large"} | TIMEOUT,
    ),
    "composed and decomposed text": ("def f(): return {'\\u00e9': 1, 'e\\u0301': 2} == {'\\u00e9': 1}", {"ok False"}),
    "null characters": ("def f(): return ['\\0', b'\\0', 'a\\0b']", {"ok ['\\x00', b'\\x00', 'a\\x00b']"}),
    "surrogate pair by halves": (
        "def f(): return ['\\ud83d\\ude00', '\\U0001f600']",
        {"ok ['\\ud83d\\ude00', '\U0001f600']"},
    ),
    "text that looks like a frame": (
        "def f(): return 'Z\\0\\0\\0\\0', b'R\\xff\\xff\\xff\\xff'",
        {"ok ('Z\\x00\\x00\\x00\\x00', b'R\\xff\\xff\\xff\\xff')"},
    ),
    "smallest floats": (
        "def f(): return [5e-324, -5e-324, 1.7976931348623157e308]",
        {"ok [5e-324, -5e-324, 1.7976931348623157e+308]"},
    ),
    "complex oddities": ("def f(): return [complex('nan+infj'), complex(-0.0, -0.0)]", {"ok [(nan+infj), (-0-0j)]"}),
    "largest number": ("def f(): return (1 << 14000) - 1 > 0, -(1 << 13999) < 0", {"ok (True, True)"}),
    "number one too large": ("def f(): return -(1 << 14000)", {"unplain int too large"}),
    "true and one in a set": ("def f(): return len({1, True, 1.0, 1 + 0j})", {"ok 1"}),
    "keys of all kinds": (
        "def f(): return {None: 0, 'a': 1, b'a': 2, 1.5: 3, (1, 'a'): 4, frozenset((1,)): 5, 2j: 6, -1: 7} == 0",
        {"ok False"},
    ),
    "too many bytes by a little": ("def f(): return ['a' * 65529, 1]", {"unplain value too large"}),
    "many small values": ("def f(): return [None] * 65534", {"ok"}),
    "one small value too many": ("def f(): return [None] * 65535", {"unplain value too large"}),
    "colliding keys": (
        "def f(): return {i * (2**61 - 1) for i in range(500)}",
        {"unplain too many keys that collide"},
    ),
    "colliding keys, one level down": (
        "def f(): return [{i * (2**61 - 1): i for i in range(100)} for _ in range(9)]",
        {"ok"},
    ),
}

CATEGORIES = {"bombs": BOMBS, "results": RESULTS}
