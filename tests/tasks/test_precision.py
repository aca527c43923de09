"""Floats in outputs: how many digits they may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.tasks import Refusal, Task
from trl_populora.tasks.code import CodeO
from trl_populora.tasks.code.base import float_decimals, float_digits, numbers_in
from trl_populora.tasks.parsing import fence


@pytest.mark.parametrize(
    ("value", "digits"),
    [(0.0, 1), (1.0, 1), (-2.5, 2), (0.001234, 4), (1e22, 1), (0.1 + 0.2, 17), (123456.0, 6), (1e-300, 1), (100.5, 4)],
)
def test_significant_digits(value, digits):
    assert float_digits(value) == digits


@pytest.mark.parametrize(
    ("value", "digits"),
    [(0.0, 0), (3.0, 0), (-2.5, 1), (0.001234, 6), (21599.99, 2), (1e22, 0), (1.25e22, 2), (1e-7, 0)],
)
def test_digits_after_the_point_as_written(value, digits):
    assert float_decimals(value) == digits


@pytest.mark.parametrize(
    ("value", "valid"),
    [(21599.99, True), (1234567.125, True), (12345.6789, False), (0.123456, True), (0.1234567, False),
     (1 / 3e22, False), (1e15 / 3, True), (1e20 / 3, False), ([1.5, {"a": (0.1234567,)}], False)],
)  # fmt: skip
def test_many_digits_are_allowed_in_front_of_the_point(play, value, valid):
    """1e15 / 3 is written as 333333333333333.3, but 1e20 / 3 as 3.3333333333333332e+19."""
    refusal = play.types["code_o"].check_output(repr(value))
    assert (refusal is None) is valid


@given(st.integers(1, 10**6 - 1), st.integers(-20, 20))
def test_a_decimal_has_the_digits_it_is_written_with(mantissa, exponent):
    assert float_digits(float(f"{mantissa}e{exponent}")) == len(str(mantissa).rstrip("0"))


def test_floats_are_found_at_any_depth():
    value = {0.5: [(1, 2.5, {3.5}), frozenset([4.5])], "a": 1 + 6j, "b": True}
    assert sorted(numbers_in(value)) == [0.5, 1.0, 2.5, 3.5, 4.5, 6.0]


@pytest.mark.parametrize(("digits", "valid"), [(0, True), (3, False), (4, True)])
def test_the_limit_is_a_setting(play_with, digits, valid):
    play = play_with(max_float_digits=digits)
    task = play.propose("code_o", fence("python", "def f(x):\n    return [x / 8]") + fence("input", "13"))
    assert isinstance(task, Task) is valid  # 1.625
    assert valid or (isinstance(task, Refusal) and task.reason == "too_precise")


def test_a_limit_below_zero_is_refused():
    with pytest.raises(ValueError, match="max_float_digits must be at least 0, got -1"):
        CodeO(max_float_digits=-1)
