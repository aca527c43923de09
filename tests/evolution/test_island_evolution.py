"""Evolution inside islands, migration between them, and mutation of the temperature."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_replacement import generator, played
from toy_adapters import assert_same_bits

from trl_populora.evolution import EvolutionSettings, Lineage, ask, divide, evolve, remake, tell


def island_of(name: str, size: int, islands: int) -> int:
    return int(name.split("_")[1]) * islands // size


@given(size=st.integers(0, 24), islands=st.integers(1, 8))
def test_division_is_even_or_refused(size, islands):
    names = [f"student_{i}" for i in range(size)]
    if size < 2 or islands == 1 or (size % islands == 0 and size // islands >= 2):
        parts = divide(names, islands)
        assert [name for part in parts.values() for name in part] == names
        assert len({len(part) for part in parts.values()}) == 1
        assert len(parts) == (1 if size < 2 else islands)
    else:
        with pytest.raises(ValueError, match=f"islands={islands} does not divide {size} members"):
            divide(names, islands)


@pytest.mark.parametrize("islands", [1, 2, 4])
def test_mating_and_replacement_stay_inside_an_island(islands):
    table, ratings = played(8, 8)
    settings = EvolutionSettings(islands=islands)
    for number in range(1, 4):
        events = evolve(table, ratings, settings=settings, step=20 * number, rng=generator(number), number=number)
        assert {event.kind for event in events} == {"replacement"}
        for event in events:
            homes = {island_of(name, 8, islands) for name, _ in event.parents}
            assert homes == {island_of(event.slot, 8, islands)}
        places = {(event.role, island_of(event.slot, 8, islands)) for event in events}
        assert len(places) == 2 * islands  # every island of both roles has a replacement


def test_one_island_draws_what_it_always_drew():
    table, ratings = played(4, 4)
    plain = ask(table, ratings, generator(), step=20)
    one = ask(table, ratings, generator(), settings=EvolutionSettings(islands=1), step=20, number=4)
    assert [(c.slot, c.operator, c.parameters) for c in plain] == [(c.slot, c.operator, c.parameters) for c in one]


def test_every_so_many_steps_the_best_migrate_and_nobody_breeds():
    table, ratings = played(1, 8)
    settings = EvolutionSettings(islands=2, migration_interval=3, mutate_learning_rate=True, mutate_temperature=True)
    for number in (1, 2):
        evolve(table, ratings, settings=settings, step=number, rng=generator(number), number=number)
    before, members, fitness = table.snapshot(), dict(table.members), {n: ratings.fitness(n) for n in table.names()}
    events = evolve(table, ratings, settings=settings, step=3, rng=generator(3), number=3)
    homes = [[f"student_{i}" for i in part] for part in (range(4), range(4, 8))]
    assert [(e.operator, e.kind) for e in events] == [("clone", "migration")] * 2
    for event, source, target in zip(events, homes, reversed(homes)):
        best, worst = max(source, key=fitness.get), min(target, key=fitness.get)
        assert (event.slot, event.parents) == (worst, ((best, members[best].version),))
        assert_same_bits(table.weights[worst], before[best])
        assert table[worst].learning_rate == members[best].learning_rate == event.learning_rate
        assert table[worst].temperature == members[best].temperature == event.temperature
        assert_same_bits(remake(event, [before[best]]), table.weights[worst])


def test_migrants_bring_nothing_that_does_not_mutate():
    table, ratings = played(4, 4)
    settings = EvolutionSettings(islands=2, migration_interval=2)
    events = evolve(table, ratings, settings=settings, step=20, rng=generator(), number=2)
    assert len(events) == 4 and {(event.learning_rate, event.temperature) for event in events} == {(None, None)}


def test_temperatures_mutate_within_bounds_and_are_inherited():
    table, ratings = played(2, 2)
    settings = EvolutionSettings(mutate_temperature=True, operators=("clone",))
    seen = set()
    for step in range(1, 60):
        before = {name: table[name].temperature for name in table.names()}
        for event in tell(table, ratings, ask(table, ratings, generator(step), settings=settings, step=step)):
            ((parent, _),) = event.parents
            wanted = {min(max(before[parent] * factor, 0.5), 2.0) for factor in (0.8, 1.25)}
            assert event.temperature in wanted and table[event.slot].temperature == event.temperature
            seen.add(event.temperature)
        ratings.update([])
        table.members["teacher_0"], table.members["teacher_1"] = table["teacher_1"], table["teacher_0"]
    assert {0.8, 1.25} <= seen and min(seen) >= 0.5 and max(seen) <= 2.0


def test_temperatures_stay_where_they_do_not_mutate():
    table, ratings = played(4, 4)
    events = evolve(table, ratings, settings=EvolutionSettings(), step=20, rng=generator())
    assert {event.temperature for event in events} == {None}
    assert {table[name].temperature for name in table.names()} == {1.0}


def test_the_lineage_keeps_migrations(tmp_path):
    table, ratings = played(4, 4)
    settings = EvolutionSettings(islands=2, migration_interval=2, mutate_temperature=True)
    lineage = Lineage(tmp_path / "lineage.jsonl")
    lineage.extend(evolve(table, ratings, settings=settings, step=20, rng=generator(), number=2))
    again = Lineage(tmp_path / "lineage.jsonl")
    assert again.events == lineage.events and {event.kind for event in again} == {"migration"}
    assert "clone" in again.family_tree()


def test_settings_that_do_not_fit_are_refused():
    for wrong in ({"islands": 0}, {"migration_interval": 0}):
        with pytest.raises(ValueError, match="islands and migration_interval must be at least 1"):
            EvolutionSettings(**wrong)
    with pytest.raises(
        ValueError, match="migration_interval=1 with islands=2: every evolution step would be a migration"
    ):
        EvolutionSettings(islands=2, migration_interval=1)
    EvolutionSettings(migration_interval=1)
    EvolutionSettings(islands=2).check_sizes(4, 1, 0)
    with pytest.raises(ValueError, match=r"islands=2 does not divide 3 members .* choose one of \[1\]"):
        EvolutionSettings(islands=2).check_sizes(4, 3)
    table, ratings = played(4, 3)
    with pytest.raises(ValueError, match="islands=2 does not divide 3"):
        ask(table, ratings, generator(), settings=EvolutionSettings(islands=2))
