"""Stacks of adapters: PEFT's parameters are views of them, and stay the only weights, whatever happens to them."""

import pytest
import torch
from test_routing import NAMES, assert_equal, gradients, loss_of, separate_passes, tokens

from tests.tiny import tiny_population
from trl_populora.population.stacks import matrices, which


def stacked(population):
    """Whether every parameter is where the stack of its layer has its adapter."""
    for layer, stacks in population.routing._stacks._stacks.items():
        for place, name in enumerate(population):
            for parameter, stack in zip(matrices(layer, name), stacks, strict=True):
                if parameter.data_ptr() != stack[place].data_ptr():
                    return False
    return True


def routed(population, rows, ids, weights):
    with population.route(rows):
        loss_of(population, ids, weights).backward()
    return gradients(population)


def test_parameters_are_views_of_the_stacks_from_the_beginning():
    population = tiny_population()
    assert stacked(population)
    first, other = (population.parameters(name)[0] for name in NAMES[:2])
    with torch.no_grad():
        first.fill_(3.0)
    A, _ = next(iter(population.routing._stacks._stacks.values()))
    assert bool((A[0] == 3.0).all()) and not bool((other == 3.0).any())


@pytest.mark.parametrize("rows", [NAMES * 2, ["student_1", "teacher_0"] * 2, ["student_1"] * 2 + ["teacher_0"] * 3])
def test_weights_that_moved_are_those_that_are_used(rows):
    """After `model.to`, parameters have memory of their own; one may also get other data alone."""
    population = tiny_population()
    population.model.to(torch.float64)
    population.parameters("student_1")[0].data = 2 * population.parameters("student_1")[0].data
    assert not stacked(population)
    before = {name: [p.detach().clone() for p in population.parameters(name)] for name in population}
    ids, weights = tokens(len(rows)), torch.linspace(-1, 1, len(rows))
    got = routed(population, rows, ids, weights)
    assert stacked(population)
    for name, values in before.items():
        assert all(torch.equal(a, b) for a, b in zip(population.parameters(name), values, strict=True))
    for name in population:
        for parameter in population.parameters(name):
            parameter.grad = None
    assert_equal(got, separate_passes(population, rows, ids, weights), 1e-10)


def test_weights_that_moved_can_be_trained_after_a_forward_in_inference_mode():
    population = tiny_population()
    population.model.to(torch.float64)
    ids = tokens(4)
    with torch.inference_mode(), population.route(NAMES):
        population.model(ids)
    assert stacked(population) and not any(p.is_inference() for p in population.model.parameters())
    got = routed(population, NAMES, ids, torch.ones(4))
    assert all(grad is not None for name in NAMES for grad in got[name])


def test_a_step_between_a_forward_and_its_backward_is_refused():
    """Its gradients would be of weights that are no longer there."""
    population, rows = tiny_population(), NAMES
    with population.route(rows):
        loss = loss_of(population, tokens(len(rows)), torch.ones(len(rows)))
        with torch.no_grad():
            population.parameters("teacher_1")[-1].add_(1.0)
        with pytest.raises(RuntimeError, match="changed in place between a forward and its backward"):
            loss.backward()


def test_gradients_have_the_dtype_and_the_layout_of_their_parameters():
    """Autograd then takes them as they are, without a kernel for each."""
    population = tiny_population()
    with torch.autocast("cpu", torch.bfloat16):
        routed(population, NAMES, tokens(4), torch.ones(4))
    for name in population:
        for parameter in population.parameters(name):
            assert parameter.grad.dtype == torch.float32 and parameter.grad.is_contiguous()


@pytest.mark.parametrize(
    "adapters, wanted",
    [((1, 2, 3), slice(1, 4)), ((2,), slice(2, 3)), ((), slice(0, 0)), ((0, 2), [0, 2]), ((2, 1), [2, 1])],
)
def test_neighbours_are_a_slice_and_others_an_index(adapters, wanted):
    got = which(adapters, torch.device("cpu"))
    assert (got if isinstance(got, slice) else got.tolist()) == wanted
