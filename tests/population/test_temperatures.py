"""Temperatures of members: their logits are divided by them, whoever computes them, and nothing else changes."""

import pytest
import torch

from tests.tiny import lora, tiny_population, two_layers
from trl_populora.population import Population


ROWS = ["student_1", "teacher_0", "student_1", "guest_0"]
HEAT = {"student_1": 0.8, "guest_0": 1.25}


@pytest.fixture
def ids():
    return torch.randint(3, 200, (len(ROWS), 9), generator=torch.Generator().manual_seed(1))


def make_population(*, warm=True):
    population = tiny_population(guests=["guest_0"])
    population.write("guest_0", population.factors("teacher_1"))
    for name, temperature in HEAT.items() if warm else ():
        population.routing.set_temperature(name, temperature)
    population.model.eval()
    return population


def logits(population, ids, rows):
    with population.route(rows):
        return population.model(ids).logits


def test_logits_are_divided_row_by_row(ids):
    warm, cold = (logits(make_population(warm=warm), ids, ROWS) for warm in (True, False))
    for i, name in enumerate(ROWS):
        torch.testing.assert_close(warm[i], cold[i] / HEAT.get(name, 1.0), rtol=1e-5, atol=1e-6)
    assert torch.equal(warm[1], cold[1]) and not torch.equal(warm[0], cold[0])


def test_gradients_are_those_of_the_divided_logits(ids):
    gradients = []
    for warm in (True, False):
        population = make_population(warm=warm)
        scores = logits(population, ids, ROWS)
        if not warm:
            scores = scores / torch.tensor([HEAT.get(name, 1.0) for name in ROWS]).view(-1, 1, 1)
        scores.log_softmax(-1)[..., :50].square().sum().backward()
        gradients.append([p.grad for name in ("student_1", "teacher_0") for p in population.parameters(name)])
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * float(want.abs().max()))


def test_the_base_runs_at_the_temperatures_of_those_it_is_compared_with(ids):
    population = make_population()
    routing = population.routing
    plain = population.model(ids).logits
    with population.route(ROWS):
        before = population.model(ids).logits
        with routing.base():
            assert torch.equal(population.model(ids).logits, plain)
        with routing.base(ROWS):
            warm = population.model(ids).logits
        assert torch.equal(population.model(ids).logits, before)
    for i, name in enumerate(ROWS):
        torch.testing.assert_close(warm[i], plain[i] / HEAT.get(name, 1.0), rtol=1e-5, atol=1e-6)
    assert torch.equal(population.model(ids).logits, plain)


def test_a_temperature_of_one_leaves_every_bit(ids):
    population = make_population(warm=False)
    before = logits(population, ids, ROWS)
    population.routing.set_temperature("student_1", 0.5)
    assert not torch.equal(logits(population, ids, ROWS), before)
    population.routing.set_temperature("student_1", 1.0)
    assert torch.equal(logits(population, ids, ROWS), before)


@pytest.mark.slow
def test_members_keep_their_temperature_through_replacement_and_files(ids, tmp_path):
    population = make_population(warm=False)
    child = dict(operator="clone", parents=["student_0"], step=7)
    population.replace("student_1", population.factors("student_0"), temperature=0.64, **child)
    population.replace("student_1", population.factors("student_0"), **child)
    assert population["student_1"].temperature == 0.64
    population.save(str(tmp_path))
    again = Population.from_pretrained(str(tmp_path), two_layers())
    again.model.eval()
    rows = ["student_1", "student_0", "student_1", "teacher_1"]
    torch.testing.assert_close(logits(again, ids, rows), logits(population, ids, rows), rtol=1e-5, atol=1e-6)
    assert again["student_1"].temperature == 0.64 and again["student_0"].temperature == 1.0


def test_heads_that_are_more_than_a_matrix_are_refused():
    population = make_population(warm=False)
    population.base_model.config.final_logit_softcapping = 30.0
    with pytest.raises(ValueError, match="LlamaForCausalLM does more between hidden states and logits"):
        population.routing.set_temperature("student_0", 0.8)
    population.routing.set_temperature("student_0", 1.0)
    with pytest.raises(ValueError, match="positive and finite, got 0"):
        population.routing.set_temperature("student_0", 0.0)


def test_guests_are_routed_frozen_and_nowhere_else(ids, tmp_path):
    population, plain = make_population(warm=False), tiny_population()
    assert population.guests == ("guest_0",) and set(population) == set(plain)
    rows = ["guest_0", "teacher_1", "guest_0", "student_0"]
    got, twin = logits(population, ids, rows), logits(population, ids, ["teacher_1", *rows[1:]])
    torch.testing.assert_close(got, twin, rtol=1e-5, atol=1e-6)
    for name in plain:
        for one, other in zip(population.parameters(name), plain.parameters(name)):
            assert torch.equal(one, other) and one.requires_grad
    assert not any(p.requires_grad for p in population.parameters("guest_0"))
    got.sum().backward()
    assert all(p.grad is None for p in population.parameters("guest_0"))
    population.save(str(tmp_path))
    assert not [path.name for path in tmp_path.iterdir() if "guest" in path.name]
    assert population.table() == plain.table()


def test_only_guests_are_admitted():
    population = make_population(warm=False)
    population.admit("guest_0", population.factors("student_0"), temperature=0.5)
    for one, other in zip(population.parameters("guest_0"), population.parameters("student_0")):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match=r"'student_0' is not a guest .* \['guest_0'\]"):
        population.admit("student_0", population.factors("student_1"))
    with pytest.raises(ValueError, match="'guest_0' is not usable: it occurs twice|it equals a part"):
        Population(_with_part_named("guest_0"), lora(), num_teachers=1, num_students=1, guests=["guest_0"])


def _with_part_named(name):
    model = two_layers()
    model.add_module(name, torch.nn.Identity())
    return model
