import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.evolution import Candidate, EvolutionSettings, Replacement, select


DEFAULT = EvolutionSettings()


def role(*fitness: float, age: int = 100) -> list[Candidate]:
    return [Candidate(f"m{i}", value, age) for i, value in enumerate(fitness)]


def slots(candidates, **options) -> list[str]:
    return [replacement.slot for replacement in select(candidates, EvolutionSettings(**options), rng=random.Random(0))]


def test_worst_is_replaced_by_the_best():
    assert select(role(3, 1, 4, 2), DEFAULT, rng=random.Random(0)) == [Replacement("m1", ("m2",))]


@pytest.mark.parametrize(
    ("size", "fraction", "places"),
    [(2, 0.25, 1), (3, 0.5, 1), (4, 0.25, 1), (7, 0.25, 1), (8, 0.25, 2), (8, 0.5, 4), (10, 0.3, 3), (100, 0.29, 29)],
)
def test_number_of_places(size, fraction, places):
    assert slots(role(*range(size)), fraction=fraction) == [f"m{i}" for i in range(places)]


def test_a_role_of_one_has_nothing_to_select():
    assert slots(role(1.0)) == []
    assert slots([]) == []


def test_ties_keep_the_given_order():
    assert select(role(0, 0, 0, 0), DEFAULT, rng=random.Random(0)) == [Replacement("m3", ("m0",))]


def test_min_age_shields_the_young():
    candidates = role(1, 2, 3, 4)
    candidates[0] = Candidate("m0", 1, age=5)
    assert slots(candidates, min_age=6) == ["m1"]
    assert slots(candidates, min_age=5) == ["m0"]
    assert slots(candidates, min_age=101) == []
    assert slots(role(1, 2, 3, 4, 5, 6, 7, 8)[:7] + [Candidate("m7", 0, age=0)], min_age=1) == ["m0", "m1"]


def test_fewer_eligible_than_places():
    candidates = [Candidate("old", 5, 50), *(Candidate(f"young{i}", i, 1) for i in range(6)), Candidate("best", 9, 50)]
    assert slots(candidates, fraction=0.5, min_age=10) == ["old"]


def test_max_age_comes_first_but_never_takes_the_best():
    candidates = [Candidate("best", 9, 500), Candidate("aged", 8, 500), Candidate("a", 2, 10), Candidate("b", 1, 10)]
    assert slots(candidates, max_age=100) == ["aged"]
    assert slots(candidates, max_age=500) == ["b"]
    assert slots(candidates, max_age=100, fraction=0.5) == ["aged", "b"]


@given(
    fitness=st.lists(st.integers(0, 5), min_size=2, max_size=12),
    fraction=st.floats(0.01, 0.5),
    ages=st.lists(st.integers(0, 50), min_size=12, max_size=12),
    num_parents=st.integers(1, 3),
    max_age=st.none() | st.integers(10, 50),
    elites=st.integers(1, 3),
    selection=st.sampled_from(["truncation", "tournament"]),
    tournament_size=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_properties(fitness, fraction, ages, num_parents, max_age, elites, selection, tournament_size, seed):
    candidates = [Candidate(f"m{i}", value, age) for i, (value, age) in enumerate(zip(fitness, ages))]
    settings = EvolutionSettings(
        fraction=fraction,
        min_age=10,
        max_age=max_age,
        elites=elites,
        selection=selection,
        tournament_size=tournament_size,
        operators=("clone",),
    )
    result = select(candidates, settings, rng=random.Random(seed), num_parents=num_parents)
    assert result == select(candidates, settings, rng=random.Random(seed), num_parents=num_parents)
    value = {c.name: c.fitness for c in candidates}
    most = len(candidates) - len(result) + 1  # who stays, and the one that is replaced
    replaced = [replacement.slot for replacement in result]
    eligible = [c for c in candidates if c.age >= 10]
    best = [c.name for c in sorted(candidates, key=lambda c: -c.fitness)[:elites]]
    assert not set(best) & set(replaced) and len(set(replaced)) == len(replaced)
    assert len(result) <= max(1, int(fraction * len(candidates) + 1e-9))
    assert result or not [c for c in eligible if c.name not in best]
    for replacement in result:
        assert len(set(replacement.parents)) == len(replacement.parents) == min(num_parents, most)
        assert [value[p] for p in replacement.parents] == sorted((value[p] for p in replacement.parents), reverse=True)
        assert set(replacement.parents) & set(replaced) <= ({replacement.slot} if num_parents >= most else set())


def test_two_parents_reach_beyond_the_top_only_as_far_as_needed():
    drawn = Counter(
        select(role(3, 1, 4, 2), DEFAULT, rng=random.Random(seed), num_parents=2)[0].parents for seed in range(50)
    )
    assert set(drawn) == {("m2", "m0")}
    (only,) = select(role(1, 2), DEFAULT, rng=random.Random(0), num_parents=2)
    assert only == Replacement("m0", ("m1", "m0"))


def test_parents_are_drawn_evenly_from_the_top():
    drawn = Counter()
    for seed in range(400):
        for replacement in select(role(*range(8)), DEFAULT, rng=random.Random(seed)):
            drawn[replacement.parents] += 1
    assert set(drawn) == {("m6",), ("m7",)}
    assert abs(drawn[("m6",)] - 400) < 80


def test_tournament_prefers_the_fit_by_its_size():
    wins = {}
    for size in (1, 2, 7):
        settings = EvolutionSettings(selection="tournament", tournament_size=size)
        drawn = Counter(select(role(*range(8)), settings, rng=random.Random(seed))[0].parents for seed in range(400))
        wins[size] = [drawn[(f"m{i}",)] for i in range(8)]
    assert wins[1][0] == wins[1][1] == 0 and min(wins[1][2:]) > 30  # of six survivors, all alike
    assert wins[2][2] == 0 and wins[2][7] == pytest.approx(
        400 * 5 / 15, abs=40
    )  # best of six, met by five of 15 pairs
    assert wins[7][7] == 400


def test_elites_stay_even_where_places_are_left():
    assert slots(role(1, 2, 3, 4), fraction=0.5, elites=3) == ["m0"]
    assert slots(role(1, 2), elites=2) == []


def test_parents_per_slot():
    result = select(role(*range(8)), DEFAULT, rng=random.Random(0), num_parents={f"m{i}": 1 + i % 2 for i in range(8)})
    assert {r.slot: len(r.parents) for r in result} == {"m0": 1, "m1": 2}


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="'m1' is NaN"):
        slots(role(1, float("nan"), 2))
    for fraction in (0, 0.6, -1):
        with pytest.raises(ValueError, match="fraction"):
            slots(role(1, 2), fraction=fraction)
    for options in ({"elites": 0}, {"selection": "roulette"}, {"tournament_size": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            slots(role(1, 2), **options)


@pytest.mark.parametrize("selection", ["truncation", "tournament"])
def test_a_replaced_member_is_no_parent_where_the_others_are_enough(selection):
    settings = EvolutionSettings(selection=selection, tournament_size=1)
    for seed in range(20):
        (child,) = select(role(3, 1, 2), settings, rng=random.Random(seed), num_parents=2)
        assert child.slot == "m1" and child.parents == ("m0", "m2")
