import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.executor.executor import MODULES
from trl_populora.tasks import REASONS
from trl_populora.tasks.code import CodeO
from trl_populora.tasks.code.hygiene import ALLOWED_MODULES, BANNED_NAMES, check_program, defines_f, parse


DECLARED = {*REASONS, *CodeO.reasons}

ACCEPTED = {
    "helper": "def g(x):\n    return x + 1\ndef f(x):\n    return g(g(x))",
    "nested": "def f(x):\n    def g(y):\n        return y * x\n    return g(2)",
    "recursion": "def f(n):\n    return n * f(n - 1) if n else 1",
    "class": """
class P:
    def __init__(self, x):
        self.x = x
    def __eq__(self, o):
        return self.x == o.x
def f(x):
    return P(x) == P(1)
""",
    "subclass": """
class A:
    def __init__(self, x):
        self.x = x
class B(A):
    def __init__(self, x):
        super().__init__(x + 1)
def f(x):
    return B(x).x
""",
    "private": """
class A:
    def __init__(self, x):
        self.__x = self._y = x
    def get(self):
        return self.__x + self._y
def f(x):
    return A(x).get()
""",
    "dataclass": """
from dataclasses import dataclass
@dataclass(frozen=True)
class P:
    x: int
    y: int = 0
def f(x):
    return P(x).y
""",
    "docstring": """
'''Counts.'''
from collections import Counter
def f(s):
    '''Counts letters.'''
    return dict(Counter(s))
""",
    "constants": "MOD = 10**9 + 7\nT: dict = {'a': [1, -2], 'b': (MOD, None)}\ndef f(x):\n    return x % MOD",
    "imports": "import math, collections.abc\nfrom functools import cache as c\ndef f(x):\n    return math.sqrt(x)",
    "star_arguments": "def f(*xs):\n    return sum(xs)",
    "generator": "def g(n):\n    yield from range(n)\ndef f(n):\n    return list(g(n))",
    "match": "def f(x):\n    match x:\n        case [a, *r]:\n            return a\n    return 0",
    "raises": "def f(x):\n    try:\n        return 1 / x\n    except ZeroDivisionError as e:\n        return str(e)",
    "comments": "# eval, print and __import__ are only mentioned\ndef f(x):\n    return x",
    "other letters": "def f(año, Δ, ß, ｘ):\n    'Цена x'\n    цена = año + Δ\n    return {'pаy': цена}",
    "written signs": "def f(s):\n    return s + '\\u200b\\ufe0f'",
    "escape": "def f(s):\n    return s.split('\\d')",
    "print": "def f(x):\n    print(x)\n    p = print\n    return x",
    "global": "n = 0\ndef f(x):\n    global n\n    n += x\n    return n",
    "attributes by name": "def f(x):\n    return getattr(x, 'real'), hasattr(x, str(x)), getattr(x, 'do_' + 'it', 0)",
    "parameter input": "def f(input, *, id=1):\n    return [hash for hash in input], id, (lambda dir: dir)(1)",
    "own compile": "def compile(x):\n    return compile(x[1:]) if x else x\ndef f(x):\n    return compile(x)",
    "own name, later used at the top": "input = [1, 2]\nTOTAL = sum(input)\ndef f(x):\n    return input, TOTAL",
    "a parameter named as a module": "import string\ndef f(string):\n    return string.upper(), string",
    "keyword id": "def f(x):\n    return dict(id=x)",
    "slots": "class A:\n    __slots__ = ('x', '_y')\ndef f(x):\n    a = A()\n    a._y = x\n    return a._y",
    "private of another variable": (
        "class A:\n    def __init__(self):\n        self._n = 1\ndef f(x):\n    thing = A()\n    return [thing][0]._n"
    ),
    "private class attribute": (
        "class A:\n    _n: int = 3\n    def _m(self): return 1\ndef f(x):\n    return A._n + A()._m()"
    ),
    "mangled": "class A:\n    def __init__(self):\n        self.__n = 1\ndef f(x):\n    return A()._A__n",
    "hash in its method": (
        "class A:\n    def __hash__(self):\n        return hash((1, 2))\ndef f(x):\n    return len({A()})"
    ),
    "no hash": "class A:\n    __hash__ = None\ndef f(x):\n    return x",
    "class of itself": "def f(x):\n    return x.__class__.__name__, type(x).__name__, '__class__'",
    "attrgetter": (
        "from operator import attrgetter, methodcaller as m\ndef f(x):\n"
        "    return attrgetter('real', 'imag')(x), m('conjugate')(x)"
    ),
    "public parts of modules": (
        "import json, collections\ndef f(x):\n"
        "    return isinstance(x, collections.abc.Iterable), json.decoder.JSONDecoder"
    ),
    "future": "from __future__ import annotations\ndef f(x: A) -> B:\n    return x",
    "statements at the top": (
        "T = [i for i in range(3)]\nfor i in T:\n    T = T + [i]\nif T:\n    g = lambda x: x\n"
        "T[0] += 1\n'a late string'\n"
        "assert T\nx: int\nprint(T)\ndef f(x):\n    return g(x)"
    ),
    "decorator in a class": (
        "from functools import update_wrapper\nclass D:\n    def __init__(self, g):\n        update_wrapper(self, g)\n"
        "        self.g = g\n    def __call__(self, x):\n        return self.g(x)\n@D\ndef g(x):\n    return x\n"
        "def f(x):\n    return g(x), g.__name__, vars(g)"
    ),
    "calls of f at the top": (
        "def f(x):\n    return x + 1\nT = [f(i) for i in range(3)]\nassert f(1) == 2\nprint(f(1))\n"
        "U: int = f(2)\nif __name__ == '__main__':\n    f(1)"
    ),
    "what a module exports": "__all__ = ['f']\ndef f(x):\n    return x, '__all__'",
    "main block": "def f(x):\n    return x\nif __name__ == '__main__':\n    print(f(3))",
    "any format": "def f(x, t):\n    return t.format(x), t.format_map({}), str.format",
    "double underscore in text": "def f(x):\n    return '__'.join(x), 'a__b', x.split('__'), '__main__', '__'",
}

REFUSED = {
    "syntax_error": [
        "def f(x: return",
        "def f(x):\nreturn x",
        "f = ",
        "\x00def f(x): pass",
        "def f(x): return '\ud800'",
    ],
    "no_function": [
        "",
        "x = 1",
        "def g(x):\n    return x",
        "class f:\n    pass",
        "def g():\n    def f(x):\n        return x",
    ],
    "no_parameters": ["def f():\n    return 1", "def f(*, x=1):\n    return x", "def f(**k):\n    return 1"],
    "banned_import": [
        "import os",
        "import sys",
        "import random",
        "import time",
        "from os import environ",
        "import socket",
        "import shutil",
        "import secrets",
        "import uuid",
        "import subprocess",
        "import ctypes",
        "import gc",
        "import inspect",
        "import os.path as math",
        "from datetime import datetime",
        "import numpy",
        "import json.decoder, os",
        "from math import *",
        "from collections import _sys",
        "from heapq import _heappop_max",
        "from statistics import random",
        "from . import math",
        "import collections._sys",
        "def g():\n    import threading",
    ],
    "banned_name": [
        "def g(x):\n    return eval(x)",
        "def g(x):\n    return exec(x)",
        "def g(x):\n    return hash(x)",
        "def g(x):\n    return id(x)",
        "def g(x):\n    return getattr(x, x)",
        "def g(x):\n    return open(x)",
        "def g(x):\n    return globals()",
        "def g(x):\n    p = eval",
        "def g(x, y=input):\n    return y",
        "def g(x: id):\n    return x",
        "import math as exec\ndef g(x):\n    return exec.sqrt(x)",
        "@compile\ndef g(x):\n    return x",
        "def g(n):\n    try:\n        return [0] * n\n    except MemoryError:\n        return -1",
        "def g(x):\n    return len(str(type(exit)))",
        "p\u0430y = 1",
        "def g(p\u0430y):\n    return 1",
        "def g(x):\n    return x.p\u0430y",
        "def g(x):\n    return g(\u0445x=1)",
        "import math as m\u0430th",
        "class A:\n    def __\u0430dd__(self, x):\n        global n\u03bf\n        return x",
        "def g(x):\n    match x:\n        case {**r\u0435st}:\n            return 1",
    ],
    "banned_attribute": [
        "import statistics\ndef g(x):\n    return statistics.random.random()",
        "import collections\ndef g(x):\n    return collections._sys.exit()",
        "import dataclasses\ndef g(x):\n    return dataclasses.inspect",
        "def g(x):\n    return (i for i in x).gi_frame.f_back",
        "def g(x):\n    x.f_globals = 1",
    ],
    "dunder": [
        "def g(x):\n    return __import__('os')",
        "def g(x):\n    return x.__class__.__mro__",
        "def g(x):\n    return __builtins__",
        "def g(x):\n    return super().__getattribute__('a')",
        "def g(x):\n    return '{0.__globals__}'.format(x)",
        "def g(x):\n    return f'{x}__globals__'",
        "class A:\n    def __getattribute__(self, n):\n        return 1",
        "__slots__ = ()",
        "class A:\n    def __del__(self):\n        pass",
        "def __init__(x):\n    return x",
        "def g(x):\n    __name__ = x",
        "def g(x):\n    return __name__",
        "if __name__ == '__main__':\n    K = 2\nelse:\n    K = 1",
        "def g(x):\n    return g.__doc__",
        "def g(x):\n    return '{0.__doc__}'.format(g)",
        "def g(x):\n    return g.__all__",
        "def __all__(x):\n    return x",
    ],
    "top_level_statement": [
        "f(1)",
        "abs(f(1))",
        "if __name__ != '__main__':\n    f(1)",
        "if __name__ == '__main__':\n    pass\nelse:\n    f(1)",
        "for i in (1, 2):\n    x = f(i)",
        "with a as b:\n    f(b)",
    ],
    "banned_syntax": [
        "async def g(x):\n    return x",
        "def g(x):\n    async def h():\n        pass",
    ],
    "reserved_text": ["# ```", "# </think>", "s = '<|im_end|>'", "# <answer>", "s = '<\uff5cUser\uff5c>'"]
    + [f"s = 'a{sign}b'" for sign in "\u200b\u202e\ufe0f\u034f\u3164\u2800\U000e0100\ufeff"]
    + ["# a\u200b"],
}
REFUSALS = [(reason, text) for reason, texts in REFUSED.items() for text in texts]
WHOLE = ("syntax_error", "no_function", "no_parameters")


@pytest.mark.parametrize("program", ACCEPTED.values(), ids=ACCEPTED)
def test_ordinary_programs_are_accepted(program):
    assert check_program(program) is None


@pytest.mark.parametrize("reason, text", REFUSALS)
def test_each_rule_refuses_with_its_reason(reason, text):
    program = text if reason in WHOLE else f"def f(x):\n    return x\n{text}"
    refusal = check_program(program)
    assert refusal is not None
    assert refusal.reason == reason
    assert reason in DECLARED


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has no type parameters before 3.12")
def test_type_parameters_use_no_banned_name():
    heads = ["class A[T: {}]", "def a[T: {}](x)"]
    heads += ["class A[T, U = {}]"] if sys.version_info >= (3, 13) else []  # which runs when A[int] is made
    for head in heads:
        own, foreign = (f"{head.format(name)}:\n    pass\ndef f(x):\n    return x" for name in ("int", "eval('1')"))
        assert check_program(own) is None
        assert check_program(foreign).reason == "banned_name"


def test_too_large_programs_are_refused():
    program = "def f(x):\n    return x  #" + "é" * 20
    assert check_program(program, max_bytes=len(program.encode())) is None
    assert check_program(program, max_bytes=len(program.encode()) - 1).reason == "too_large"


@given(st.text(max_size=200))
def test_any_text_gets_a_verdict(text):
    refusal = check_program(text)
    assert refusal is None or refusal.reason in DECLARED


@pytest.mark.parametrize(
    "text", ["(" * 4000, "-" * 4000 + "1", "[" * 2000 + "]" * 2000, "x" + ".a" * 2000, "1+" * 2000 + "1"]
)
def test_deep_text_is_judged_and_not_a_crash(text):
    refusal = check_program(f"def f(x):\n    return {text}")
    assert refusal is None or refusal.reason in ("syntax_error", "too_large")


def test_text_that_exhausts_the_parser_is_a_syntax_error():
    assert parse("(" * 4000).reason == "syntax_error"
    assert parse("x = " + "-" * 100_000 + "1").reason == "syntax_error"


def test_the_last_definition_of_f_is_the_one_that_is_called():
    assert check_program("def f(x):\n    return 1\ndef f():\n    return 1").reason == "no_parameters"


def test_every_allowed_module_can_be_imported_in_the_executor():
    assert set(MODULES) >= ALLOWED_MODULES


def test_banned_names_are_builtins_and_not_typos():
    import builtins

    assert {name for name in BANNED_NAMES if not hasattr(builtins, name)} == set()


@pytest.mark.parametrize(
    "program, expected",
    [
        ("def f(x): return x", True),
        ("f = lambda x: x", True),
        ("f: Callable = lambda x: x", True),
        ("f: Callable", False),
        ("f.x: int = 1", False),
        ("class f: pass", False),
        ("f()", False),
        ("def g():\n    def f(): pass", False),
    ],
)
def test_defines_f(program, expected):
    assert defines_f(parse(program)) is expected
