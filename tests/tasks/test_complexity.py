import ast
import textwrap
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import code_task, code_types
from tests.drawn_examples import examples
from trl_populora.tasks.code.complexity import program_complexity


IDENTITY = "def f(x):\n    return x"
LARGE = "def f(x):\n" + "    if x:\n        x = [y for y in range(len(str(x)))]\n" * 12 + "    return x"
BRANCHES = (
    "def f(x):\n    # a comment\n    if x > 0:\n        for y in range(x):\n            x += y\n\n    return x\n"
)
STATEMENTS = """
def f(x):
    while x:
        x -= 1
    else:
        x = 1
    try:
        assert x
    except KeyError:
        pass
    except ValueError:
        pass
    else:
        x = [a or b and c for a in x if a if b]
    match x:
        case [1, 2] | 3:
            return 1
        case [y] if y:
            return 2
        case _:
            return 3
"""


def test_identity_has_the_least_of_everything():
    low = program_complexity(IDENTITY)
    assert (low.ast_depth, low.ast_nodes, low.lines, low.cyclomatic, low.cognitive) == (4, 6, 2, 1, 0)
    assert low.halstead_volume == low.halstead_effort == 0


def test_counts_of_a_branching_program():
    high = program_complexity(BRANCHES)
    assert high.lines == 5  # neither the comment nor the empty line
    assert high.cyclomatic == 3  # if, for
    assert high.cognitive == 3  # 1 for the if, 2 for the for inside it
    assert (high.ast_nodes, high.ast_depth) == (20, 6)
    assert high.halstead_effort > high.halstead_volume > 0


def test_what_the_parser_warns_of_is_not_shown():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert program_complexity("def f(x):\n    return '\\d' + x") is not None
    assert not heard


def test_nodes_agree_with_the_standard_walk():
    tree = ast.parse(BRANCHES)
    walked = sum(not isinstance(node, ast.expr_context) for node in ast.walk(tree))
    assert program_complexity(BRANCHES).ast_nodes == walked


@pytest.mark.parametrize(
    "program",
    ["def f(:", "\0", "(" * 500 + "x" + ")" * 500, "-" * 100_000 + "x", "x" + ".a" * 1_000_000],
    ids="syntax value parentheses memory recursion".split(),
)
def test_what_does_not_parse_is_refused_in_one_way(program):
    assert program_complexity(program) is None


def test_deep_but_parsable_programs_are_measured():
    deep = program_complexity("def f(x):\n    return " + "-" * 900 + "x")
    assert deep.ast_depth > 900


def features(program: str, output: str):
    return code_types()["code_o"].features(code_task("code_o", program, inputs=["1"], outputs=[output]))


def test_places_grow_with_the_program_and_stay_in_the_cube():
    low, high = features(IDENTITY, "1"), features(LARGE, "[" + "1, " * 900 + "]")
    assert low.point == (0, 0, 0, 0) and low.space == high.space
    assert all(0 < value <= 1 for value in high.point)
    assert low.measures.keys() == high.measures.keys() and high.measures["ast_depth"] > low.measures["ast_depth"]
    assert features("def f(:", "1") is None


def test_a_program_of_another_author_is_not_measured():
    task = code_types()["code_f"].simplest()
    assert code_types()["code_f"].features(task) is None


@examples(30)
@given(st.integers(0, 30))
def test_every_branch_adds_one_decision(branches):
    program = "def f(x):\n" + "    if x:\n        x -= 1\n" * branches + "    return x"
    assert program_complexity(program).cyclomatic == 1 + branches


FOUR = """    n = 0
    for y in x:
        if y > 1 and y < 5:
            n += 1 if y else 2
    return n
"""


@pytest.mark.parametrize(
    "program",
    [
        "def f(x):\n" + FOUR,
        "def g(x):\n" + FOUR + "\ndef f(x):\n    return g(x)\n",
        "def f(x):\n    def g(x):\n" + textwrap.indent(FOUR, "    ") + "    return g(x)\n",
        "class A:\n    def a(self): pass\n    def g(self, x):\n"
        + textwrap.indent(FOUR, "    ")
        + "def f(x): return A().g(x)\n",
    ],
    ids="flat helper nested method".split(),
)
def test_decisions_count_wherever_they_are(program):
    assert program_complexity(program).cyclomatic == 5


def test_decisions_are_those_of_radon_where_nothing_is_nested():
    from radon.visitors import ComplexityVisitor

    tasks = code_types()["code_o"].seeds(300, seed=3)
    programs = [task.payload.program for task in tasks] + [BRANCHES, LARGE, STATEMENTS]
    flat = [one for one in programs if all(len(scopes(part)) == 1 for part in ast.parse(one).body if scopes(part))]
    assert len(flat) > 200
    for program in flat:
        assert program_complexity(program).cyclomatic == ComplexityVisitor.from_code(program).total_complexity, program


def scopes(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
