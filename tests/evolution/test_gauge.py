import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_adapters import assert_same_delta, delta, make_factors, regauge

from tests.drawn_examples import examples
from trl_populora.evolution.factors import spectra
from trl_populora.evolution.gauge import align, compose
from trl_populora.evolution.operators import breed
from trl_populora.population.factors import Factor, Factors


UNCHANGED = [
    ("svd_structured", {"eps": 0.0}),
    ("component_masking", {"rho": 0.0}),
    ("svd_subspace", {}),
    ("average", {}),
    ("extrapolative", {}),
    ("dare", {"p": 0.0}),
]
SIZES = (48, 40, 32)  # of a network of two adapted layers
RANK = 8


def trained_parent(size_of_b: float, seed: int) -> Factors:
    """LoRA's initial A after some training, and entries of B of the size that training gives them."""
    rng = torch.Generator().manual_seed(seed)
    parent = {}
    for i, (d_in, d_out) in enumerate(zip(SIZES, SIZES[1:])):
        A = torch.empty(RANK, d_in).uniform_(-1, 1, generator=rng) / math.sqrt(d_in)
        A += 3 * size_of_b * torch.randn(RANK, d_in, generator=rng)
        parent[f"layers.{i}"] = Factor(A, size_of_b * torch.randn(d_out, RANK, generator=rng), 2.0)
    return parent


def first_step(factors: Factors, learning_rate: float = 3e-4) -> torch.Tensor:
    """What the first step of Adam changes in the outputs of a network, `(rows, d_out)`."""
    rng = torch.Generator().manual_seed(0)
    weights = [torch.randn(o, i, generator=rng) / math.sqrt(i) for i, o in zip(SIZES, SIZES[1:])]
    x, y = torch.randn(64, SIZES[0], generator=rng), torch.randn(64, SIZES[-1], generator=rng)
    pairs = [(f.A.clone().requires_grad_(), f.B.clone().requires_grad_(), f.scaling) for f in factors.values()]

    def forward():
        h = x
        for W, (A, B, scaling) in zip(weights, pairs):
            h = torch.tanh(h @ W.T + scaling * (h @ A.T) @ B.T)
        return h

    before = forward()
    optimizer = torch.optim.Adam([X for A, B, _ in pairs for X in (A, B)], lr=learning_rate)
    (before - y).square().mean().backward()
    optimizer.step()
    return (forward() - before).detach()


@pytest.mark.parametrize("size_of_b", [1e-4, 5e-4, 2e-3])
@pytest.mark.parametrize(("name", "parameters"), UNCHANGED)
def test_a_child_with_unchanged_delta_takes_its_parents_first_adam_step(name, parameters, size_of_b):
    parent = trained_parent(size_of_b, seed=1)
    child = breed(name, [parent, parent], seed=0, parameters=parameters)
    own, like = first_step(child), first_step(parent)
    assert float(own.norm() / like.norm()) == pytest.approx(1, abs=0.01)
    assert float((own * like).sum() / (own.norm() * like.norm())) > 0.999


@examples(15)
@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(1, 6), lost=st.integers(0, 6))
def test_unchanged_delta_gives_the_first_parents_factors_back(seed, rank, lost):
    """Also where B has fewer components than columns; in float64, down to rounding."""
    parent = make_factors(seed, rank=rank, dtype=torch.float64)
    for path, factor in parent.items():
        B = factor.B.clone()
        B[:, rank - min(lost, rank) :] = B[:, :1] if lost < rank else 0
        parent[path] = factor._replace(B=B)
    for name, parameters in UNCHANGED:
        child = breed(name, [parent, parent], seed=seed, parameters=parameters)
        for path, factor in child.items():
            torch.testing.assert_close(factor.A, parent[path].A, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(factor.B, parent[path].B, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["svd_subspace", "average", "extrapolative", "dare"])
def test_children_of_strangers_keep_the_scale_of_the_first_parents_rows(name):
    first, second = trained_parent(1e-3, seed=1), trained_parent(1e-3, seed=2)
    for path, (A, B, scaling) in second.items():  # an A ten times as large must not become the child's
        second[path] = Factor(10 * A, B / 10, scaling)
    child = breed(name, [first, second], seed=0)
    for path, factor in child.items():
        sizes = torch.linalg.svdvals(factor.A) / torch.linalg.svdvals(first[path].A)
        assert float(sizes.min()) > 0.5 and float(sizes.max()) < 2
        rows = factor.A.norm() / first[path].A.norm()
        assert float(rows) == pytest.approx(1, abs=0.1)


def test_a_frame_of_zeros_falls_back_to_loras_init():
    first, second = make_factors(1, rank=2), make_factors(2, rank=2)
    zero = {path: Factor(A * 0, B, scaling) for path, (A, B, scaling) in first.items()}
    child = breed("average", [zero, second], seed=0)
    assert_same_delta(child, {path: f._replace(B=f.B / 2) for path, f in second.items()})
    for factor in child.values():
        torch.testing.assert_close(factor.A.norm(dim=1), torch.full((2,), 1 / math.sqrt(3)))


@examples(20)
@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(1, 10))
def test_composed_updates_against_the_dense_ones(seed, rank):
    first = make_factors(seed, rank=rank, dtype=torch.float64)
    other = regauge(make_factors(seed + 1, rank=rank, dtype=torch.float64), seed)
    mixed = spectra([first, other])
    for path, factor in first.items():
        out = Factor(torch.empty_like(factor.A), torch.empty_like(factor.B), factor.scaling)
        compose([factor, other[path]], mixed[path], out=out, seed=0)
        U, s, Vh = torch.linalg.svd(delta(factor) + delta(other[path]), full_matrices=False)
        if rank >= len(s) or s[rank - 1] - s[rank] > 1e-3 * s[0]:
            best = U[:, :rank] * s[:rank] @ Vh[:rank]
            torch.testing.assert_close(delta(out), best, rtol=1e-7, atol=1e-7 * float(s[0]))


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize(
    ("collinear", "apart"), [(1e-4, 1e-2), (1e-5, 1e-2), (1e-6, 1e-1), (1e-6, 1e-2), (1e-6, 1e-3)]
)
def test_parents_alike_with_collinear_rows_lose_only_the_rounding_of_the_factors(seed, collinear, apart):
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    A, B = draw(1, 40) + collinear * draw(RANK, 40), draw(32, RANK)
    pairs = [(A, B), (A + apart * draw(RANK, 40), B + apart * draw(32, RANK))]
    first, other = parents = [Factor(A.float(), B.float(), 2.0) for A, B in pairs]
    out = Factor(torch.empty_like(first.A), torch.empty_like(first.B), first.scaling)
    compose(parents, spectra([{"": first}, {"": other}], [0.5, 0.5])[""], out=out, seed=0)
    U, s, Vh = torch.linalg.svd((delta(first) + delta(other)) / 2, full_matrices=False)
    lost = delta(out) - U[:, :RANK] * s[:RANK] @ Vh[:RANK]
    assert float(lost.norm()) <= 1e-7 * s[0] + 6e-8 * out.scaling * float(out.A.norm() * out.B.norm())


@examples(20)
@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(1, 5))
def test_alignment_is_the_best_rotation(seed, rank):
    like, factor = (make_factors(s, rank=rank, dtype=torch.float64)["head"] for s in (seed, seed + 1))
    rng = torch.Generator().manual_seed(seed)

    def likeness(other: Factor) -> float:
        return sum(float((X * Y).sum() / (X.norm() * Y.norm())) for X, Y in zip(other[:2], like[:2]))

    aligned = align(factor, like)
    torch.testing.assert_close(delta(aligned), delta(factor))
    for _ in range(10):
        Q, _ = torch.linalg.qr(torch.randn(rank, rank, generator=rng, dtype=torch.float64))
        assert likeness(Factor(Q.T @ factor.A, factor.B @ Q, factor.scaling)) <= likeness(aligned) + 1e-9
        back = align(Factor(Q.T @ like.A, like.B @ Q, like.scaling), like)
        torch.testing.assert_close(back.A, like.A)
        torch.testing.assert_close(back.B, like.B)
