"""Any plain value survives the way into a child and back, and no two different values come back alike."""

import ast
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_canonical import encode, same, values

from tests.drawn_examples import examples
from trl_populora.executor import Job, Status, canonical, literals


plain = values.filter(lambda value: encode(value) is not None)
batches = st.lists(plain, min_size=1, max_size=40)
IDENTITY = "def f(x):\n    return x"


def identity(executor, batch):
    execution = executor.run(IDENTITY, tuple((value,) for value in batch))
    assert execution.status is Status.OK
    return execution.values


@pytest.mark.slow
@given(batches)
@examples(50)
def test_values_come_back_as_they_went(executor, batch):
    for value, returned in zip(batch, identity(executor, batch), strict=True):
        assert returned.data == canonical.encode(value)
        assert same(returned.value, value)


@given(batches)
@examples(50)
def test_values_are_equal_exactly_if_their_bytes_are(executor, batch):
    for (a, first), (b, second) in combinations(zip(batch, identity(executor, batch), strict=True), 2):
        assert (first.data == second.data) == same(a, b)


@pytest.mark.slow
@given(st.lists(st.lists(plain, max_size=5).map(tuple), min_size=1, max_size=20))
@examples(40)
def test_arguments_arrive_as_they_were(executor, calls):
    execution = executor.run("def f(*arguments):\n    return arguments", tuple(calls))
    assert execution.status is Status.OK
    assert [value.data for value in execution.values] == [canonical.encode(arguments) for arguments in calls]


@pytest.mark.slow
@given(batches)
@examples(40)
def test_a_literal_means_the_same_in_a_program(executor, batch):
    texts = []
    for value in batch:
        try:
            texts.append(literals.to_literal(value))
        except literals.NotLiteral:
            continue
    program = "values = [\n" + "".join(f"{text},\n" for text in texts) + "]\ndef f(index):\n    return values[index]"
    execution = executor.run(program, tuple((index,) for index in range(len(texts))))
    assert execution.status is Status.OK
    for text, value in zip(texts, execution.values, strict=True):
        assert value.data == canonical.encode(literals.parse_literal(text, 1 << 20))
        assert canonical.encode(literals.parse_literal(value.literal, 1 << 20)) == value.data


@given(st.lists(plain, min_size=2, max_size=12))
@examples(25)
def test_a_deterministic_job_returns_the_same(executor, batch):
    (execution,) = executor.run_many([Job(IDENTITY, tuple((value,) for value in batch), deterministic=True)])
    assert execution.status is Status.OK
    assert [value.data for value in execution.values] == [canonical.encode(value) for value in batch]


@given(st.lists(plain, max_size=4) | st.dictionaries(st.text(max_size=3), plain, max_size=4) | st.sets(st.integers()))
@examples(40)
def test_a_call_cannot_change_the_arguments_of_the_next(executor, value):
    program = "def f(x, spoil):\n    if spoil:\n        x.clear()\n    return x"
    first, second = executor.run(program, ((value, True), (value, False))).values
    assert first.value == type(value)()
    assert second.data == canonical.encode(value)


@given(st.sets(st.integers(-1000, 1000), max_size=8))
@examples(40)
def test_a_set_is_the_set_that_its_text_builds(executor, value):
    """Whoever runs a program on the text of its input sees the order that the executor saw."""
    execution = executor.run("def f(s):\n    return list(s)", ((value,),))
    assert execution.values[0].value == list(ast.literal_eval(literals.to_literal(value)))
