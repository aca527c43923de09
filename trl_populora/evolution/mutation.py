"""Mutations: pure functions from one parent's factors to a child's.

Every operator has the signature `(parents, rng, *, strength) -> Factors`. The child has its parent's rank, dtype,
device and scaling, and its own memory. Parents are only read. All random numbers are drawn on the CPU from the
caller's generator, in the sorted order of module paths, so the same seed gives the same child on any device. Strength
0 does not change `dW`.

Names and default strengths follow the public reimplementation of PopuLoRA's operators. If that leaves a question open,
the docstring says what we chose. docs/operators.md has a section for each operator.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trl_populora.population.factors import Factor, Factors

from .factors import Spectrum, cayley, orientation, spectra
from .gauge import compose, initial_bound
from .inheritance import add_noise, common_paths, copy_update, draw_seed, layer_of, scratch_for, storage


def svd_structured(parents: Sequence[Factors], rng: torch.Generator, *, eps: float = 0.1) -> Factors:
    """M1: scales and rotates the singular components, `dW' = (U R_u) diag(s exp(eps z)) (V R_v)^T`.

    z is standard normal. R is the Cayley rotation of a random skew-symmetric matrix whose entries have standard
    deviation eps / sqrt(n - 1) for n components. It rotates every singular vector by about eps radians, for any n (our
    choice). Only components with s > 0 are rotated into each other.

    Space: `dW`, invariant to the gauge (for equal singular values only in distribution). Invariants: row and column
    space of `dW`; its singular values are those of the parent times exp(eps z). A fresh adapter stays at `dW = 0`.

    Args:
        eps (`float`, *optional*, defaults to `0.1`): Log-scale of the scaling and angle of the rotation, at least 0.
    """
    _check(eps >= 0, f"eps must be at least 0, got {eps}.")
    paths, child, seed = common_paths(parents), storage(parents[0]), draw_seed(rng)
    old = spectra(parents[:1])
    for number, path in enumerate(paths):
        factor, (left, s, right, G_A) = parents[0][path], old[path]
        stretch, K = _draw_turn(s, eps, rng)
        R_u, R_v = cayley(K)
        sign = orientation(factor, old[path])
        new = Spectrum(left * sign @ R_u, s * stretch, R_v.mT @ (sign.unsqueeze(-1) * right), G_A)
        compose([factor], new, out=child[path], seed=seed + number)
    return child


def layer_gaussian(
    parents: Sequence[Factors],
    rng: torch.Generator,
    *,
    eps: float = 0.1,
    fraction: float = 0.33,
) -> Factors:
    """M2: `X' = X + eps std(X) N(0, 1)` for both factors X of every matrix in ceil(fraction L) random layers of L.

    Space: factors, not invariant to the gauge. Invariants: the other layers stay bit-identical. If B = 0, as in a
    fresh adapter, B and `dW` stay 0. If A is constant, the scale of LoRA's initial A is used, 1 / sqrt(3 d_in).

    Args:
        eps (`float`, *optional*, defaults to `0.1`): Noise relative to the factor's standard deviation, at least 0.
        fraction (`float`, *optional*, defaults to `0.33`): Share of transformer blocks that mutate, in [0, 1].
    """
    _check(0 <= fraction <= 1, f"fraction lies in [0, 1], got {fraction}.")
    layers = sorted({layer_of(path) for path in common_paths(parents)})
    count = _share(fraction, len(layers))
    chosen = {layers[i] for i in torch.randperm(len(layers), generator=rng)[:count].tolist()}
    return _add_gaussian(parents, rng, eps=eps, layers=chosen)


def component_masking(parents: Sequence[Factors], rng: torch.Generator, *, rho: float = 0.05) -> Factors:
    """M3: sets ceil(rho k) random singular components of every `dW` to 0, out of k = min(r, d_out, d_in).

    Along these directions of the latent space, B is 0 and A is drawn again at LoRA's init scale, so that they can
    learn again.

    Space: `dW`, invariant to the gauge. Invariants: the other components.

    Args:
        rho (`float`, *optional*, defaults to `0.05`): Share of components that are dropped, in [0, 1].
    """
    _check(0 <= rho <= 1, f"rho lies in [0, 1], got {rho}.")
    paths, child, seed = common_paths(parents), storage(parents[0]), draw_seed(rng)
    parent = parents[0]
    old = spectra(parents[:1])
    for number, path in enumerate(paths):
        k = min(*parent[path].A.shape, parent[path].B.shape[0])
        dropped = torch.randperm(k, generator=rng)[: _share(rho, k)]
        compose([parent[path]], old[path], out=child[path], seed=seed + number, dropped=dropped)
    return child


def gaussian(parents: Sequence[Factors], rng: torch.Generator, *, eps: float = 0.15) -> Factors:
    """M4: `X' = X + eps std(X) N(0, 1)` for both factors X of every adapted matrix.

    Space: factors, not invariant to the gauge. B = 0 stays 0, and LoRA's init scale is used for a constant A, as in
    `layer_gaussian`.

    Args:
        eps (`float`, *optional*, defaults to `0.15`): Noise relative to the factor's standard deviation, at least 0.
    """
    return _add_gaussian(parents, rng, eps=eps, layers={layer_of(path) for path in common_paths(parents)})


def neftune(
    parents: Sequence[Factors],
    rng: torch.Generator,
    *,
    eps: float = 0.3,
    alpha_n: float | None = None,
) -> Factors:
    """M5: `A' = A + U(-b, b)` with `b = eps sqrt(3) std(A)`. B does not change.

    This is the noise of NEFTune (Jain et al., 2023) on the down projection. Its standard deviation is eps times that
    of A (our choice). At LoRA's init scale, b is eps times the bound of the init. The reimplementation's bound is
    alpha_n / sqrt(numel(A)) with alpha_n = 10. This is alpha_n / sqrt(r) times the bound of the init, which destroys
    the parent at small ranks. Set `alpha_n` to use it.

    Space: factors, not invariant to the gauge. Invariants: B stays bit-identical. So the column space of `dW` does not
    change, and a fresh adapter stays at `dW = 0`.

    Args:
        eps (`float`, *optional*, defaults to `0.3`): Noise relative to A's standard deviation, at least 0.
        alpha_n (`float`, *optional*): Strength of the absolute bound, used instead of `eps`, at least 0.
    """
    _check(eps >= 0, f"eps must be at least 0, got {eps}.")
    _check(alpha_n is None or alpha_n >= 0, f"alpha_n must be at least 0, got {alpha_n}.")
    child = storage(parents[0])
    for path in common_paths(parents):
        factor, own = parents[0][path], child[path]
        if alpha_n is None:
            bound = eps * math.sqrt(3) * _scale_of_A(factor)
        else:
            bound = alpha_n / math.sqrt(factor.A.numel())
        add_noise(factor.A, scratch_for(own.A).uniform_(-1, 1, generator=rng), scale=bound, out=own.A)
        own.B.copy_(factor.B)
    return child


def clone(parents: Sequence[Factors], rng: torch.Generator) -> Factors:
    """A bit-identical copy of parent 1. Uses no random numbers."""
    child = storage(parents[0])
    for path in common_paths(parents):
        copy_update(parents[0][path], out=child[path], seed=0)
    return child


def _draw_turn(s: Tensor, eps: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws of M1 for one matrix: factors of s, `(r,)`, and two skew matrices, `(2, r, r)`, among components s > 0."""
    alive = (s > 0).double()
    z = torch.randn(s.shape, generator=rng, dtype=torch.float64)
    G = torch.randn(2, *s.shape, *s.shape, generator=rng, dtype=torch.float64) * alive * alive.unsqueeze(-1)
    return torch.exp(eps * z), eps * (G - G.mT) / math.sqrt(2 * max(float(alive.sum()) - 1, 1))


def _add_gaussian(parents: Sequence[Factors], rng: torch.Generator, *, eps: float, layers: set[str]) -> Factors:
    _check(eps >= 0, f"eps must be at least 0, got {eps}.")
    child = storage(parents[0])
    for path in common_paths(parents):
        factor, own = parents[0][path], child[path]
        if layer_of(path) in layers:
            for X, Y, scale in zip(factor[:2], own[:2], (_scale_of_A(factor), _std(factor.B))):
                add_noise(X, scratch_for(Y).normal_(generator=rng), scale=eps * scale, out=Y)
        else:
            copy_update(factor, out=own, seed=0)
    return child


def _scale_of_A(factor: Factor) -> float:
    """Standard deviation of A's entries, or that of LoRA's initial A if A is constant."""
    return _std(factor.A) or initial_bound(factor) / math.sqrt(3)


def _std(X: Tensor) -> float:
    """Standard deviation of a factor's entries."""
    wide = X if X.dtype == torch.float32 and X.device.type == "cpu" else X.double()  # both sum up in float64
    return float(wide.std(correction=0))


def _share(fraction: float, total: int) -> int:
    """ceil(fraction * total), not raised by rounding noise in the product."""
    return math.ceil(fraction * total - 1e-9)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
