"""Every process learns from as many rows, and from about as many tokens."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trl_populora.training.ranks import equal_shares


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(1, 8), st.integers(0, 9), st.data())
def test_every_item_is_dealt_once_and_as_many_to_each(parts, each, data):
    sizes = data.draw(st.lists(st.integers(0, 500), min_size=parts * each, max_size=parts * each))
    assert sorted(equal_shares(sizes, parts)) == list(range(len(sizes)))


def test_what_does_not_divide_and_one_process_stay_as_they_are():
    assert equal_shares([3, 9, 1], 1) == [0, 1, 2]
    assert equal_shares([3, 9, 1], 2) == [0, 1, 2]


def test_tokens_of_the_processes_are_alike():
    """Groups of 8 rows as in the recipe of four and four: teachers' prompts are long, and their rows stand first."""
    rng = random.Random(0)
    sizes = [8 * prompt + sum(min(2048, round(rng.lognormvariate(0, 0.9) * 330)) for _ in range(8))
             for prompt in [790] * 24 + [270] * 192]  # fmt: skip
    mean, share = sum(sizes) / 8, len(sizes) // 8

    def largest(order):
        return max(sum(sizes[i] for i in order[start : start + share]) for start in range(0, len(sizes), share)) / mean

    assert largest(range(len(sizes))) > 1.4
    assert largest(equal_shares(sizes, 8)) < 1.02
