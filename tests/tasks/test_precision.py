"""Floats in outputs: how many digits they may have."""

import json
from decimal import Decimal

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
    assert sorted(numbers_in({"1.50": [b"2.5", ("3.5e9",)]})) == ["1.50", "2.5", "3.5"]


AS_TEXT = {
    "str": str,
    "a sentence": "The mean is {}.".format,
    "a unit": "x{}kg".format,
    "twenty digits": "{:.20f}".format,
    "an exponent": "{:.9E}".format,
    "JSON": lambda value: json.dumps({"a": [value]}),
    "Decimal": lambda value: str(Decimal(str(value)) / 1),
    "hex": float.hex,
    "bytes": lambda value: f"<{value}>".encode(),
    "a key in a tuple": lambda value: ({f"{value}": 1}, 2),
    "with a part": "{}.0".format,
    "complex": lambda value: f"{value * 1j}",
}


@pytest.mark.parametrize("way", AS_TEXT)
@given(st.integers(1, 10**6), st.sampled_from([7, 11, 13]))
def test_a_text_hides_no_digits(way, numerator, denominator):
    value = (denominator * numerator + 1) / denominator
    refusal = CodeO().check_output(repr(AS_TEXT[way](value)))
    assert refusal is not None and refusal.reason == "too_precise"


@pytest.mark.parametrize("way", sorted(AS_TEXT.keys() - {"twenty digits", "hex"}))  # these show more than it has
@given(st.integers(0, 999), st.integers(0, 3))
def test_short_decimals_stay_valid_as_text(way, number, decimals):
    assert CodeO().check_output(repr(AS_TEXT[way](number / 10**decimals))) is None


@pytest.mark.parametrize(
    "text",
    ["1.2.3", "10.0.19045", "192.168.100.200", "2024.01.15", "1234567.125", "$21599.99", "0.123456",
     "12345678901234567", "2024-05-31T10:20:30", "3, 14159265", "0x1.8000000000000p+10", "0x1p99999", "...",
     "a.b1.c", "1e-300", "f.0", "5.", "1.5000000000"],
)  # fmt: skip
def test_honest_texts_stay_valid(text):
    assert CodeO().check_output(repr([text])) is None


@pytest.mark.parametrize(("digits", "valid"), [(0, True), (3, False), (4, True)])
def test_the_limit_is_a_setting(play_with, digits, valid):
    play = play_with(max_float_digits=digits)
    task = play.propose("code_o", fence("python", "def f(x):\n    return [x / 8]") + fence("input", "13"))
    assert isinstance(task, Task) is valid  # 1.625
    assert valid or (isinstance(task, Refusal) and task.reason == "too_precise")


def test_a_limit_below_zero_is_refused():
    with pytest.raises(ValueError, match="max_float_digits must be at least 0, got -1"):
        CodeO(max_float_digits=-1)
