"""The recipes of one card: their table in docs/cost.md is what its script prints, and a tenth of the card is left."""

from pathlib import Path

from benchmarks import cost


def test_the_table_is_that_of_the_script_and_leaves_a_tenth_of_each_card():
    lines = cost.card_table()
    assert "\n".join(lines) in (Path(cost.__file__).parents[1] / "docs" / "cost.md").read_text(encoding="utf-8")
    left = [float(size) for size in lines[-1].split("|")[2:-1]]
    assert [size >= cost.SPARE * card for size, (_, card) in zip(left, cost.CARD_RECIPES.values(), strict=True)] == [
        True,
        True,
    ]
