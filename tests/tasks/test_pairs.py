"""`tasks/code/pairs.py`: what a message may not say."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.tasks.code.pairs import _source, leaks_program


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
