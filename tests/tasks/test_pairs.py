"""`tasks/code/pairs.py`: what a message may not say, and which pairs are hidden."""

import ast
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.tasks import Task
from trl_populora.tasks.code.pairs import _source, hidden, leaks_program, one_output, visible
from trl_populora.tasks.code.payload import CodePayload


STATEMENTS = [
    "x = 1",
    "y = 'é\t☃'; z = x",
    "if x:\n        y = 2",
    "pass",
    "return x",
    '"""a\r\nb"""',
    "x; x",
    "for a in x:  # b\n      a",
]


@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]))
def test_sources_are_those_of_ast(statements, end):
    program = "def f(x):\n" + "\n".join(f"    {one}" for one in statements)
    program = program.replace("\r\n", "\n").replace("\n", end)
    lines = [line.encode() for line in program.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    (function,) = ast.parse(program).body
    for statement in function.body:
        wanted = ast.get_source_segment(program, statement)
        assert _source(lines, statement).split() == wanted.split()


BODY = "y = sorted(x)[::-1] * 2 + [10]; return [len(y), *y]"


@pytest.mark.parametrize("message", ["y=sorted(x)[::-1]*2 + [10]\nreturn [len(y), *y]", "it is: def f(x): ..."])
def test_messages_that_quote_the_program(message):
    assert leaks_program(message, f"def f(x):\n    {BODY}")
    assert not leaks_program("sorted backwards, twice", f"def f(x):\n    {BODY}")


def test_a_long_line_of_statements_takes_linear_work(monkeypatch):
    """`ast.get_source_segment` divides the whole program for each statement."""
    monkeypatch.setattr(ast, "get_source_segment", lambda *_: pytest.fail("divides the program again"))
    assert not leaks_program("adds", "def f(x):\n " + "x;" * 2030 + "return x")


def with_ones(places, number=10):
    """A task whose outputs are 0, but 1 at some places."""
    inputs, outputs = map(str, range(number)), (str(int(place in places)) for place in range(number))
    return Task.create("code_f", CodePayload("def f(x):\n    return x", tuple(inputs), tuple(outputs), "Tells."))


def first_split(task):
    def rank(given):
        return hashlib.sha256(f"{task.id}:{given}".encode()).digest()

    return {*sorted(task.payload.inputs, key=rank)[: len(task.payload.inputs) // 2]}


def test_a_constant_is_right_for_no_hidden_pairs():
    drawn_again = 0
    for one in range(10):
        assert one_output(with_ones({one}))  # on one side only
        for other in range(one):
            task = with_ones({one, other})
            shown, before = {given for given, _ in visible(task)}, first_split(task)
            sides = sum(str(place) in before for place in (one, other))
            assert one_output(task) == (sides == 0)  # all visible outputs are 0
            assert one_output(task) or len({output for _, output in hidden(task)}) == 2
            assert (shown == before) == (sides < 2)
            drawn_again += shown != before
    assert drawn_again > 3
    assert not one_output(with_ones({1}, 2)) and one_output(with_ones({}, 2))  # a single pair is no choice
