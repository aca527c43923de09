"""Small adapters, and the oracle: `dW` formed in float64, which the package never does."""

import torch

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
