import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from toy_adapters import assert_same_bits, make_factors

from tests.tiny import tiny_population
from trl_populora.evolution import (
    OPERATORS,
    EvolutionSettings,
    NotFiniteError,
    Operator,
    ask,
    breed,
    evolve,
    read_parameters,
    remake,
    tell,
)
from trl_populora.population.factors import Factor
from trl_populora.self_play.ratings import SIGMA, Outcome, Rating, Ratings


@dataclass(frozen=True)
class Slot:
    role: str
    version: int = 0
    born_step: int = 0
    learning_rate: float = 1e-3
    temperature: float = 1.0


class Table:
    """The few methods of a population that evolution calls."""

    def __init__(self, num_teachers: int, num_students: int):
        names = [f"teacher_{i}" for i in range(num_teachers)] + [f"student_{i}" for i in range(num_students)]
        self.members = {name: Slot(name.split("_")[0]) for name in names}
        self.weights = {name: make_factors(i) for i, name in enumerate(names)}
        self.calls = []

    def __getitem__(self, name):
        return self.members[name]

    def names(self, role=None):
        return [name for name, member in self.members.items() if role in (None, member.role)]

    def factors(self, name):
        return self.weights[name]

    def replace(self, name, factors, *, operator, parents, step, learning_rate=None, temperature=None):
        self.calls.append((name, operator, parents, step, learning_rate))
        for path, (A, B, _) in factors.items():
            self.weights[name][path].A.copy_(A)
            self.weights[name][path].B.copy_(B)
        old = self.members[name]
        rate = old.learning_rate if learning_rate is None else learning_rate
        heat = old.temperature if temperature is None else temperature
        self.members[name] = replace(
            old, version=old.version + 1, born_step=step, learning_rate=rate, temperature=heat
        )
        return self.members[name]

    def snapshot(self):
        return {
            name: {path: Factor(A.clone(), B.clone(), c) for path, (A, B, c) in factors.items()}
            for name, factors in self.weights.items()
        }


def played(num_teachers: int, num_students: int) -> tuple[Table, Ratings]:
    """A population in which member 0 of each role is the best and the last the worst."""
    table = Table(num_teachers, num_students)
    ratings = Ratings(table.names("teacher"), table.names("student"))
    for _ in range(3):
        ratings.update(
            Outcome(t, s, 8, round(8 / (1 + 2.0 ** (j - i))))
            for i, t in enumerate(ratings.teachers)
            for j, s in enumerate(ratings.students)
        )
    return table, ratings


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("operator", list(OPERATORS))
@pytest.mark.parametrize("size", [2, 8])
def test_every_event_can_be_remade_from_its_parents(operator, size):
    table, ratings = played(size, size)
    before = table.snapshot()
    events = evolve(table, ratings, settings=EvolutionSettings(operators=(operator,)), step=20, rng=generator())
    assert len(events) == 2 * max(1, size // 4)
    for event in events:
        assert event.operator == operator
        child = remake(event, [before[name] for name, _ in event.parents])
        assert_same_bits(child, table.weights[event.slot])


def test_worst_are_replaced_best_breed_the_rest_stay():
    table, ratings = played(8, 4)
    before, old = table.snapshot(), {name: ratings[name] for name in table.names()}
    events = evolve(table, ratings, settings=EvolutionSettings(), step=20, rng=generator())
    assert [event.slot for event in events] == ["teacher_7", "teacher_6", "student_3"]
    assert [event.role for event in events] == ["teacher", "teacher", "student"]
    for event in events:
        two = OPERATORS[event.operator].num_parents == 2
        top = {"teacher": {"teacher_0", "teacher_1"}, "student": {"student_0"} | ({"student_1"} if two else set())}
        assert {name for name, _ in event.parents} <= top[event.role]
        assert all(version == 0 for _, version in event.parents)
        assert event.version == table[event.slot].version == 1
        assert table[event.slot].born_step == event.step == 20
        assert event.rating_before == (old[event.slot].mu, old[event.slot].sigma)
        assert event.rating_after == (ratings[event.slot].mu, ratings[event.slot].sigma)
        parents = [old[name] for name, _ in event.parents]
        assert event.rating_after[0] == pytest.approx(sum(parent.mu for parent in parents) / len(parents))
        assert event.fitness == {name: old[name].fitness for name in table.names(event.role)}
        assert event.learning_rate is None and table[event.slot].learning_rate == 1e-3
    for name in set(table.names()) - {event.slot for event in events}:
        assert_same_bits(table.weights[name], before[name])
        assert ratings[name] == Rating(old[name].mu, max(SIGMA / 2, old[name].sigma)), "a new interval begins for all"


def test_a_childs_rating_is_that_after_all_births():
    """Teachers with invalid proposals are rated against the mean student, which a better student raises."""
    table, ratings = played(4, 4)
    ratings.update(Outcome(name, "student_3", 8, 0, forfeit=True) for name in ratings.teachers)
    for event in evolve(table, ratings, settings=EvolutionSettings(), step=20, rng=generator()):
        assert event.rating_after == (ratings[event.slot].mu, ratings[event.slot].sigma)


def test_a_real_population_evolves_in_place():
    population = tiny_population(2, 4)
    ratings = Ratings(population.teachers, population.students)
    ratings.update([Outcome("teacher_0", "student_3", 8, 0), Outcome("teacher_1", "student_0", 8, 8)])
    addresses = {name: [p.data_ptr() for p in population.parameters(name)] for name in population}
    before = {name: [p.detach().clone() for p in population.parameters(name)] for name in population}
    for step in range(20, 20 * len(OPERATORS) + 1, 20):
        operator = list(OPERATORS)[step // 20 - 1]
        settings = EvolutionSettings(operators=(operator,))
        for event in evolve(population, ratings, settings=settings, step=step, rng=generator(step)):
            member = population[event.slot]
            assert (member.version, member.operator, member.born_step) == (event.version, operator, step)
            assert member.parents == tuple(f"{name}@{version}" for name, version in event.parents)
    assert addresses == {name: [p.data_ptr() for p in population.parameters(name)] for name in population}
    changed = {name for name, old in before.items() if not all(map(torch.equal, old, population.parameters(name)))}
    assert changed == {name for name in population if population[name].version > 0}


def test_same_generator_state_same_evolution():
    runs = []
    for _ in range(2):
        table, ratings = played(4, 4)
        rng = generator(5)
        events = [
            event
            for step in (20, 40, 60)
            for event in evolve(table, ratings, settings=EvolutionSettings(), step=step, rng=rng)
        ]
        runs.append((events, table.weights, ratings.state_dict()))
    assert runs[0][0] == runs[1][0] and runs[0][2] == runs[1][2]
    for name in runs[0][1]:
        assert_same_bits(runs[0][1][name], runs[1][1][name])


def test_all_operators_get_drawn():
    settings, wanted, drawn = EvolutionSettings(), set(OPERATORS) - {"average", "clone"}, set()
    table, ratings = played(4, 4)
    for seed in range(100):
        drawn |= {child.operator for child in ask(table, ratings, generator(seed), settings=settings)}
        if drawn == wanted:
            break
    assert drawn == set(settings.operators) == wanted


def test_roles_of_one_member_never_change():
    table, ratings = played(1, 1)
    state = ratings.state_dict()
    assert evolve(table, ratings, settings=EvolutionSettings(), step=20, rng=generator()) == []
    assert table.calls == [] and ratings.state_dict() == state
    table, ratings = played(1, 4)
    events = evolve(table, ratings, settings=EvolutionSettings(), step=20, rng=generator())
    assert [event.role for event in events] == ["student"]


def test_a_shared_member_needs_no_rating():
    table = Table(1, 0)
    table.members = {"agent_0": Slot("shared")}
    assert (
        evolve(table, Ratings(["teacher_0"], ["student_0"]), settings=EvolutionSettings(), step=1, rng=generator())
        == []
    )


def test_children_are_not_replaced_before_min_age():
    table, ratings = played(4, 4)
    settings = EvolutionSettings(min_age=30, operators=("clone",))
    first = evolve(table, ratings, settings=settings, step=40, rng=generator())
    assert len(first) == 2
    again = evolve(table, ratings, settings=settings, step=60, rng=generator())
    assert not {event.slot for event in first} & {event.slot for event in again}


def test_ages_count_rounds_and_not_steps():
    """20 steps of 4 a round are 5 rounds."""
    for min_age, children in ((5, 2), (6, 0)):
        table, ratings = played(4, 4)
        settings = EvolutionSettings(min_age=min_age, operators=("clone",))
        assert len(ask(table, ratings, generator(), settings=settings, step=20, steps_per_round=4)) == children
        events = evolve(table, ratings, settings=settings, step=20, rng=generator(), steps_per_round=4)
        assert len(events) == children


def test_ages_count_from_birth():
    """All but the best are 3 rounds old at step 40."""
    for min_age, children in ((3, 2), (4, 0)):
        table, ratings = played(4, 4)
        for name in {*table.names()} - {"teacher_0", "student_0"}:
            table.members[name] = replace(table[name], born_step=28)
        settings = EvolutionSettings(min_age=min_age, operators=("clone",))
        assert len(ask(table, ratings, generator(), settings=settings, step=40, steps_per_round=4)) == children


def test_learning_rate_mutation():
    settings = EvolutionSettings(mutate_learning_rate=True, operators=("clone",))
    table, ratings = played(4, 4)
    children = [child for seed in range(8) for child in ask(table, ratings, generator(seed), settings=settings)]
    assert sorted({child.learning_rate for child in children}) == pytest.approx([0.8e-3, 1.25e-3])
    for event in tell(table, ratings, children[:2], step=20):
        assert table[event.slot].learning_rate == event.learning_rate


def test_ask_writes_nothing_and_tell_takes_what_it_is_given():
    table, ratings = played(4, 4)
    before, state = table.snapshot(), ratings.state_dict()
    teacher, student = ask(table, ratings, generator())
    assert (teacher.slot, student.slot) == ("teacher_3", "student_3")
    assert table.calls == [] and ratings.state_dict() == state
    for name, factors in before.items():
        assert_same_bits(table.weights[name], factors)
    (event,) = tell(table, ratings, [student], step=7)
    assert (event.slot, event.step, event.version, table["student_3"].born_step) == ("student_3", 7, 1, 7)
    assert_same_bits(table.weights["student_3"], student.factors)
    assert_same_bits(table.weights["teacher_3"], before["teacher_3"])


def test_ask_and_tell_are_one_evolve():
    (table, ratings), (other, other_ratings) = played(4, 4), played(4, 4)
    settings = EvolutionSettings(fraction=0.5, selection="tournament", tournament_size=2)
    events = tell(table, ratings, ask(table, ratings, generator(3), settings=settings, step=40), step=40)
    assert events == evolve(other, other_ratings, settings=settings, step=40, rng=generator(3))
    for name in table.names():
        assert_same_bits(table.weights[name], other.weights[name])


def test_stale_and_conflicting_offspring_are_refused_whole():
    table, ratings = played(4, 4)
    teacher, student = ask(table, ratings, generator(), settings=EvolutionSettings(operators=("clone",)))
    own = replace(teacher, slot="teacher_0")  # the slot of the parent of `teacher`
    path, factor = next(iter(teacher.factors.items()))
    for children, words in (
        ([student, teacher, teacher], "Two children want one slot"),
        ([student, replace(teacher, parents=(("teacher_0", 5),))], "teacher_0@5.*version 0.*Ask again"),
        ([teacher, own], "'teacher_0' is a parent of the child for 'teacher_3'"),
        ([student, replace(teacher, parents=())], "'teacher_3' has no parents"),
        ([student, replace(teacher, factors={path: factor})], "'teacher_3' cover different modules"),
        (
            [student, replace(teacher, factors=teacher.factors | {path: factor._replace(A=factor.A.log())})],
            "not finite",
        ),
        (
            [student, replace(teacher, factors=teacher.factors | {path: factor._replace(scaling=9.0)})],
            "scaling 9.0; the",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            tell(table, ratings, children)
        assert table.calls == []


@pytest.mark.parametrize("change", [{"learning_rate": -1e-4}, {"learning_rate": float("nan")}, {"temperature": 0.0}])
def test_offspring_with_a_rate_out_of_range_are_refused_when_made(change):
    child, _ = ask(*played(4, 4), generator())
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=f"{name}={value} of 'teacher_3' must be"):
        replace(child, **change)


def of_three(parents, rng):
    """An operator of three parents."""
    return OPERATORS["average"].function([parents[0], parents[2]], rng)


def test_an_operator_of_three_parents_has_those_who_stay_and_its_own_slot(monkeypatch):
    monkeypatch.setitem(OPERATORS, "three", Operator(of_three, 3))
    settings = EvolutionSettings(operators=("three",), fraction=0.5)
    table, ratings = played(4, 4)
    settings.check_sizes(4, 4, 1)
    events = evolve(table, ratings, settings=settings, step=20, rng=generator())
    assert len(events) == 4
    for event in events:
        assert {name for name, _ in event.parents} == {f"{event.role}_0", f"{event.role}_1", event.slot}


def test_a_role_with_too_few_parents_is_refused(monkeypatch):
    monkeypatch.setitem(OPERATORS, "three", Operator(of_three, 3))
    settings = {"operators": ("clone", "three"), "fraction": 0.5}
    EvolutionSettings(**settings, elites=2).check_sizes(2, 3)  # nobody of two is ever replaced
    with pytest.raises(ValueError, match="'three' needs 3 parents, and a child has at most 2: of 2 members"):
        EvolutionSettings(**settings).check_sizes(4, 2)
    with pytest.raises(ValueError, match="at most 2"):
        EvolutionSettings(**settings, islands=2).check_sizes(4)


@pytest.mark.parametrize("sizes, islands", [((4, 4), 1), ((4, 2), 1), ((8, 8), 2)])
def test_elites_that_leave_nobody_to_replace_are_refused(sizes, islands):
    EvolutionSettings(elites=3, islands=islands).check_sizes(*sizes)
    with pytest.raises(ValueError, match="elites=4 are never replaced.*Set elites to 3 or less"):
        EvolutionSettings(elites=4, islands=islands).check_sizes(*sizes)
    EvolutionSettings(elites=4).check_sizes(1, 1)  # a role of one member never changes


def test_a_child_that_is_not_finite_is_refused_before_anything_is_written():
    table, ratings = played(4, 4)
    settings = EvolutionSettings(operators=("gaussian",))
    table.weights["student_0"]["head"].B.fill_(3e38)  # no noise can be added to that
    with pytest.raises(NotFiniteError, match=r"child of student_0 by 'gaussian' is not finite at head"):
        evolve(table, ratings, settings=settings, step=20, rng=generator())
    table.weights["student_0"]["head"].B.fill_(float("inf"))
    with pytest.raises(NotFiniteError, match="student_0, a parent of the child for student_3, is not finite at head"):
        evolve(table, ratings, settings=settings, step=20, rng=generator())
    assert table.calls == []


def test_parameters_reach_the_operator_and_the_record():
    table, ratings = played(4, 4)
    before = table.snapshot()
    settings = EvolutionSettings(operators=("gaussian",), operator_parameters={"gaussian": {"eps": 0.0}})
    for event in evolve(table, ratings, settings=settings, step=20, rng=generator()):
        assert event.parameters["eps"] == 0.0 and isinstance(event.parameters["seed"], int)
        assert_same_bits(table.weights[event.slot], before[event.parents[0][0]])


def test_broken_members_are_refused_before_anything_is_written():
    table, ratings = played(4, 4)
    table.weights["teacher_0"]["head"].A.fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        evolve(table, ratings, settings=EvolutionSettings(operators=("average",)), step=20, rng=generator())
    assert table.calls == []


def test_due():
    settings = EvolutionSettings(interval=5)
    assert [rounds for rounds in range(12) if settings.due(rounds)] == [5, 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": 0}, "interval.*0"),
        ({"fraction": 0.7}, "fraction.*0.7"),
        ({"min_age": -1}, "min_age.*-1"),
        ({"min_age": 9, "max_age": 3}, "max_age.*3 and 9"),
        ({"elites": 0}, "elites.*0"),
        ({"selection": "tournement"}, "selection: 'tournement'. Did you mean 'tournament'"),
        ({"tournament_size": 0}, "tournament_size.*0"),
        ({"interval": 2.5}, "interval=2.5 must be a whole number"),
        ({"min_age": float("nan")}, "min_age=nan must be a whole number"),
        ({"fraction": "0.2"}, "fraction='0.2' must be a number"),
        ({"operators": ()}, "at least one"),
        ({"operators": ("dare", "dare")}, "none twice"),
        ({"operators": ("svd_structure",)}, "'svd_structure'.*Did you mean 'svd_structured'"),
        ({"operators": ("xyzzy",)}, "'xyzzy'.*Choose from"),
        ({"operator_parameters": {"gausian": {}}}, "Did you mean 'gaussian'"),
        ({"operator_parameters": {"gaussian": {"epss": 1}}}, "parameter of 'gaussian': 'epss'.*'eps'"),
        ({"operator_parameters": {"gaussian": {"eps": -1}}}, "'gaussian' fails.*-1"),
        ({"operator_parameters": {"gaussian": {"eps": "much"}}}, "'gaussian' fails.*much"),
        ({"operator_parameters": {"gaussian": {"eps": float("inf")}}}, "'gaussian' fails.*not finite"),
    ],
)
def test_bad_settings_are_refused_at_construction(options, message):
    with pytest.raises(ValueError, match=message):
        EvolutionSettings(**options)


def _halves_its_parent(parents, rng):
    for factor in parents[0].values():
        factor.A.mul_(0.5)
    return parents[0]


def _prunes_its_parent(parents, rng):
    for factor in parents[0].values():
        factor.B[factor.B.abs() < 1e-3] = 0
    return dict(parents[0])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda parents, rng: None, "'own' fails"),
        (lambda parents, rng: {}, "one Factor for each matrix of its parents"),
        (lambda parents, rng: {path: (A, B) for path, (A, B, _) in parents[0].items()}, "one Factor for each matrix"),
        (lambda parents, rng: parents[1], "IndexError: list index out of range"),
        (
            lambda parents, rng: {path: one._replace(scaling=1.0) for path, one in parents[0].items()},
            "another scaling than its parents: ",
        ),
        (
            lambda parents, rng: {path: one._replace(A=torch.rand_like(one.A)) for path, one in parents[0].items()},
            "the same seed gives another child",
        ),
        (
            lambda parents, rng: {path: one._replace(A=one.A.T) for path, one in parents[0].items()},
            "other shapes",
        ),
        (
            lambda parents, rng: {p: one._replace(A=one.A[:4], B=one.B[:, :4]) for p, one in parents[0].items()},
            "other shapes",
        ),
        (
            lambda parents, rng: {p: one._replace(A=one.A.double()) for p, one in parents[0].items()},
            "other shapes, dtypes or another scaling",
        ),
        (
            lambda parents, rng: {path: one._replace(A=one.A * float("nan")) for path, one in parents[0].items()},
            "not finite",
        ),
        (
            lambda parents, rng: {p: one._replace(B=one.B / one.B.norm()) for p, one in parents[0].items()},
            r"a child of adapters that have not learned \(B = 0\) are not finite",
        ),
        (_halves_its_parent, "changes its parents in place"),
        (_prunes_its_parent, "changes its parents in place"),
    ],
)
def test_an_operator_of_ones_own_is_tried_at_construction(monkeypatch, function, message):
    monkeypatch.setitem(OPERATORS, "own", Operator(function, 1))
    with pytest.raises(ValueError, match=message):
        EvolutionSettings(operators=("own",))


@pytest.mark.parametrize("number", [0, 1.0, True])
def test_the_number_of_parents_is_a_whole_number(number):
    with pytest.raises(ValueError, match=f"num_parents={number} must be a whole number of at least 1"):
        Operator(_halves_its_parent, number)


def test_fewer_parents_than_an_operator_needs_are_refused():
    with pytest.raises(ValueError, match="Operator 'dare' needs 2 parents, got 1"):
        breed("dare", [make_factors(0)], seed=0)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_that_torch_does_not_take_is_named(seed):
    with pytest.raises(ValueError, match=f"seed={seed} is out of range"):
        breed("clone", [make_factors(0)], seed=seed)


def test_an_operator_may_exchange_heads(monkeypatch):
    def heads(parents, rng):
        return {
            path: one._replace(A=one.A.clone(), B=one.B.view(8, -1, one.B.shape[1]).flip(0).reshape(one.B.shape))
            for path, one in parents[0].items()
        }

    monkeypatch.setitem(OPERATORS, "heads", Operator(heads, 1))
    EvolutionSettings(operators=("heads",))


def test_an_operator_may_go_by_the_layer(monkeypatch):
    def later(parents, rng, *, keep: float = 0.5):
        layers = {path: int(path.partition("layers.")[2].partition(".")[0]) for path in parents[0]}
        return {
            path: one._replace(A=one.A.clone(), B=one.B * keep ** layers[path]) for path, one in parents[0].items()
        }

    monkeypatch.setitem(OPERATORS, "later", Operator(later, 1))
    assert EvolutionSettings(operators=("later",)).parameters("later") == {"keep": 0.5}


def _by_layer(part: str) -> Operator:
    def early(parents, rng):
        layers = {path: int(path.split(f".{part}.")[1].partition(".")[0]) for path in parents[0]}
        return {path: one._replace(B=one.B / (1 + layers[path])) for path, one in parents[0].items()}

    return Operator(early, 1)


def test_an_operator_need_know_the_paths_of_one_kind_of_model(monkeypatch):
    for part in ("layers", "h"):
        monkeypatch.setitem(OPERATORS, "early", _by_layer(part))
        assert EvolutionSettings(operators=("early",)).operators == ("early",)
    with pytest.raises(ValueError, match=r"'early' fails.*IndexError.*for a.layers.0.q and a.layers.1.q and 1 more"):
        EvolutionSettings(operators=("early",)).try_on([f"a.layers.{k}.q" for k in range(3)])
    EvolutionSettings(operators=("early", "dare")).try_on(["a.h.0.q", "a.h.1.q"])
    monkeypatch.setitem(OPERATORS, "early", _by_layer("blocks"))
    with pytest.raises(ValueError, match="IndexError.*for base_model.model.model.layers.0.self_attn.q_proj and"):
        EvolutionSettings(operators=("early",))


OWN = """
from trl_populora.evolution import Operator

def halve(parents, rng, *, keep: float = 0.5, of=None):
    return {path: factor._replace(A=factor.A.clone(), B=factor.B * keep) for path, factor in parents[0].items()}

def needs(parents, rng, *, keep):
    return parents[0]

shrink, needy = Operator(halve, num_parents=1), Operator(needs, num_parents=1)
"""


def test_an_operator_of_ones_own_is_named_by_module(tmp_path, monkeypatch):
    (tmp_path / "operators_of_ones_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = "operators_of_ones_own:shrink"
    settings = EvolutionSettings(operators=(name,), operator_parameters={name: {"keep": 0.25}})
    parent = make_factors(0)
    child = breed(name, [parent], seed=0, parameters=settings.parameters(name))
    assert all(torch.equal(child[path].B, 0.25 * factor.B) for path, factor in parent.items())
    assert read_parameters(name, ["keep=0.1"]) == {"keep": 0.1}
    for wrong, said in {
        "operators_of_ones_own:halve": r"is <function halve.*Operator\(function, num_parents=1\)",
        "operators_of_ones_own:none": "has no 'none'",
        "gausian": "Unknown operator: 'gausian'. Did you mean 'gaussian'.*module:Name",
    }.items():
        with pytest.raises(ValueError, match=said):
            EvolutionSettings(operators=(wrong,))
    needy = "operators_of_ones_own:needy"
    with pytest.raises(ValueError, match="Unknown parameter .*'keep'. It has none: .* keyword-only .* with a default"):
        EvolutionSettings(operators=(needy,), operator_parameters={needy: {"keep": 1}})


def test_a_parent_lives_on_as_it_was(monkeypatch):
    """Whatever an operator does to the factors that it is given, once it has passed its trial."""
    table = Table(0, 4)
    ratings = Ratings([], table.names("student"))
    settings = EvolutionSettings(operators=("clone",))
    monkeypatch.setitem(OPERATORS, "clone", Operator(_halves_its_parent, 1))
    before = {name: [X.clone() for one in table.factors(name).values() for X in one[:2]] for name in ratings.students}
    ask(table, ratings, generator(), settings=settings)
    for name, own in before.items():
        assert all(torch.equal(X, Y) for X, Y in zip(own, (X for f in table.factors(name).values() for X in f[:2])))


def test_settings_from_lists():
    assert EvolutionSettings(operators=["dare", "average"]).operators == ("dare", "average")
    assert EvolutionSettings(operators="dare").operators == ("dare",)
    assert EvolutionSettings(interval=np.int64(5), fraction=np.float64(0.5)) == EvolutionSettings(
        interval=5, fraction=0.5
    )


@pytest.mark.parametrize("operator", ["extrapolative", "dare"])
def test_parents_are_given_to_the_operator_best_first(operator):
    """Also where the best has the last slot."""
    table = Table(0, 4)
    ratings = Ratings([], table.names("student"))
    state = ratings.state_dict()
    state["ratings"] = {f"student_{i}": [20.0 + i, 1.0] for i in range(4)}
    ratings.load_state_dict(state)
    settings = EvolutionSettings(operators=(operator,))
    (child,) = ask(table, ratings, generator(), settings=settings)
    parents = [name for name, _ in child.parents]
    assert child.slot == "student_0" and parents == ["student_3", "student_2"]
    parameters = {name: value for name, value in child.parameters.items() if name != "seed"}
    own = breed(
        operator, [table.factors(name) for name in parents], seed=child.parameters["seed"], parameters=parameters
    )
    assert_same_bits(own, child.factors)


def test_learning_rate_and_temperature_mutate_separately():
    table, found = Table(0, 4), set()
    ratings = Ratings([], table.names("student"))
    settings = EvolutionSettings(operators=("clone",), mutate_learning_rate=True, mutate_temperature=True)
    for seed in range(40):
        (child,) = ask(table, ratings, generator(seed), settings=settings)
        found.add((round(child.learning_rate / 1e-3, 2), child.temperature))
    assert found == {(0.8, 0.8), (0.8, 1.25), (1.25, 0.8), (1.25, 1.25)}
