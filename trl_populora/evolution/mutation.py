"""Mutations: pure functions from one parent's factors to a child's.

Every operator has the form `(parents, rng, *, strength) -> Factors`. The child has its parent's rank, dtype, device
and scaling and shares no memory with it. All numbers are drawn on the CPU from the caller's generator, in the sorted
order of module paths: the same seed gives the same child on any device. Strength 0 leaves `dW` as it is.

Names and default strengths follow the public reimplementation of PopuLoRA's operators; where their text leaves
something open, the docstring says what was chosen.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from trl_populora.population.factors import Factor, Factors

from .algebra import SVD, cayley, factor_svd, refactor
from .inheritance import common_paths, in_order_of, initial_A, initial_bound, layer_of


def svd_structured(parents: Sequence[Factors], rng: torch.Generator, *, eps: float = 0.1) -> Factors:
    """M1: stretches and turns the singular components, `dW' = (U R_u) diag(s exp(eps z)) (V R_v)^T`.

    z is standard normal and R is the Cayley rotation of a random skew matrix whose entries have standard deviation
    eps / sqrt(r - 1): it turns every singular vector by about eps radians at any rank (our choice of norm).

    Space: `dW`, invariant to the gauge (for equal singular values only in distribution). Invariants: row and column
    space of `dW`; its singular values are those of the parent times exp(eps z). A fresh adapter stays at `dW = 0`.

    Args:
        eps (`float`, *optional*, defaults to `0.1`): Log-scale of the stretch and angle of the turn, at least 0.
    """
    _check(eps >= 0, f"eps must be at least 0, got {eps}.")

    def mutate(factor: Factor) -> Factor:
        U, s, V = factor_svd(factor)
        z, R_u, R_v = (draw.to(s.device) for draw in _turn(s.shape[0], eps, rng))
        return refactor(SVD(U @ R_u, s * torch.exp(eps * z), V @ R_v), like=factor, spare=initial_A(factor, rng))

    return _each(parents, mutate)


def layer_gaussian(
    parents: Sequence[Factors], rng: torch.Generator, *, eps: float = 0.1, fraction: float = 0.33
) -> Factors:
    """M2: `X' = X + eps std(X) N(0, 1)` for both factors X of every matrix in ceil(fraction L) random layers of L.

    Space: factors, not invariant to the gauge. Invariants: the other layers, bit for bit. A constant factor (B = 0 of
    a fresh adapter) has no scale of its own and takes that of LoRA's initial A, 1 / sqrt(3 d_in).

    Args:
        eps (`float`, *optional*, defaults to `0.1`): Noise relative to the factor's standard deviation, at least 0.
        fraction (`float`, *optional*, defaults to `0.33`): Share of transformer blocks that mutate, in [0, 1].
    """
    _check(eps >= 0, f"eps must be at least 0, got {eps}.")
    _check(0 <= fraction <= 1, f"fraction lies in [0, 1], got {fraction}.")
    layers = sorted({layer_of(path) for path in common_paths(parents)})
    count = _share(fraction, len(layers))
    chosen = {layers[i] for i in torch.randperm(len(layers), generator=rng)[:count].tolist()}
    return _add_gaussian(parents, rng, eps=eps, layers=chosen)


def component_masking(parents: Sequence[Factors], rng: torch.Generator, *, rho: float = 0.3) -> Factors:
    """M3: sets ceil(rho r) random singular components of every `dW` to 0 and frees their directions.

    A freed direction gets a row of A at LoRA's init scale and a zero column of B, so that it can learn again.

    Space: `dW`, invariant to the gauge. Invariants: the surviving components.

    Args:
        rho (`float`, *optional*, defaults to `0.3`): Share of components that are dropped, in [0, 1].
    """
    _check(0 <= rho <= 1, f"rho lies in [0, 1], got {rho}.")

    def mutate(factor: Factor) -> Factor:
        U, s, V = factor_svd(factor)
        dropped = torch.randperm(s.shape[0], generator=rng)[: _share(rho, s.shape[0])]
        s = s.index_fill(0, dropped.to(s.device), 0.0)
        return refactor(SVD(U, s, V), like=factor, spare=initial_A(factor, rng))

    return _each(parents, mutate)


def gaussian(parents: Sequence[Factors], rng: torch.Generator, *, eps: float = 0.15) -> Factors:
    """M4: `X' = X + eps std(X) N(0, 1)` for both factors X of every adapted matrix.

    Space: factors, not invariant to the gauge. A constant factor takes LoRA's init scale, as in `layer_gaussian`.

    Args:
        eps (`float`, *optional*, defaults to `0.15`): Noise relative to the factor's standard deviation, at least 0.
    """
    _check(eps >= 0, f"eps must be at least 0, got {eps}.")
    return _add_gaussian(parents, rng, eps=eps, layers={layer_of(path) for path in common_paths(parents)})


def neftune(parents: Sequence[Factors], rng: torch.Generator, *, alpha_n: float = 10.0) -> Factors:
    """M5: `A' = A + U(-b, b)` with `b = alpha_n / sqrt(numel(A))`; B stays.

    The noise of NEFTune (Jain et al., 2023) on the down projection. Its bound is alpha_n / sqrt(r) times that of
    LoRA's init, so the default is strong at small ranks.

    Space: factors, not invariant to the gauge. Invariants: B, bit for bit; hence the column space of `dW`, and
    `dW = 0` of a fresh adapter.

    Args:
        alpha_n (`float`, *optional*, defaults to `10.0`): Strength, at least 0.
    """
    _check(alpha_n >= 0, f"alpha_n must be at least 0, got {alpha_n}.")

    def mutate(factor: Factor) -> Factor:
        bound = alpha_n / math.sqrt(factor.A.numel())
        noise = (2 * torch.rand(factor.A.shape, generator=rng) - 1) * bound
        return Factor(_plus(factor.A, noise), factor.B.clone(), factor.scaling)

    return _each(parents, mutate)


def clone(parents: Sequence[Factors], rng: torch.Generator) -> Factors:
    """An exact copy of parent 1, bit for bit; draws nothing."""
    return _each(parents, lambda factor: Factor(factor.A.clone(), factor.B.clone(), factor.scaling))


def _each(parents: Sequence[Factors], mutate: Callable[[Factor], Factor]) -> Factors:
    """Applies a function of one matrix to all matrices of parent 1, in sorted order."""
    return in_order_of(parents[0], {path: mutate(parents[0][path]) for path in common_paths(parents)})


def _turn(rank: int, eps: float, rng: torch.Generator) -> Iterator[Tensor]:
    """Draws of M1 for one matrix: z of shape `(r,)` and two rotations of shape `(r, r)`, float64."""
    yield torch.randn(rank, generator=rng, dtype=torch.float64)
    for _ in range(2):
        G = torch.randn(rank, rank, generator=rng, dtype=torch.float64)
        yield cayley(eps * (G - G.T) / math.sqrt(2 * max(rank - 1, 1)))


def _add_gaussian(parents: Sequence[Factors], rng: torch.Generator, *, eps: float, layers: set[str]) -> Factors:
    child = {}
    for path in common_paths(parents):
        factor = parents[0][path]
        if layer_of(path) in layers:
            A, B = (_plus(X, eps * _scale(X, factor) * torch.randn(X.shape, generator=rng)) for X in factor[:2])
            child[path] = Factor(A, B, factor.scaling)
        else:
            child[path] = Factor(factor.A.clone(), factor.B.clone(), factor.scaling)
    return in_order_of(parents[0], child)


def _scale(X: Tensor, factor: Factor) -> float:
    """Standard deviation of a factor's entries, or that of LoRA's initial A for a constant factor."""
    std = float(X.double().std(correction=0))
    return std if std > 0 else initial_bound(factor) / math.sqrt(3)


def _plus(X: Tensor, noise: Tensor) -> Tensor:
    """X + noise in at least float32, in the dtype of X."""
    return (X.to(torch.promote_types(X.dtype, torch.float32)) + noise.to(X.device)).to(X.dtype)


def _share(fraction: float, total: int) -> int:
    """ceil(fraction * total), not raised by rounding noise in the product."""
    return math.ceil(fraction * total - 1e-9)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
