"""Small adapters, and the oracle: `dW` formed in float64, which the package never does."""

from typing import NamedTuple

import torch

from trl_populora.evolution.factors import multiply, spectra
from trl_populora.population.factors import Factor, Factors


SHAPES = {
    "model.layers.0.q_proj": (7, 6),
    "model.layers.0.v_proj": (3, 6),
    "model.layers.1.q_proj": (7, 6),
    "model.layers.2.q_proj": (5, 9),
    "head": (4, 8),
}


def make_factors(
    seed: int, *, rank: int = 4, dtype=torch.float32, scaling: float = 2.0, fresh: bool = False
) -> Factors:
    rng = torch.Generator().manual_seed(seed)
    factors = {}
    for path, (d_out, d_in) in SHAPES.items():
        A = torch.randn(rank, d_in, generator=rng, dtype=torch.float64)
        B = torch.randn(d_out, rank, generator=rng, dtype=torch.float64) * (0 if fresh else 1)
        factors[path] = Factor(A.to(dtype), B.to(dtype), scaling)
    return factors


def delta(factor: Factor) -> torch.Tensor:
    return factor.scaling * factor.B.double() @ factor.A.double()


def regauge(factors: Factors, seed: int) -> Factors:
    """(B R, R^-1 A) with a well-conditioned R: other factors of the same update."""
    rng = torch.Generator().manual_seed(seed)
    result = {}
    for path, (A, B, scaling) in factors.items():
        R, _ = torch.linalg.qr(torch.randn(A.shape[0], A.shape[0], generator=rng, dtype=torch.float64))
        R = R * (0.5 + torch.rand(A.shape[0], generator=rng, dtype=torch.float64))
        result[path] = Factor(torch.linalg.solve(R, A.double()).to(A.dtype), (B.double() @ R).to(B.dtype), scaling)
    return result


def assert_same_delta(first: Factors, second: Factors, *, tolerance: float = 1e-5) -> None:
    assert list(first) == list(second)
    for path in first:
        a, b = delta(first[path]), delta(second[path])
        scale = max(float(a.abs().max()), float(b.abs().max()))
        assert float((a - b).abs().max()) <= tolerance * scale, path


def assert_same_bits(first: Factors, second: Factors) -> None:
    assert list(first) == list(second)
    for path in first:
        assert torch.equal(first[path].A, second[path].A) and torch.equal(first[path].B, second[path].B), path
        assert first[path].scaling == second[path].scaling


class SVD(NamedTuple):
    """Thin singular value decomposition `U diag(s) V^T`, components in falling order, 0 where s is 0."""

    U: torch.Tensor
    s: torch.Tensor
    V: torch.Tensor


def factor_svd(factor: Factor) -> SVD:
    """Singular vectors and values of one adapted matrix's `dW`, as its spectrum's maps make them."""
    spectrum = spectra([{"": factor}])[""]
    wide = torch.promote_types(factor.A.dtype, torch.float32)
    U, V = (torch.empty_like(X, dtype=wide) for X in (factor.B, factor.A.mT))
    multiply([factor.B], spectrum.left, out=U)
    multiply([factor.A.mT], spectrum.right.mT, out=V)
    return SVD(U, spectrum.s, V)
