import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_adapters import delta, make_factors, regauge

from trl_populora.evolution.algebra import (
    cayley,
    cosine,
    delta_norm,
    effective_rank,
    factor_svd,
    inner,
    refactor,
    singular_values,
    thin_svd,
    weighted_sum,
)
from trl_populora.population.factors import Factor


seeds = st.integers(0, 2**32 - 1)


def identity(n: int) -> torch.Tensor:
    return torch.eye(n, dtype=torch.float64)


@settings(deadline=None)
@given(seed=seeds, d_out=st.integers(1, 9), d_in=st.integers(1, 9), rank=st.integers(1, 6))
def test_thin_svd_against_the_dense_one(seed, d_out, d_in, rank):
    rng = torch.Generator().manual_seed(seed)
    B = torch.randn(d_out, rank, generator=rng, dtype=torch.float64)
    A = torch.randn(rank, d_in, generator=rng, dtype=torch.float64)
    U, s, V = thin_svd(B, A, 1.5)
    k = min(rank, d_out, d_in)
    assert (U.shape, s.shape, V.shape) == ((d_out, k), (k,), (d_in, k))
    torch.testing.assert_close(U @ torch.diag(s) @ V.T, 1.5 * B @ A)
    torch.testing.assert_close(U.T @ U, identity(k))
    torch.testing.assert_close(V.T @ V, identity(k))
    torch.testing.assert_close(s, torch.linalg.svdvals(1.5 * B @ A)[:k])


def test_thin_svd_is_batched_over_equal_shapes():
    rng = torch.Generator().manual_seed(0)
    B = torch.randn(3, 5, 2, generator=rng)
    A = torch.randn(3, 2, 6, generator=rng)
    batched = thin_svd(B, A)
    for i in range(3):
        for whole, single in zip(batched, thin_svd(B[i], A[i]), strict=True):
            torch.testing.assert_close(whole[i], single)


@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_svd_does_not_see_the_gauge(seed):
    factors = make_factors(seed, dtype=torch.float64)
    for path, other in regauge(factors, seed + 1).items():
        for a, b in zip(factor_svd(factors[path]), factor_svd(other), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("zero", ["A", "B", "both"])
def test_exact_zeros(zero):
    factor = make_factors(0)["head"]
    A = factor.A * 0 if zero != "B" else factor.A
    B = factor.B * 0 if zero != "A" else factor.B
    U, s, V = thin_svd(B, A)
    assert s.tolist() == [0] * 4
    torch.testing.assert_close(U.T @ U, identity(4))
    torch.testing.assert_close(V.T @ V, identity(4))
    dead = {"head": Factor(A, B, 1.0)}
    assert (delta_norm(dead), cosine(dead, dead), effective_rank(dead["head"])) == (0, 0, 0)


def test_rank_deficient_components_are_exactly_zero():
    factor = make_factors(0)["head"]
    svd = weighted_sum([factor, factor], [0.5, 0.5])
    assert svd.s.shape == (4,)  # limited by d_out
    tall = make_factors(0)["model.layers.0.q_proj"]
    svd = weighted_sum([tall, tall], [0.5, 0.5])
    assert (svd.s > 0).tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_scales(scale):
    factors = {path: Factor(A * scale, B * scale, c) for path, (A, B, c) in make_factors(3).items()}
    for factor in factors.values():
        svd = factor_svd(factor)
        torch.testing.assert_close(svd.U @ torch.diag(svd.s) @ svd.V.T / scale**2, delta(factor) / scale**2)
        like_again = refactor(svd, like=factor, spare=torch.zeros_like(factor.A))
        assert torch.isfinite(like_again.A).all() and torch.isfinite(like_again.B).all()
    assert math.isfinite(delta_norm(factors)) and delta_norm(factors) > 0
    assert cosine(factors, factors) == pytest.approx(1)


def test_refactor_is_balanced_and_fills_dead_directions():
    factor = make_factors(1, dtype=torch.float64)["model.layers.0.q_proj"]
    svd = factor_svd(factor)
    svd = svd._replace(s=torch.cat([svd.s[:2], torch.zeros(2, dtype=torch.float64)]))
    spare = torch.full((4, 6), 7.0)
    A, B, scaling = refactor(svd, like=factor, spare=spare)
    torch.testing.assert_close(B.norm(dim=0)[:2], A.norm(dim=1)[:2])
    assert A[2:].eq(7).all() and B[:, 2:].eq(0).all() and scaling == factor.scaling
    torch.testing.assert_close(scaling * B @ A, svd.U @ torch.diag(svd.s) @ svd.V.T)


@settings(deadline=None)
@given(seed=seeds, a=st.floats(-2, 2), b=st.floats(-2, 2), rank=st.integers(1, 5))
def test_weighted_sum_is_the_best_approximation(seed, a, b, rank):
    first = make_factors(seed, rank=3, scaling=0.5, dtype=torch.float64)["model.layers.2.q_proj"]
    second = make_factors(seed + 1, rank=rank, scaling=4.0, dtype=torch.float64)["model.layers.2.q_proj"]
    dense = a * delta(first) + b * delta(second)
    cut = refactor(weighted_sum([first, second], [a, b]), like=first, spare=torch.zeros_like(first.A))
    U, s, Vh = torch.linalg.svd(dense, full_matrices=False)
    best = U[:, :3] @ torch.diag(s[:3]) @ Vh[:3]
    if len(s) == 3 or s[2] - s[3] > 1e-6 * s[0]:
        torch.testing.assert_close(delta(cut), best, rtol=1e-6, atol=1e-8)


@settings(deadline=None)
@given(seed=seeds, n=st.integers(1, 6), scale=st.floats(0, 100))
def test_cayley_is_a_rotation(seed, n, scale):
    G = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    R = cayley(scale * (G - G.T))
    torch.testing.assert_close(R @ R.T, identity(n), rtol=0, atol=1e-9)
    assert torch.linalg.det(R) == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(cayley(torch.zeros(n, n, dtype=torch.float64)), identity(n))


def test_cayley_is_near_the_exponential():
    G = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = 0.01 * (G - G.T)
    torch.testing.assert_close(cayley(K), torch.linalg.matrix_exp(K), rtol=0, atol=1e-5)


def test_inner_norm_and_cosine_against_dense():
    first, second = make_factors(1, dtype=torch.float64), make_factors(2, dtype=torch.float64, scaling=0.25)
    a = torch.cat([delta(f).flatten() for f in first.values()])
    b = torch.cat([delta(f).flatten() for f in second.values()])
    assert inner(first, second) == pytest.approx(float(a @ b))
    assert delta_norm(first) == pytest.approx(float(a.norm()))
    assert cosine(first, second) == pytest.approx(float(a @ b / (a.norm() * b.norm())))
    assert cosine(first, regauge(first, 0)) == pytest.approx(1)
    flipped = {path: Factor(-A, B, c) for path, (A, B, c) in first.items()}
    assert cosine(first, flipped) == pytest.approx(-1)


@pytest.mark.parametrize("rank", [1, 4, 12])
def test_singular_values(rank):
    for factor in make_factors(5, rank=rank, dtype=torch.float64).values():
        s = singular_values(factor)
        k = min(rank, *delta(factor).shape)
        assert s.shape == (rank,)
        torch.testing.assert_close(s[:k], torch.linalg.svdvals(delta(factor))[:k])
        assert (s[k:] < 1e-6 * s[0]).all()


def test_effective_rank():
    Q, _ = torch.linalg.qr(torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert effective_rank(Factor(Q.T, Q, 2.0)) == pytest.approx(3)
    assert effective_rank(Factor(Q.T[:1], Q[:, :1], 2.0)) == pytest.approx(1)


def test_bad_input_is_named():
    factor = make_factors(0)["head"]
    with pytest.raises(ValueError, match="not finite"):
        thin_svd(factor.B * float("nan"), factor.A)
    with pytest.raises(ValueError, match="head"):
        inner({"head": factor}, {"tail": factor})
