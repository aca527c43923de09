"""Chains: their programs, the depth read off them, and that held-out statements stay held out."""

import ast
import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import code_draw, code_seeds
from tests.drawn_examples import examples
from trl_populora.executor import Job, literals
from trl_populora.tasks.code.families import DEFAULT_FAMILIES, FAMILIES
from trl_populora.tasks.code.families.chains import CHAINS, DEPTHS, DIGITS, KINDS, LETTERS, TABLE, chain, depth
from trl_populora.tasks.code.hygiene import check_program
from trl_populora.tasks.code.pairs import leaks_program


SEEDS = st.integers(0, 2**32)


def fillings(statements) -> set[str]:
    """Every text that a statement can become."""
    values = product("123456789", LETTERS, LETTERS)
    return {text.translate(str.maketrans(dict(zip("DAB", one)))) for one in values for text, _ in statements}


def lines(program: str) -> set[str]:
    return {line.strip() for line in program.splitlines()}


HELD_OUT = {kind.name: fillings(kind.held_out) for kind in KINDS}


@pytest.mark.slow
@pytest.mark.parametrize("family", CHAINS, ids=lambda family: family.__name__)
def test_families_obey_the_rules_and_their_depths(family):
    rng, (least, most) = random.Random(0), DEPTHS[family.__name__.split("_", 2)[2]]
    depths = set()
    for _ in range(200):
        program, _, message = family(rng)
        assert check_program(program) is None
        assert not leaks_program(message, program)
        depths.add(depth(program))
    assert {least, most} <= depths <= set(range(least, most + 1))


@pytest.mark.slow
@pytest.mark.parametrize("type", ["code_o", "code_i", "code_f"])
def test_outputs_are_those_of_the_executor(type, executor):
    tasks = [code_draw(type, random.Random(i), families=[family.__name__]) for family in CHAINS for i in range(4)]
    jobs = [Job(one.payload.program, tuple(map(literals.parse_arguments, one.payload.inputs))) for one in tasks]
    for task, execution in zip(tasks, executor.run_many(jobs), strict=True):
        assert tuple(value.literal for value in execution.values) == task.payload.outputs, task.payload.program


@given(SEEDS, st.sampled_from(KINDS), st.integers(1, 16), st.booleans(), st.booleans())
@examples(150)
def test_the_depth_that_is_asked_for_is_read_back(seed, kind, wanted, blocks, held_out):
    program, supply, _ = chain(random.Random(seed), kind, wanted, blocks=blocks, held_out=held_out)
    assert depth(program) == wanted
    (state,) = next(supply)
    assert type(state) is type(kind.draw(random.Random(0)))


@given(SEEDS, st.sampled_from([family for family in CHAINS if not family.__name__.endswith("held_out")]))
@examples(300)
def test_held_out_statements_are_in_no_other_family(seed, family):
    program, _, _ = family(random.Random(seed))
    kind = next(kind for kind in KINDS if family.__name__.startswith(kind.name))
    assert not lines(program) & HELD_OUT[kind.name]


@given(SEEDS, st.sampled_from(KINDS), st.integers(1, 12))
@examples(100)
def test_half_of_a_held_out_chain_is_held_out(seed, kind, wanted):
    program, _, _ = chain(random.Random(seed), kind, wanted, held_out=True)
    found = sum(line.strip() in HELD_OUT[kind.name] for line in program.splitlines())
    assert found in {max(1, wanted // 2), (wanted + 1) // 2}


def test_blocks_hold_a_branch_or_a_loop():
    nodes = [ast.parse(FAMILIES["chain_digits_blocks"](random.Random(i))[0]) for i in range(60)]
    kinds = {type(node) for tree in nodes for node in ast.walk(tree)}
    assert {ast.If, ast.For} <= kinds
    assert all(any(isinstance(node, (ast.If, ast.For)) for node in ast.walk(tree)) for tree in nodes)


def test_no_run_draws_from_chains_by_itself():
    names = {family.__name__ for family in CHAINS}
    assert not names & set(DEFAULT_FAMILIES)
    assert names <= set(FAMILIES)
    assert not {task.author.removeprefix("seed:") for task in code_seeds(256)} & names
    assert {task.author for task in code_seeds(8, families=["chain_text_long"])} == {"seed:chain_text_long"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.name)
@pytest.mark.parametrize("statements", ["statements", "held_out"])
def test_every_statement_changes_some_state(kind, statements):
    rng = random.Random(0)
    states = [kind.draw(rng) for _ in range(200)]
    for statement in getattr(kind, statements):
        texts = [run_filled(rng, statement, state) for state in states]
        assert any(before != after for before, after in zip(states, texts, strict=True)), statement


def run_filled(rng, statement, state):
    from trl_populora.tasks.code.families.chains import fill, run_statement

    return run_statement(fill(rng, statement)[0], state)


@pytest.mark.parametrize(
    "program, expected",
    [
        ("def f(x):\n    return x", 0),
        ("def f(x):\n    x = x[1:]\n    return x", 1),
        ("def f(x):\n    x.sort()\n    x += [1]\n    return x[0]", 2),
        ("def f(x):\n    for _ in range(3):\n        x = x[1:]\n        x = x + [1]\n    return x", 6),
        ("def f(x):\n    if x:\n        x = x[1:]\n    else:\n        x = [1]\n    return x", 2),
        ("def f(x):\n    for v in x:\n        x = x[1:]\n    return x", None),
        ("def f(x):\n    for _ in range(len(x)):\n        x = x[1:]\n    return x", None),
        ("def f(x):\n    for _ in range('2'):\n        x = x[1:]\n    return x", None),
        ("def f(x):\n    while x:\n        x = x[1:]\n    return x", None),
        ("def f(x):\n    x = x[1:]", None),
        ("x = 1", None),
        ("def f(", None),
        ("", None),
    ],
)
def test_depth_of_any_program(program, expected):
    assert depth(program) == expected


def test_states_on_the_way_are_never_used_up():
    rng = random.Random(3)
    for kind, _ in product((DIGITS, TABLE), range(50)):
        program, supply, _ = chain(rng, kind, 12)
        scope = {}
        exec(program, scope)  # a program of this package
        (state,) = next(supply)
        assert kind.sizes[0] <= len(scope["f"](state)) <= kind.sizes[1]
