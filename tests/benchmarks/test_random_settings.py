"""benchmarks/random_settings.py: one of its runs, and that it tells what differs."""

import pytest

from benchmarks.random_settings import play, unequal


@pytest.mark.slow
def test_one_run():
    settings, differences = play(5)
    assert len(settings) > 5 and differences == []


def test_differences_are_told_by_place():
    first = {"a": [1, {"b": 2.0}], "c": float("nan"), "d": (1, 2)}
    assert list(unequal(first, {"a": [1, {"b": 2.0}], "c": float("nan"), "d": [1, 2]})) == []
    second = {"a": [1, {"b": 2.5}], "c": float("nan"), "d": (1,), "e": 1}
    assert list(unequal(first, second)) == [".a[1].b: 2.0 and 2.5", ".d: (1, 2) and (1,)", ".e: None and 1"]
