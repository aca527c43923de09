import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.evolution import Candidate, EvolutionSettings, Migration, migrate


DEFAULT = EvolutionSettings()


def island(*fitness: float, age: int = 100) -> list[Candidate]:
    return [Candidate(f"m{i}", value, age) for i, value in enumerate(fitness)]


def test_the_best_goes_to_the_next_island_in_place_of_the_worst():
    islands = {"a": island(1, 9, 5), "b": island(3, 2, 1), "c": island(7, 8)}
    assert migrate(islands, DEFAULT) == [
        Migration("a", "m1", "b", "m2"),
        Migration("b", "m0", "c", "m0"),
        Migration("c", "m1", "a", "m0"),
    ]


def test_a_single_island_and_no_island():
    assert migrate({"a": island(1, 2)}, DEFAULT) == [] == migrate({}, DEFAULT)


def test_the_young_and_the_elite_keep_their_slots():
    islands = {"a": island(4, 3, 2, 1), "b": [*island(9, 8), Candidate("young", 0, age=3)]}
    moves = migrate(islands, EvolutionSettings(min_age=10))
    assert [(m.member, m.slot) for m in moves if m.target == "b"] == [("m0", "m1")]
    assert [m for m in migrate(islands, EvolutionSettings(elites=3)) if m.target == "b"] == []


@given(
    fitness=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=2, max_size=4),
    elites=st.integers(1, 2),
)
def test_properties(fitness, elites):
    islands = {f"island_{i}": island(*values) for i, values in enumerate(fitness)}
    moves = migrate(islands, EvolutionSettings(elites=elites, operators=("clone",)))
    assert len({(m.target, m.slot) for m in moves}) == len(moves)
    for name, members in islands.items():
        ranked = [c.name for c in sorted(members, key=lambda c: -c.fitness)]
        arrivals = [m.slot for m in moves if m.target == name]
        assert len(arrivals) <= 1 and not set(arrivals) & set(ranked[:elites])
        assert all(m.member == ranked[0] for m in moves if m.source == name)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="'m0' is NaN"):
        migrate({"a": island(float("nan")), "b": island(2)}, DEFAULT)
