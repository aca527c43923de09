"""The tables of docs/cost.md are what its script prints."""

from pathlib import Path

import pytest

from benchmarks import cost


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cost.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", [cost.memory_table, cost.token_table], ids=lambda table: table.__name__)
def test_the_table_is_that_of_the_script(table):
    assert "\n".join(table()) in PAGE
