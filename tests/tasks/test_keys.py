"""Renamed copies of a task have one key, and two different tasks never share one."""

import ast
import random

import honest_programs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import code_draw, code_seeds
from trl_populora.tasks.code.keys import task_key


def key(program, *inputs):
    return task_key("code_o", program, inputs or ("[1]",))


BASE = (
    "def g(n):\n    return n + 1\ndef f(xs):\n    total = 0\n    for x in xs:\n        total += g(x)\n    return total"
)
SAME = {
    "names": BASE.replace("total", "acc").replace("g(", "help_me(").replace("xs", "values"),
    "layout": BASE.replace("    ", "\t").replace(" = ", "="),
    "docstring": BASE.replace("def f(xs):\n", "def f(xs):\n    'Sum.'\n"),
    "annotations": BASE.replace("(xs)", "(xs: list[int]) -> int"),
}
OTHER = {
    "a number": BASE.replace("n + 1", "n + 2"),
    "an operator": BASE.replace("+=", "-="),
    "swapped names": BASE.replace("g(x)", "g(total)"),
    "a builtin": BASE.replace("g(x)", "abs(x)"),
    "another entry": BASE.replace("def f", "def h").replace("def g", "def f"),
    "space in text": BASE.replace("n + 1", "n + len('a')"),
    "more space in text": BASE.replace("n + 1", "n + len('a  ')"),
}


def test_keys_see_through_names_and_layout_only():
    assert {key(program) for program in SAME.values()} == {key(BASE)}
    others = [key(program) for program in OTHER.values()]
    others += [key(BASE, "[2]"), task_key("code_i", BASE, ["[1]"])]
    assert len({key(BASE), *others}) == 1 + len(others)
    assert task_key("code_f", BASE, ["1", "2"]) == task_key("code_f", BASE, ["2", "1"])


DATA = "from dataclasses import dataclass, asdict\nfrom typing import ClassVar\n@dataclass\nclass P:\n    "
DIFFERENT = {  # same input, another output
    "keywords": [
        "def f(small):\n    big = 2 * small\n    return dict(small=small, big=big)",
        "def f(low):\n    high = 2 * low\n    return dict(low=low, high=high)",
    ],
    "members of an enum": [
        "from enum import Enum\nclass S(Enum):\n    IDLE = 0\n    RUN = 1\ndef f(n):\n    return S(n).name",
        "from enum import Enum\nclass S(Enum):\n    RED = 0\n    GREEN = 1\ndef f(n):\n    return S(n).name",
    ],
    "name of a class": [
        "class A:\n    pass\ndef f(x):\n    return type(A()).__name__",
        "class B:\n    pass\ndef f(x):\n    return type(B()).__name__",
    ],
    "text of a class": [
        "class A:\n    pass\ndef f(x):\n    return str(A)",
        "class B:\n    pass\ndef f(x):\n    return str(B)",
    ],
    "text of a data class": [
        DATA + "a: int\ndef f(x):\n    return str(P(x))",
        DATA + "b: int\ndef f(x):\n    return str(P(x))",
    ],
    "name of a function": [
        "def g():\n    pass\ndef f(x):\n    return g.__name__",
        "def h():\n    pass\ndef f(x):\n    return h.__name__",
    ],
    "name of a function in a format": [
        "def g():\n    pass\ndef f(x):\n    return '{0.__name__}'.format(g)",
        "def h():\n    pass\ndef f(x):\n    return '{0.__name__}'.format(h)",
    ],
    "function as a value": [
        "def g():\n    pass\ndef f(x):\n    return repr(g)[:11]",
        "def h():\n    pass\ndef f(x):\n    return repr(h)[:11]",
    ],
    "class inside a function": [
        "def g():\n    class A: pass\n    return A\ndef f(x):\n    return str(g())",
        "def h():\n    class A: pass\n    return A\ndef f(x):\n    return str(h())",
    ],
    "generator": [
        "def g():\n    yield 1\ndef f(x):\n    return repr(g())[:20]",
        "def h():\n    yield 1\ndef f(x):\n    return repr(h())[:20]",
    ],
    "shadowed builtin": [
        "def g(max):\n    return max\ndef f(xs):\n    return max([g(xs), 0])",
        "def g(min):\n    return min\ndef f(xs):\n    return min([g(xs), 0])",
    ],
    "imported name": [
        "from math import floor as g\ndef f(floor):\n    return g(floor / 2)",
        "from math import ceil as g\ndef f(ceil):\n    return g(ceil / 2)",
    ],
    "module": [
        "from cmath import sqrt\ndef f(cmath):\n    return sqrt(cmath)",
        "from math import sqrt\ndef f(math):\n    return sqrt(math)",
    ],
    "members of a class": [
        "class C:\n    x = 1\n    y = 2\ndef f(n):\n    return C.x",
        "class C:\n    y = 1\n    x = 2\ndef f(n):\n    return C.x",
    ],
    "methods": [
        "class C:\n    def up(self, n):\n        return n + 1\n    def down(self, n):\n        return n - 1\n"
        "def f(n):\n    return C().up(n)",
        "class C:\n    def down(self, n):\n        return n + 1\n    def up(self, n):\n        return n - 1\n"
        "def f(n):\n    return C().up(n)",
    ],
    "order of fields": [
        DATA + "a: int\n    b: int\ndef f(x):\n    return P(x, 7).a",
        DATA + "b: int\n    a: int\ndef f(x):\n    return P(x, 7).a",
    ],
    "field in a dict": [
        DATA + "a: int\ndef f(x):\n    return asdict(P(x))",
        DATA + "b: int\ndef f(x):\n    return asdict(P(x))",
    ],
    "field or none": [
        DATA + "a: int = 1\ndef f(x):\n    return len(asdict(P()))",
        DATA + "a: ClassVar[int] = 1\ndef f(x):\n    return len(asdict(P()))",
    ],
    "parameters by name": [
        "def g(a, b):\n    return a - b\ndef f(x):\n    return g(**dict([('a', x), ('b', 5)]))",
        "def g(b, a):\n    return b - a\ndef f(x):\n    return g(**dict([('a', x), ('b', 5)]))",
    ],
    "parameter in an error": [
        "def g(a):\n    return a\ndef f(x):\n    try: return g()\n    except TypeError as e: return str(e)",
        "def g(b):\n    return b\ndef f(x):\n    try: return g()\n    except TypeError as e: return str(e)",
    ],
    "local names as text": [
        "def f(x):\n    a = 1\n    return dir()",
        "def f(x):\n    b = 1\n    return dir()",
    ],
    "name in a text": ["def f(x):\n    a = x\n    return f'{a=}'", "def f(x):\n    b = x\n    return f'{b=}'"],
    "annotation that acts": [  # since Python 3.14, when it is read
        "N = [1]\ndef g(y: N.pop()):\n    return y\ndef f(x):\n    g.__annotations__\n    return len(N)",
        "N = [1]\ndef g(y: N.copy()):\n    return y\ndef f(x):\n    g.__annotations__\n    return len(N)",
    ],
    "keyword of a pattern": [
        DATA + "a: int\n    b: int\ndef f(x):\n    match P(x, 7):\n        case P(a=a):\n            return a",
        DATA + "a: int\n    b: int\ndef f(x):\n    match P(x, 7):\n        case P(b=b):\n            return b",
    ],
}  # fmt: skip


@pytest.mark.parametrize("programs", DIFFERENT.values(), ids=DIFFERENT)
def test_different_tasks_have_different_keys(programs):
    outputs = []
    for program in programs:
        scope = {"__name__": "task"}
        exec(compile(program, "task", "exec", dont_inherit=True), scope)
        outputs.append(repr(scope["f"](1)))
    assert outputs[0] != outputs[1]
    assert key(programs[0], "1") != key(programs[1], "1")


PROGRAMS = [task.payload.program for task in code_seeds(100, seed=9)]
PROGRAMS += [program for program, _ in honest_programs.ACCEPTED.values()]


@given(st.sampled_from(PROGRAMS), st.data())
def test_another_name_in_one_place_is_another_task(program, data):
    tree = ast.parse(program)
    remarks = [getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns")]
    aside = {id(part) for remark in remarks if remark is not None for part in ast.walk(remark)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in aside]
    other = sorted({node.id for node in names})
    place, name = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(other))
    if place.id != name:
        place.id = name
        assert key(ast.unparse(tree)) != key(program)


class Rename(ast.NodeTransformer):
    """Puts an underscore behind each parameter."""

    def __init__(self, names):
        self.names = names

    def visit_arg(self, node):
        node.arg += "_" * (node.arg in self.names)
        return node

    def visit_Name(self, node):
        node.id += "_" * (node.id in self.names)
        return node


@pytest.mark.slow
def test_renamed_parameters_are_seen_through_in_most_programs():
    same = 0
    for program in PROGRAMS:
        tree = ast.parse(program)
        names = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        same += key(ast.unparse(Rename(names).visit(tree))) == key(program)
    assert same >= 0.8 * len(PROGRAMS)


@pytest.mark.slow
def test_seed_tasks_never_share_a_key():
    rng = random.Random(0)
    tasks = {task.id: task for task in (code_draw("code_o", rng) for _ in range(400))}.values()
    keys = {task_key(task.type, task.payload.program, task.payload.inputs) for task in tasks}
    assert len(keys) == len(tasks)


@pytest.mark.parametrize("program", ["def (", "x = " + "-" * 9000 + "1", "x = '\ud800'"])
def test_text_that_is_no_program_stands_for_itself(program):
    assert key(program) == key(program) != key(program + " ")
