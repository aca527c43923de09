"""The tables of docs/cost.md are what its script prints."""

from pathlib import Path

import pytest

from benchmarks import cost


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cost.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_table_of_memory_is_that_of_the_script():
    assert "\n".join(cost.memory_table()) in PAGE


@pytest.mark.slow
def test_the_table_of_tokens_is_that_of_the_script():
    assert "\n".join(cost.token_table()) in PAGE
