"""Abuse of what the rules allow: formats, state, names and private attributes of its own, getattr, the top level.

What the text shows is refused before it runs. The rest runs, and must not become a task, or tell the program nothing
by which its run as a proposal differs from its run for an answer.
"""

import pytest

from tests.code_tasks import code_task
from trl_populora.tasks import Refusal, Task
from trl_populora.tasks.code.hygiene import check_program
from trl_populora.tasks.parsing import fence


FIELD = "'{0.gi_' + 'frame'"
REFUSED = {
    # names that only seem to be the program's own
    "bound after use": "def f(x):\n    return eval(x)\neval = len",
    "bound on a condition": "if len('a') > 1:\n    eval = 3\ndef f(x):\n    return eval(x)",
    "bound and deleted": "eval = 3\ndel eval\ndef f(x):\n    return eval(x)",
    "deleted in a function": "eval = 3\ndef f(x):\n    global eval\n    del eval\n    return eval(x)",
    "deleted by an except": (
        "eval = 3\ntry:\n    1 / 0\nexcept Exception as eval:\n    pass\ndef f(x):\n"
        "    return eval(x)"
    ),
    "bound to itself": "eval = eval\ndef f(x):\n    return eval(x)",
    "bound to itself in a default": "def eval(x, g=eval):\n    return g(x)\ndef f(x):\n    return eval(x)",
    "lambda in a default": "def eval(g=(lambda: eval)()):\n    return g\ndef f(x):\n    return eval()(x)",
    "lambda in its own value": "eval = (\n    lambda: eval)()\ndef f(x):\n    return eval(x)",
    "decorator that calls too early": (
        "def now(g):\n    return g()\n@now\ndef eval():\n    return eval\ndef f(x):\n    return eval(x)"
    ),
    "bound in another function": "def g(eval):\n    return eval\ndef f(x):\n    return g(eval)(x)",
    "global over a parameter": "def g():\n    global eval\n    return eval\ndef f(x):\n    return g()(x)",
    "global in a class": "def f(eval):\n    class A:\n        global eval\n        y = eval\n    return A.y('1')",
    "bound by a class only": (
        "class A:\n    eval = 3\n    def g(self):\n        return eval('1')\ndef f(x):\n"
        "    return A().g()"
    ),
    "read in the body of a class": "class A:\n    eval = eval\ndef f(x):\n    return A.eval('1')",
    "bound in a comprehension": "def f(x):\n    return [eval for eval in x] and eval('1')",
    "bound by a lambda in a comprehension": "def f(x):\n    [lambda: (eval := 1) for i in x]\n    return eval('1')",
    "read in the target of a comprehension": "def f(x):\n    return [0 for x[eval('1')] in x]",
    "read in the target of an assignment": "a = {}\na[eval] = 3\ndef f(x):\n    return list(a)[0]('1')",
    "imported in another function": (
        "def g():\n    from math import sqrt as vars\ndef f(x):\n    return vars()['_' + '_builtins_' + '_']"
    ),
    "getattr imported in another function": (
        "def g():\n    from math import sqrt as getattr\ndef f(x):\n    return getattr(f, '_' + '_globals_' + '_')"
    ),
    "first iterable of a comprehension": "def f(x):\n    return [e('1') for e in [eval]]",
    "bound by a case at the top": "match 1:\n    case 2 as eval:\n        pass\ndef f(x):\n    return eval('1')",
    "a star import": "from math import *\ndef f(x):\n    return x",
    "in an annotation": "def f(x, y: eval('1') = 0):\n    return x",
    "hash outside of its method": (
        "class A:\n    def h(self):\n        return hash('a')\ndef f(x):\n"
        "    return A().h()"
    ),
    "hash by its method": "def f(x):\n    return 'a'.__hash__()",
    # private attributes
    "private of a module": (
        "import dataclasses\nclass A:\n    def __init__(self):\n        self._create_fn = 1\n"
        "def f(x):\n    return dataclasses._create_fn('g', [], ['return 5'])()"
    ),
    "private of a module, set first": "import collections\ncollections._sys = 1\ndef f(x):\n    return 1",
    "private of a module, imported": "from dataclasses import _create_fn\ndef f(x):\n    return 1",
    "a module as self": (
        "import json\nclass A:\n    def g(self):\n        return self._x\ndef f(x):\n"
        "    return A.g(json)"
    ),
    "a part of a module as a value": "import json\ndef f(x):\n    m = json.decoder\n    return m",
    "an imported part as a value": "from json import decoder\ndef f(x):\n    m = decoder\n    return m",
    "an import over a parameter": "def f(dataclasses):\n    import dataclasses\n    m = dataclasses\n    return m",
    "an import in a function": "def f(x):\n    import json as j\n    return [j]",
    "a module through a module": "import statistics\ndef f(x):\n    return statistics.random.random()",
    "through two modules": "import json\ndef f(x):\n    return json.decoder.re.enum.sys.version",
    "from a module": "from contextlib import os\ndef f(x):\n    return 1",
    "from a module, renamed": "from statistics import random as math\ndef f(x):\n    return math.random()",
    "not set by the program": "def f(x):\n    return x._private",
    "contextlib": "import contextlib\ndef f(x):\n    return contextlib.sys.version",
    # attributes by computed names
    "getattr by parts": "def f(x):\n    return getattr(x, '_' + '_class_' + '_')",
    "getattr by a prefix of a frame": "def f(x):\n    return getattr((i for i in x), 'gi_' + 'frame')",
    "getattr by a short prefix": "def f(x):\n    return getattr((i for i in x), 'g' + 'i_frame')",
    "getattr by an f-string": "def f(x):\n    return getattr(x, f'{x}')",
    "getattr by an empty prefix": "def f(x):\n    return getattr(f, f'' + '_' + '_globals_' + '_')",
    "getattr as a value": "def f(x):\n    return list(map(getattr, [f], ['_' + '_globals_' + '_']))",
    "getattr with a star": "def f(x):\n    return getattr(*[f, '_' + '_globals_' + '_'])",
    "getattr by its keyword": "def f(x):\n    return getattr(x, **{'name': 'a'})",
    "getattr of a frame": "def f(x):\n    return getattr((i for i in x), 'gi_frame')",
    "attrgetter by parts": "from operator import attrgetter as a\ndef f(x):\n    return a('_' + '_globals_' + '_')(f)",
    "attrgetter with dots": "import operator\ndef f(x):\n    return operator.attrgetter('a.gi_frame.f_back')(x)",
    "attrgetter with a star": "import operator\ndef f(x):\n    return operator.attrgetter(*[x])(f)",
    "attrgetter as a value": "import operator\ng = operator.attrgetter\ndef f(x):\n    return g(x)",
    "methodcaller by parts": (
        "import operator\ndef f(x):\n"
        "    return operator.methodcaller('_' + '_subclasses_' + '_')(int)"
    ),
    "attrgetter by a detour": "import typing\ndef f(x):\n    return typing.operator.attrgetter(x)(f)",
    "setattr by parts": "class A:\n    pass\ndef f(x):\n    setattr(A, '_' + '_annotations_' + '_', {})\n    return 1",
    "wraps with more": (
        "import functools\ndef g(x):\n    return x\ndef f(x):\n"
        "    return vars(functools.wraps(f, ['_' + '_globals_' + '_'])(g))"
    ),
    "wraps by a detour": "import contextlib\nw = contextlib.wraps\ndef f(x):\n    return w(f, [x])",
    "update_wrapper with more": (
        "import functools\nclass A:\n    pass\ndef f(x):\n"
        "    return vars(functools.update_wrapper(A(), f, assigned=['_' + '_globals_' + '_']))"
    ),
    "update_wrapper as a value": "from functools import update_wrapper as u\ndef f(x):\n    return [u]",
    "a field that matches a frame": (
        "from abc import ABC\nclass A(ABC):\n    __match_args__ = ('gi_frame',)\ndef f(x):\n    g = (i for i in x)\n"
        "    A.register(type(g))\n    match g:\n        case A(frame):\n            return frame"
    ),
    "vars of nothing": "def f(x):\n    return vars()['_' + '_builtins_' + '_']",
    "vars as a value": "v = vars\ndef f(x):\n    return v()",
    "dict of a module": "import math\ndef f(x):\n    return math.__dict__",
    "dict of a function's globals": "def f(x):\n    return f.__globals__",
    "dispatch that evaluates": "from functools import singledispatch\n@singledispatch\ndef f(x):\n    return x",
    "hints that are evaluated": (
        "from __future__ import annotations\nimport typing as t\ndef f(x: 'id(1)'):\n    return t.get_type_hints(f)"
    ),
    "formatter": (
        "import string\nclass A(string.Formatter):\n    pass\ndef f(x):\n"
        "    return A().get_field(x, (f,), {})[0]"
    ),
    "a pattern": "def f(x):\n    match (i for i in x):\n        case object(gi_frame=g):\n            return g",
    "a dunder in the format": "def f(x):\n    return '{0.__globals__}'.format(f)",
    # the top level
    "calls f": "def f(x):\n    return x\nf(3)",
    "calls f in a loop": "def f(x):\n    return x\nfor i in range(3):\n    T = f(i)",
}  # fmt: skip


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_abuse_that_the_text_shows_is_refused(program):
    assert isinstance(check_program(program), Refusal)


# Each gets past the rules. Four processes, and other orders and groups of inputs, must tell.
DIFFERS = {
    "a format shows an address": "def f(x):\n    return x, ('{0._' + '_init_' + '_}').format(f)",
    "a format shows its server": (
        "def f(x):\n    def g():\n"
        "        yield (" + FIELD + " + '.f_back' * 5 + '.f_locals[memory_share]}').format(h)\n"
        "    h = g()\n    return x, next(h)"
    ),
    "a format shows the other inputs": (
        "def f(x):\n    def g():\n        yield (" + FIELD + " + '.f_back' * 3 + '.f_locals[inputs]}').format(h)\n"
        "    h = g()\n    return x, next(h)"
    ),
    "a hash of text, kept": (
        "class A:\n    def __hash__(self):\n        self.h = hash('a')\n        return 0\n"
        "def f(x):\n    a = A()\n    {a}\n    return x, a.h"
    ),
    "order of objects with hashes of text": (
        "class A:\n    def __init__(self, s):\n        self.s = s\n    def __hash__(self):\n"
        "        return hash(self.s)\n"
        "def f(x):\n    return x, [a.s for a in {A(c) for c in 'abcdefghijkl'}]"
    ),
    "counts its calls": "n = 0\ndef f(x):\n    global n\n    n += 1\n    return x, n",
    "sums its inputs": "n = 0\ndef f(x):\n    global n\n    n += x\n    return n",
    "remembers the first": "first = None\ndef f(x):\n    global first\n    first = first or x\n    return first",
    "counts on the class": "class A:\n    _n = 0\ndef f(x):\n    A._n += 1\n    return x, A._n",
    "counts on the function": "def f(x):\n    f.n += 1\n    return x, f.n\nf.n = 0",
    "counts on a module": "import math\nmath.n = 0\ndef f(x):\n    math.n += 1\n    return x, math.n",
    "a generator at the top": "ticks = iter(range(10**6))\ndef f(x):\n    return x, next(ticks)",
    "a default that grows": "def f(x, seen=[]):\n    seen.append(x)\n    return x, len(seen)",
    "a table in another order": "T = list({'alpha', 'beta', 'gamma', 'delta', 'eps'})\ndef f(x):\n    return x, T",
    "replaced while it runs": "def f(x):\n    global f\n    f = len\n    return x\ndef g(x):\n    return f(x)",
    "a memo that is asked for": "memo = {}\ndef f(x):\n    memo[x] = 1\n    return x, len(memo)",
}  # fmt: skip


def test_abuse_that_only_running_shows_makes_no_code_f_task(play):
    ten = "\n".join(fence("input", str(n)) for n in (3, 1, 4, 15, 9, 2, 6, 5, 35, 8)) + fence("message", "guess")
    references = {
        name: code_task("code_o", program, inputs=("3",), outputs=("3",)) for name, program in DIFFERS.items()
    }
    assert [name for name, program in DIFFERS.items() if check_program(program)] == []
    outcomes = dict(zip(DIFFERS, play.propose_all("code_f", [(ten, [task]) for task in references.values()])))
    # The executor calls what `f` was at the end of the program each time: to replace the name changes nothing.
    assert isinstance(outcomes.pop("replaced while it runs"), Task)
    seen = {name: getattr(outcome, "reason", "a task") for name, outcome in outcomes.items()}
    assert {name: reason for name, reason in seen.items() if reason != "nondeterministic"} == {}


def test_a_program_learns_nothing_of_the_job_before_it(play):
    """By this it could tell the run for an answer, which follows a run of the same program, from its proposal."""
    program = (
        "def f(x):\n    def g():\n        yield (" + FIELD + " + '.f_back' * 5 + '.f_locals[{1}]}').format(h, 0)\n"
        "    h = g()\n    return next(h)"
    )
    outcomes = [
        play.propose("code_o", fence("python", program.replace("{1}", name)) + fence("input", "1"))
        for name in ("usage", "status") * 3
    ]
    assert [outcome.payload.output for outcome in outcomes] == ["'None'"] * 6


FLOODS = {
    "prints for ever": ("def f(x):\n    while True:\n        print('flood')", "cpu_timeout"),
    "prints frames": ("def f(x):\n    print('R\\x02\\x00\\x00\\x00vT', end='', flush=True)", "no_value"),
    "prints much": ("def f(x):\n    print('a' * 10**6)\n    return 1", None),
    "prints at the top": ("print('a' * 10**6)\ndef f(x):\n    return 1", None),
    "prints the output": ("def f(x):\n    print(1)", "no_value"),
    "prints to itself": (
        "class A:\n    def write(self, t):\n        raise ValueError\ndef f(x):\n"
        "    print(1, file=A())", "exception",
    ),
    "prints a text too large": ("def f(x):\n    print('a' * 10**12)\n    return 1", "memory"),
    "returns print": ("def f(x):\n    return print", "unplain"),
    "never ends at the top": ("while True:\n    pass\ndef f(x):\n    return 1", "cpu_timeout"),
    "f is replaced at the top": ("def f(x):\n    return 1\nf = 3", "exception"),
    "fails at the top": ("def f(x):\n    return 1\nassert not f", "exception"),
    "exits at the top": ("def f(x):\n    return 1\nraise SystemExit", "base_exception"),
}  # fmt: skip


def test_prints_and_the_top_level_have_no_effect_but_that_of_the_program(play):
    outcomes = play.propose_all("code_o", [(fence("python", p) + fence("input", "3"), ()) for p, _ in FLOODS.values()])
    seen = {name: getattr(outcome, "reason", None) for name, outcome in zip(FLOODS, outcomes)}
    assert seen == {name: reason for name, (_, reason) in FLOODS.items()}
