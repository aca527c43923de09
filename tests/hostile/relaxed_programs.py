"""Programs that abuse what the rules for tasks allow: formats that reach frames, prints, state, the top level."""

from programs import MEMORY, TIMEOUT

UP = "def f():\n def g(): yield ('{0.gi_' + 'frame' + '.f_back' * %d + '%s}').format(h)\n h = g()\n return next(h)"

FORMATS = {
    "reads its frame": (UP % (1, ".f_lasti"), {"ok"}),
    "finds no right answer": (UP % (3, ".f_locals[outputs]"), {"exception KeyError"}),
    "finds no task": (UP % (4, ".f_locals[task]"), {"exception KeyError"}),
    "finds no usage of the job before": (UP % (5, ".f_locals[usage]"), {"ok 'None'"}),
    "finds no status of the job before": (UP % (5, ".f_locals[status]"), {"ok 'None'"}),
    "finds no environment": (
        "import collections\ndef f(): return ('{0._' + '_globals_' + '_[collections]._sys.modules[os].environ}').format(f)",
        {"ok 'environ({})'"},
    ),
    "beyond the last frame": (UP % (40, ""), {"exception AttributeError"}),
    "calls nothing": (UP % (5, ".f_locals[fork]()"), {"exception ValueError", "exception AttributeError"}),
    "a field that loops": (
        "class A:\n @property\n def x(self):\n  while True: pass\ndef f(): return '{0.x}'.format(A())",
        TIMEOUT,
    ),
    "a width of gigabytes": ("def f():\n t = '{:' + '>' + '9' * 10 + '}'\n return len(t.format(1))", MEMORY),
    "a width too large": (
        "def f():\n t = '{:' + '>' + '9' * 30 + '}'\n return len(t.format(1))",
        {"exception ValueError"},
    ),
    "fields in fields": (
        "def f():\n t = '{' * 3000 + '0' + '}' * 3000\n return t.format(1)",
        {"exception ValueError", "ok"},
    ),
    "an index of a billion digits": ("def f(): return ('{' + '9' * 10**6 + '}').format(1)", {"exception ValueError"}),
    "its own mapping": (
        "class D(dict):\n def __missing__(self, key): return self.__class__({key: 1})[key + 'x'] if len(key) < 9 else f\n"
        "def f(): return '{a}'.format_map(D()) != ''",
        {"ok True"},
    ),
}

PRINTS = {
    "flood of lines": ("def f():\n while True: print('a' * 1000)", TIMEOUT),
    "one large line": ("def f(): print('a' * 10**7)", {"ok None"}),
    "a line of a terabyte": ("def f(): print('a' * 10**12)", MEMORY),
    "frames": ("def f():\n print('R\\x02\\x00\\x00\\x00vT', end='', flush=True)\n return 1", {"ok 1"}),
    "frames at the top": ("print('P\\x00\\x00\\x00\\x00F\\x00\\x00\\x00\\x00')\ndef f(): return 1", {"ok 1"}),
    "lone surrogates": ("def f(): print('\\ud800')", {"ok None"}),
    "to a writer of its own": (
        "class W:\n def write(self, text): seen.append(text)\nseen = []\ndef f():\n print(1, 2, file=W())\n return seen",
        {"ok ['1', ' ', '2', '\\n']"},
    ),
    "a text that prints": (
        "class A:\n def __str__(self):\n  print(self)\n  return ''\ndef f(): print(A())",
        {"exception RecursionError", *MEMORY},
    ),
    "print put in place of f": ("def f(): return 1\nf = print", {"ok None"}),
}

TOP = {
    "loops": ("while True: pass\ndef f(): return 1", TIMEOUT),
    "prints for ever": ("while True: print(1)\ndef f(): return 1", TIMEOUT),
    "fills memory": ("T = [0] * 10**10\ndef f(): return 1", MEMORY),
    "exits": ("def f(): return 1\nraise SystemExit(0)", {"base_exception SystemExit"}),
    "removes f": ("def f(): return 1\ndel f", {"exception NameError"}),
    "replaces f": ("def f(): return 1\nf = 3", {"exception NameError"}),
    "a main block": ("def f(): return __name__\nif __name__ == '__main__':\n while True: pass", {"ok 'program'"}),
    "shadowed builtins": ("len = type = bytes = isinstance = None\ndef f(): return [1]", {"ok [1]"}),
    "global in place of f": ("def f():\n global f\n f = None\n return 1", {"ok 1"}),
}

CATEGORIES = {"formats": FORMATS, "prints": PRINTS, "top level": TOP}
FIVE = ((3,), (1,), (4,), (2,), (5,))
CASES = {
    "global counter": ("n = 0\ndef f(x):\n global n\n n += 1\n return x + n", False, FIVE),
    "global memo": (
        "memo = {}\ndef f(x):\n global memo\n if x not in memo: memo = {**memo, x: x * x}\n return memo[x]",
        True,
        FIVE,
    ),
    "global set anew by each call": ("n = 0\ndef f(x):\n global n\n n = x\n return n * n", True, FIVE),
    "global that keeps the first": ("n = None\ndef f(x):\n global n\n n = n or x\n return n", False, FIVE),
    "other inputs by a format": (
        "def f(x):\n def g(): yield ('{0.gi_frame' + '.f_back' * 3 + '.f_locals[inputs]}').format(h)\n h = g()\n return next(h)",
        False,
        FIVE,
    ),
    "address by a format": ("def f(x): return ('{' + '}').format(f)", False),
    "format of numbers": ("def f(x): return ('{' + ':>5}').format(x)", True),
    "print": ("def f(x):\n print(x, {'a', 'b', 'c'})\n return x", True, FIVE),
    "hash of a tuple of int": (
        "class A:\n def __hash__(s): return hash((1, 2))\ndef f(x): return len({A(), A()})",
        True,
    ),
}
