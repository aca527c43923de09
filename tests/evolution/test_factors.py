import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_adapters import SVD, delta, factor_svd, make_factors, regauge

from tests.drawn_examples import examples
from trl_populora.evolution.factors import (
    cayley,
    cosine,
    delta_norm,
    effective_rank,
    gram,
    inner,
    orientation,
    spectra,
)
from trl_populora.evolution.gauge import compose
from trl_populora.population.factors import Factor


seeds = st.integers(0, 2**32 - 1)


def identity(n: int) -> torch.Tensor:
    return torch.eye(n, dtype=torch.float64)


def thin(B: torch.Tensor, A: torch.Tensor, scaling: float = 1.0) -> SVD:
    return factor_svd(Factor(A, B, scaling))


@given(seed=seeds, d_out=st.integers(1, 9), d_in=st.integers(1, 9), rank=st.integers(1, 6))
def test_svd_against_the_dense_one(seed, d_out, d_in, rank):
    rng = torch.Generator().manual_seed(seed)
    B = torch.randn(d_out, rank, generator=rng, dtype=torch.float64)
    A = torch.randn(rank, d_in, generator=rng, dtype=torch.float64)
    U, s, V = thin(B, A, 1.5)
    assert (U.shape, s.shape, V.shape) == ((d_out, rank), (rank,), (d_in, rank))
    oracle = torch.linalg.svdvals(1.5 * B @ A)
    k = min(rank, d_out, d_in)
    if oracle[k - 1] > 1e-4 * oracle[0]:
        torch.testing.assert_close(U @ torch.diag(s) @ V.T, 1.5 * B @ A)
        torch.testing.assert_close(U[:, :k].T @ U[:, :k], identity(k), rtol=0, atol=1e-5)
        torch.testing.assert_close(V[:, :k].T @ V[:, :k], identity(k), rtol=0, atol=1e-5)
        torch.testing.assert_close(s[:k], oracle[:k])
    assert (s[k:] == 0).all() and (U[:, k:] == 0).all() and (V[:, k:] == 0).all()


def spread(exponents: torch.Tensor, *, gauge: float, dtype: torch.dtype) -> Factor:
    """Factors of 300 x 200 with singular values 10 ** exponents, in a gauge of that spread."""
    rng = torch.Generator().manual_seed(0)
    r = len(exponents)
    U, V, W = (torch.linalg.qr(torch.randn(d, r, generator=rng, dtype=torch.float64))[0] for d in (300, 200, r))
    g = torch.logspace(0, math.log10(gauge), r, dtype=torch.float64)
    s = 10.0**exponents
    return Factor((W.T / g @ (V * s.sqrt()).T).to(dtype), (U * s.sqrt() @ (g.unsqueeze(-1) * W)).to(dtype), 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gauge", [1.0, 100.0])
def test_stated_accuracy_of_singular_values(gauge, dtype):
    factor = spread(torch.linspace(0, -6, 16, dtype=torch.float64), gauge=gauge, dtype=dtype)
    B, A = factor.B.double(), factor.A.double()
    oracle = torch.linalg.svdvals(B @ A)[:16]
    c = float((B.norm(dim=0) * A.norm(dim=1)).sum())
    error = (spectra([{"": factor}])[""].s - oracle).abs() / oracle
    assert (error <= 1e-15 * (c / oracle) ** 2 + 1e-14).all()
    U, s, V = factor_svd(factor)
    assert float(((U.double() * s) @ V.double().T - B @ A).norm()) <= 3e-7 * c


def test_what_lies_below_resolution_counts_as_zero():
    factor = spread(torch.tensor([0.0, -2, -9, -12], dtype=torch.float64), gauge=1.0, dtype=torch.float64)
    assert (spectra([{"": factor}])[""].s > 0).tolist() == [True, True, False, False]


def test_one_batch_serves_matrices_of_all_shapes_and_ranks():
    rng = torch.Generator().manual_seed(0)
    other = Factor(torch.randn(2, 9, generator=rng), torch.randn(3, 2, generator=rng), 0.5)
    factors = make_factors(0) | {"other": other}
    together = spectra([factors])
    assert list(together) == list(factors)
    for path, factor in factors.items():
        torch.testing.assert_close(together[path].s, spectra([{path: factor}])[path].s)
        left, s, right, _ = (X.float() for X in together[path])
        torch.testing.assert_close(factor.B @ left * s @ right @ factor.A, delta(factor).float(), rtol=1e-5, atol=1e-4)


def test_gram_of_many_rows():
    rng = torch.Generator().manual_seed(0)
    X, Y = torch.randn(2500, 3, generator=rng), torch.randn(2500, 2, generator=rng)
    dense = torch.cat([X, Y], dim=1).double()
    for blocks in ([X, Y], [X.T.contiguous().T, Y.T.contiguous().T]):
        torch.testing.assert_close(gram(blocks), dense.T @ dense, rtol=1e-13, atol=1e-12)


def oriented(factor: Factor) -> SVD:
    sign = orientation(factor, spectra([{"": factor}])[""])
    U, s, V = factor_svd(factor)
    return SVD(U * sign, s, V * sign)


@examples(30)
@given(seed=seeds)
def test_svd_does_not_see_the_gauge(seed):
    factors = make_factors(seed, dtype=torch.float64)
    for path, other in regauge(factors, seed + 1).items():
        (U, s, V), (U2, s2, V2) = oriented(factors[path]), oriented(other)
        torch.testing.assert_close(s, s2, rtol=1e-6, atol=1e-6)
        if ((s[:-1] - s[1:]) > 0.01 * s[0]).all():
            torch.testing.assert_close(U, U2, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(V, V2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero", ["A", "B", "both"])
def test_exact_zeros(zero):
    factor = make_factors(0)["head"]
    A = factor.A * 0 if zero != "B" else factor.A
    B = factor.B * 0 if zero != "A" else factor.B
    U, s, V = thin(B, A)
    assert not any(X.any() for X in (U, s, V))
    dead = {"head": Factor(A, B, 1.0)}
    assert (delta_norm(dead), cosine(dead, dead), float(effective_rank(s))) == (0, 0, 0)


def test_rank_deficient_components_are_exactly_zero():
    factors = make_factors(0)
    for path, spectrum in spectra([factors, factors], [0.5, 0.5]).items():
        k = min(4, *delta(factors[path]).shape)
        assert (spectrum.s > 0).tolist() == [True] * k + [False] * (8 - k)
        torch.testing.assert_close(spectrum.s[:k], torch.linalg.svdvals(delta(factors[path]))[:k])


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_scales(scale):
    factors = {path: Factor(A * scale, B * scale, c) for path, (A, B, c) in make_factors(3).items()}
    for factor in factors.values():
        U, s, V = factor_svd(factor)
        dense = delta(factor) / scale**2
        torch.testing.assert_close((U.double() * s) @ V.double().T / scale**2, dense, rtol=1e-5, atol=1e-5)
        again = Factor(torch.empty_like(factor.A), torch.empty_like(factor.B), factor.scaling)
        compose([factor], spectra([{"": factor}])[""], out=again, seed=0)
        torch.testing.assert_close(delta(again) / scale**2, dense, rtol=1e-5, atol=1e-5)
    assert math.isfinite(delta_norm(factors)) and delta_norm(factors) > 0
    assert cosine(factors, factors) == pytest.approx(1)


@given(seed=seeds, a=st.floats(-2, 2), b=st.floats(-2, 2), rank=st.integers(1, 5))
def test_weighted_sum_is_the_best_approximation(seed, a, b, rank):
    first = make_factors(seed, rank=3, scaling=0.5, dtype=torch.float64)["model.layers.2.q_proj"]
    second = make_factors(seed + 1, rank=rank, scaling=4.0, dtype=torch.float64)["model.layers.2.q_proj"]
    dense = a * delta(first) + b * delta(second)
    cut = Factor(torch.empty_like(first.A), torch.empty_like(first.B), first.scaling)
    compose([first, second], spectra([{"": first}, {"": second}], [a, b])[""], out=cut, seed=0)
    U, s, Vh = torch.linalg.svd(dense, full_matrices=False)
    best = U[:, :3] @ torch.diag(s[:3]) @ Vh[:3]
    if len(s) == 3 or s[2] - s[3] > 1e-4 * s[0]:
        scale = float(delta(first).norm() + delta(second).norm())
        torch.testing.assert_close(delta(cut), best, rtol=0, atol=1e-6 * scale)


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
    factors = make_factors(5, rank=rank, dtype=torch.float64)
    for path, (_, s, *_) in spectra([factors]).items():
        factor = factors[path]
        k = min(rank, *delta(factor).shape)
        assert s.shape == (rank,)
        torch.testing.assert_close(s[:k], torch.linalg.svdvals(delta(factor))[:k])
        assert (s[k:] == 0).all()


def test_effective_rank():
    s = torch.tensor([[2.0, 2, 2, 0], [5, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
    assert effective_rank(s).tolist() == pytest.approx([3, 1, 0])


def test_bad_input_is_named():
    factor = make_factors(0)["head"]
    with pytest.raises(ValueError, match="not finite"):
        thin(factor.B * float("nan"), factor.A)
    with pytest.raises(ValueError, match="head"):
        inner({"head": factor}, {"tail": factor})
