"""Crossovers: pure functions from several parents' factors, best first, to a child's.

The form and the promises are those of `mutation`. The child has the rank, dtype, device and scaling of parent 1. Where
parents differ in scaling, `dW` is what counts: a parent's `B` is multiplied by `its scaling / the child's scaling`
before factors are mixed, and operators on `dW` carry the scaling in the singular values.
"""

from collections.abc import Sequence

import torch

from trl_populora.population.factors import Factor, Factors

from .algebra import factor_svd, refactor, thin_svd, weighted_sum
from .inheritance import adopt, common_paths, in_order_of, initial_A, layer_of


def dare(parents: Sequence[Factors], rng: torch.Generator, *, p: float = 0.7) -> Factors:
    """X1: `X' = mean_i (m_i * X_i) / (1 - p)` for both factors X, each entry of m_i kept with probability 1 - p.

    Drop and rescale (DARE, Yu et al., 2023), then average. E[X'] is the mean of the parents' factors.

    Space: factors, not invariant to the gauge: it presumes parents with a common ancestor, whose factors still
    correspond. With p = 0 and one parent twice it is that parent.

    Args:
        p (`float`, *optional*, defaults to `0.7`): Probability that an entry is dropped, in [0, 1).

    Raises:
        ValueError: If the parents differ in rank: their rows do not correspond.
    """
    if not 0 <= p < 1:
        raise ValueError(f"p is a probability below 1, got {p}.")
    paths = common_paths(parents, at_least=2)

    def cross(path: str) -> Factor:
        like = parents[0][path]
        ranks = {parent[path].A.shape[0] for parent in parents}
        if len(ranks) > 1:
            raise ValueError(f"dare needs parents of equal rank, got ranks {sorted(ranks)} at {path}.")
        total_A = torch.zeros_like(like.A, dtype=torch.float64)
        total_B = torch.zeros_like(like.B, dtype=torch.float64)
        for parent in parents:
            A, B, scaling = parent[path]
            for total, X, ratio in ((total_A, A, 1.0), (total_B, B, scaling / like.scaling)):
                kept = torch.rand(X.shape, generator=rng) >= p
                total += torch.where(kept.to(total.device), X.to(total) * ratio, 0.0) / (1 - p)
        n = len(parents)
        return Factor((total_A / n).to(like.A.dtype), (total_B / n).to(like.B.dtype), like.scaling)

    return in_order_of(parents[0], {path: cross(path) for path in paths})


def layerwise(parents: Sequence[Factors], rng: torch.Generator) -> Factors:
    """X2: every layer whole from a random parent, `dW'_l = dW_{i(l), l}` with i(l) uniform.

    A layer is a transformer block, so that matrices that were trained together stay together (our choice).

    Space: layers; copies of `dW`, hence invariant to the gauge. With one parent twice it is that parent.
    """
    paths = common_paths(parents, at_least=2)
    layers = sorted({layer_of(path) for path in paths})
    donor = dict(zip(layers, torch.randint(len(parents), (len(layers),), generator=rng).tolist(), strict=True))
    child = {path: adopt(parents[donor[layer_of(path)]][path], like=parents[0][path], rng=rng) for path in paths}
    return in_order_of(parents[0], child)


def svd_subspace(parents: Sequence[Factors], rng: torch.Generator) -> Factors:
    """X3: `dW' = sum_{i <= j} s1_i u1_i v1_i^T + sum_{j < i <= r} s2_i u2_i v2_i^T`, then refactored.

    The first j components of parent 1 and those numbered j + 1 to r of parent 2, with j uniform in 1..r-1, one draw
    for the whole child (our choice; at rank 1 the child is parent 1).

    Space: `dW`, invariant to the gauge. Invariants: exactly the chosen components, nothing is truncated. With one
    parent twice it is that parent.
    """
    paths = common_paths(parents, at_least=2)
    share = float(torch.rand((), generator=rng, dtype=torch.float64))

    def cross(path: str) -> Factor:
        like = parents[0][path]
        first, second = (factor_svd(parent[path]) for parent in parents[:2])
        r = min(like.A.shape[0], *like.B.shape[:1], *like.A.shape[1:])
        j = min(1 + int(share * (r - 1)), max(r - 1, 1))
        U = torch.cat([first.U[:, :j], second.U[:, j:r].to(first.U.device)], dim=1)
        s = torch.cat([first.s[:j], second.s[j:r].to(first.s.device)])
        V = torch.cat([first.V[:, :j], second.V[:, j:r].to(first.V.device)], dim=1)
        root = torch.sqrt(s)
        return refactor(thin_svd(U * root, (V * root).mT), like=like, spare=initial_A(like, rng))

    return in_order_of(parents[0], {path: cross(path) for path in paths})


def extrapolative(
    parents: Sequence[Factors], rng: torch.Generator, *, eta_min: float = 1.0, eta_max: float = 1.5
) -> Factors:
    """X4: `dW' = dW_worse + eta (dW_better - dW_worse)`, cut to rank r; parent 1 is the better one.

    One eta ~ U[eta_min, eta_max] for the whole child. eta = 1 is the better parent, eta = 0 the worse.

    Space: `dW`, invariant to the gauge; the nearest matrix of rank r. With one parent twice it is that parent.

    Args:
        eta_min, eta_max (`float`, *optional*, default to `1.0` and `1.5`): Range of eta.
    """
    if not eta_min <= eta_max:
        raise ValueError(f"eta_min must not exceed eta_max, got {eta_min} and {eta_max}.")
    common_paths(parents, at_least=2)
    eta = eta_min + (eta_max - eta_min) * float(torch.rand((), generator=rng, dtype=torch.float64))
    return _combine(parents[:2], [eta, 1 - eta], rng)


def average(parents: Sequence[Factors], rng: torch.Generator) -> Factors:
    """`dW' = mean_i dW_i`, cut to rank r.

    Space: `dW`, invariant to the gauge; the nearest matrix of rank r. With one parent twice it is that parent.
    """
    return _combine(parents, [1 / len(parents)] * len(parents), rng)


def _combine(parents: Sequence[Factors], weights: Sequence[float], rng: torch.Generator) -> Factors:
    """Weighted sum of the parents' updates, truncated to the rank of parent 1."""

    def cross(path: str) -> Factor:
        like = parents[0][path]
        svd = weighted_sum([parent[path] for parent in parents], weights)
        return refactor(svd, like=like, spare=initial_A(like, rng))

    return in_order_of(parents[0], {path: cross(path) for path in common_paths(parents)})
