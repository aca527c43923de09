import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.evolution import Candidate, EvolutionSettings, Replacement, migrate


DEFAULT = EvolutionSettings()


def island(name: str, *fitness: float, age: int = 100) -> list[Candidate]:
    return [Candidate(f"{name}{i}", value, age) for i, value in enumerate(fitness)]


def test_the_best_goes_to_the_next_island_in_place_of_the_worst():
    islands = {"a": island("a", 1, 9, 5), "b": island("b", 3, 2, 1), "c": island("c", 7, 8)}
    assert migrate(islands, DEFAULT) == [
        Replacement("b2", ("a1",)),
        Replacement("c0", ("b0",)),
        Replacement("a0", ("c1",)),
    ]


def test_a_single_island_and_no_island():
    assert migrate({"a": island("a", 1, 2)}, DEFAULT) == [] == migrate({}, DEFAULT)


def test_the_young_and_the_elite_keep_their_slots():
    islands = {"a": island("a", 4, 3, 2, 1), "b": [*island("b", 9, 8), Candidate("young", 0, age=3)]}
    assert Replacement("b1", ("a0",)) in migrate(islands, EvolutionSettings(min_age=10))
    assert [move.slot for move in migrate(islands, EvolutionSettings(elites=3))] == ["a3"]


@given(
    fitness=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=2, max_size=4),
    elites=st.integers(1, 2),
)
def test_properties(fitness, elites):
    islands = {f"island_{i}": island(f"{i}:", *values) for i, values in enumerate(fitness)}
    moves = migrate(islands, EvolutionSettings(elites=elites, operators=("clone",)))
    ranked = [[c.name for c in sorted(own, key=lambda c: -c.fitness)] for own in islands.values()]
    free = {i: own[-1] for i, own in enumerate(ranked) if len(own) > elites}
    assert {move.slot: move.parents for move in moves} == {slot: (ranked[i - 1][0],) for i, slot in free.items()}


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="'a0' is NaN"):
        migrate({"a": island("a", float("nan")), "b": island("b", 2)}, DEFAULT)
