"""Values and gradients of all adapters lie in one tensor each, and PEFT's parameters remain ordinary parameters."""

import copy

import pytest
import torch

from tests.tiny import lora, perturb, tiny_model, tiny_population
from trl_populora.population import Population


def tokens(rows):
    return torch.randint(3, 200, (rows, 6), generator=torch.Generator().manual_seed(0))


def backward(population, rows):
    with population.route(rows):
        population.model(tokens(len(rows))).logits.square().mean().backward()


def gradients(population):
    return {
        name: [None if p.grad is None else p.grad.clone() for p in population.parameters(name)] for name in population
    }


def assert_equal(one, other):
    for name, own in one.items():
        for a, b in zip(own, other[name], strict=True):
            assert (a is None) == (b is None), name
            assert a is None or torch.equal(a, b), name


def test_a_row_is_an_adapter_and_no_copy():
    population = tiny_population()
    for name in (*population, *population.guests):
        row = population.row(name)
        assert torch.equal(row, torch.cat([p.detach().flatten() for p in population.parameters(name)]))
    population.row("student_1").fill_(0.5)
    assert all((p == 0.5).all() for p in population.parameters("student_1"))
    assert not any((p == 0.5).all() for p in population.parameters("student_0"))


ROWS = {
    "neighbours": ["teacher_0", "teacher_1", "student_0", "student_1"],
    "one": ["student_1"] * 4,
    "equal distances": ["teacher_0", "teacher_0", "student_0", "student_0"],
    "other distances": ["teacher_0", "teacher_1", "student_1", "student_1"],
}


def separate(population):
    """Gives every parameter storage of its own again."""
    for name in (*population, *population.guests):
        for parameter in population.parameters(name):
            parameter.data = parameter.data.clone()
    return population


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_gradients_are_those_of_separate_parameters_bit_for_bit(rows):
    """The same model, whose parameters are stacked by PyTorch, over two passes that add up."""
    both = []
    for make in (lambda population: population, separate):
        population = make(tiny_population())
        perturb(population, 0.1)
        for _ in range(2):
            backward(population, rows)
        both.append(gradients(population))
    assert_equal(*both)
    assert {name for name, own in both[0].items() if own[0] is not None} == set(rows)


def test_gradients_lie_in_one_tensor_and_start_from_nothing_after_each_step():
    population = tiny_population()
    perturb(population, 0.1)
    backward(population, ROWS["neighbours"])
    first = gradients(population)
    assert len({p.grad.untyped_storage().data_ptr() for name in population for p in population.parameters(name)}) == 1
    population.model.zero_grad()
    backward(population, ROWS["neighbours"])
    assert_equal(first, gradients(population))


def test_a_gradient_that_somebody_else_has_made_is_added_to():
    population = tiny_population()
    backward(population, ["student_0"])
    alone = gradients(population)["student_0"]
    for parameter in population.parameters("student_0"):
        parameter.grad = torch.ones_like(parameter)
    backward(population, ["student_0"])
    for got, want in zip(gradients(population)["student_0"], alone, strict=True):
        torch.testing.assert_close(got, want + 1, rtol=0, atol=1e-6)


def test_hooks_of_the_parameters_run_once_per_backward():
    """DDP learns from them that a gradient is ready."""
    population, seen = tiny_population(), []
    for parameter in population.parameters("student_0"):
        node = parameter.view_as(parameter).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_, node=node, parameter=parameter: seen.append(parameter.grad is not None))
        parameter.kept = node  # as DDP does
    backward(population, ["student_0", "student_1"])
    assert seen == [True] * len(population.parameters("student_0"))


def test_a_model_that_was_moved_computes_the_same_before_and_after_it_is_gathered():
    population = tiny_population()
    perturb(population, 0.1)
    population.model.to(torch.float64)
    ids = tokens(2)
    with torch.no_grad(), population.route(["student_0", "student_1"]):
        before = population.model(ids).logits
    population.gather()
    assert population.slab.values.dtype == torch.float64
    assert all(population.slab.holds(p) for name in population for p in population.parameters(name))
    with torch.no_grad(), population.route(["student_0", "student_1"]):
        assert torch.equal(population.model(ids).logits, before)


def test_a_row_of_a_moved_adapter_is_the_moved_adapter():
    population = tiny_population()
    population.parameters("student_0")[3].data = torch.ones_like(population.parameters("student_0")[3])
    assert population.row("student_0").eq(1).sum() >= population.parameters("student_0")[3].numel()
    population.row("student_0").zero_()
    assert not any(p.any() for p in population.parameters("student_0"))


def test_a_copied_population_shares_nothing():
    population = tiny_population()
    perturb(population, 0.1)
    other = copy.deepcopy(population)
    other.row("student_0").zero_()
    assert not any(p.any() for p in other.parameters("student_0"))
    assert all(p.any() for p in population.parameters("student_0"))


def test_saved_adapters_are_pefts_own_files(tmp_path):
    """Byte for byte those of `save_pretrained`, which reads the whole model for every member."""
    population = Population(tiny_model(), lora(), num_teachers=1, num_students=2)
    perturb(population, 0.1)
    population.save(str(tmp_path / "ours"))
    population.model.save_pretrained(
        str(tmp_path / "pefts"), selected_adapters=list(population), save_embedding_layers=False
    )
    for name in population:
        for file in ("adapter_model.safetensors", "adapter_config.json"):
            assert (tmp_path / "ours" / name / file).read_bytes() == (tmp_path / "pefts" / name / file).read_bytes()
