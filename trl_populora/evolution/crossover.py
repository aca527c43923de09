"""Crossovers: pure functions from several parents' factors, best first, to a child's.

Signatures and guarantees are those of `mutation`. The child has the rank, dtype, device and scaling of parent 1.
Parents may differ in scaling. Before factors are mixed, a parent's `B` is multiplied by `its scaling / the child's
scaling`. Operators on `dW` include the scaling in the singular values.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trl_populora.population.factors import Factors

from .factors import Spectrum, spectra
from .gauge import align, compose
from .inheritance import common_paths, copy_update, draw_seed, layer_of, storage


SPACES = ("delta", "factors")


def dare(
    parents: Sequence[Factors],
    rng: torch.Generator,
    *,
    p: float = 0.7,
    space: str = "delta",
) -> Factors:
    """X1: `dW' = mean_i c (m_i * B_i) A_i / (1 - p)`, cut to rank r; entries of m_i are kept with probability 1 - p.

    Drop and rescale (DARE, Yu et al., 2023), then average. Entries are dropped only in B, so the expectation before
    the cut to rank r is the mean of the parents' updates (our choice). In the space of factors, parents 2, 3, ... are
    first aligned to parent 1. Then entries of A and of B are dropped and both are averaged, as in the
    reimplementation. The expectation of each factor is the mean of the aligned parents'. In measurements, this keeps
    less of either parent (docs/operators.md).

    Space: `dW`, but the gauge affects which entries of B are dropped. With p = 0 it is `average`.

    Args:
        p (`float`, *optional*, defaults to `0.7`): Probability that an entry is dropped, in [0, 1).
        space (`str`, *optional*, defaults to `"delta"`): `"delta"` or `"factors"`.

    Raises:
        ValueError: If factors are mixed and the parents differ in rank.
    """
    if not 0 <= p < 1:
        raise ValueError(f"p is a probability below 1, got {p}.")
    paths, weights = common_paths(parents, at_least=2), [1 / (len(parents) * (1 - p))] * len(parents)

    def drop(X: Tensor) -> Tensor:
        mask = torch.empty(X.shape).uniform_(generator=rng).ge_(p)
        return mask.to(X.device, X.dtype).mul_(X)

    if space == "factors":
        return _mix("dare", parents, weights, drop=drop)
    thinned = []
    for parent in parents:
        B = {path: drop(parent[path].B) for path in paths}
        thinned.append({path: factor._replace(B=B[path]) for path, factor in parent.items()})
    return _combine("dare", thinned, weights, rng, space=space)


def layerwise(parents: Sequence[Factors], rng: torch.Generator) -> Factors:
    """X2: every layer is copied from a random parent, `dW'_l = dW_{i(l), l}` with i(l) uniform.

    A layer is a transformer block, so that matrices that were trained together stay together (our choice).

    Space: layers. `dW` is copied, so the result does not depend on the gauge. If both parents are the same, the child
    is that parent.
    """
    paths, child, seed = common_paths(parents, at_least=2), storage(parents[0]), draw_seed(rng)
    layers = sorted({layer_of(path) for path in paths})
    donor = dict(zip(layers, torch.randint(len(parents), (len(layers),), generator=rng).tolist(), strict=True))
    for number, path in enumerate(paths):
        copy_update(parents[donor[layer_of(path)]][path], out=child[path], seed=seed + number)
    return child


def svd_subspace(parents: Sequence[Factors], rng: torch.Generator) -> Factors:
    """X3: `dW' = sum_{i <= j} s1_i u1_i v1_i^T + sum_{j < i <= r} s2_i u2_i v2_i^T`.

    Components 1 to j of parent 1 and components j + 1 to r of parent 2. One j, uniform in 1..r-1, is drawn for the
    whole child (our choice). At rank 1, the child is parent 1.

    Space: `dW`, invariant to the gauge. Invariants: the child has exactly the chosen components; nothing is truncated.
    If both parents are the same, the child is that parent.
    """
    paths, child, seed = common_paths(parents, at_least=2), storage(parents[0]), draw_seed(rng)
    share = float(torch.rand((), generator=rng, dtype=torch.float64))
    first, second = (spectra([parent]) for parent in parents[:2])
    for number, path in enumerate(paths):
        r = min(*child[path].A.shape, child[path].B.shape[0])
        j = min(1 + int(share * (r - 1)), max(r - 1, 1))
        terms, a, b = [parent[path] for parent in parents[:2]], first[path], second[path]
        A = terms[0].A.to(torch.promote_types(child[path].A.dtype, torch.float32))
        cross = (A @ terms[1].A.to(A).mT).cpu().double()  # for the gauge, where float32 is enough
        chosen = Spectrum(
            torch.block_diag(a.left[:, :j], b.left[:, j:r]),
            torch.cat([a.s[:j], b.s[j:r]]),
            torch.block_diag(a.right[:j], b.right[j:r]),
            torch.cat([torch.cat([a.G_A, cross], dim=1), torch.cat([cross.mT, b.G_A], dim=1)]),
        )
        compose(terms, chosen, out=child[path], seed=seed + number)
    return child


def extrapolative(
    parents: Sequence[Factors],
    rng: torch.Generator,
    *,
    eta_min: float = 1.0,
    eta_max: float = 1.5,
    space: str = "delta",
) -> Factors:
    """X4: `dW' = dW_worse + eta (dW_better - dW_worse)`, cut to rank r; parent 1 is the better one.

    One eta ~ U[eta_min, eta_max] is drawn for the whole child. eta = 1 is the better parent, eta = 0 the worse one.

    Space: `dW`, invariant to the gauge; the nearest matrix of rank r. If both parents are the same, the child is that
    parent. In the space of factors, parent 2 is first aligned to parent 1, and the equation is applied to A and B
    separately. This is much cheaper, and suits only parents with a common ancestor.

    Args:
        eta_min, eta_max (`float`, *optional*, default to `1.0` and `1.5`): Range of eta.
        space (`str`, *optional*, defaults to `"delta"`): `"delta"` or `"factors"`.
    """
    if not eta_min <= eta_max:
        raise ValueError(f"eta_min must not exceed eta_max, got {eta_min} and {eta_max}.")
    common_paths(parents, at_least=2)
    eta = eta_min + (eta_max - eta_min) * float(torch.rand((), generator=rng, dtype=torch.float64))
    return _combine("extrapolative", parents[:2], [eta, 1 - eta], rng, space=space)


def average(parents: Sequence[Factors], rng: torch.Generator, *, space: str = "delta") -> Factors:
    """`dW' = mean_i dW_i`, cut to rank r.

    Space: `dW`, invariant to the gauge; the nearest matrix of rank r. If both parents are the same, the child is that
    parent. In the space of factors, the others are first aligned to parent 1, and A and B are averaged, as in `dare`.

    Args:
        space (`str`, *optional*, defaults to `"delta"`): `"delta"` or `"factors"`.
    """
    return _combine("average", parents, [1 / len(parents)] * len(parents), rng, space=space)


def _combine(
    name: str,
    parents: Sequence[Factors],
    weights: Sequence[float],
    rng: torch.Generator,
    *,
    space: str,
) -> Factors:
    """Weighted sum of the parents' updates, truncated to the rank of parent 1, or of their factors."""
    if space not in SPACES:
        raise ValueError(f"space is one of {SPACES}, got {space!r}.")
    if space == "factors":
        return _mix(name, parents, weights)
    paths, child, seed = common_paths(parents), storage(parents[0]), draw_seed(rng)
    mixed = spectra(parents, weights)
    for number, path in enumerate(paths):
        compose([parent[path] for parent in parents], mixed[path], out=child[path], seed=seed + number)
    return child


def _mix(
    name: str,
    parents: Sequence[Factors],
    weights: Sequence[float],
    *,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> Factors:
    """Weighted sum of the parents' factors, aligned to parent 1; B in units of the child's scaling.

    `drop` is applied to each aligned factor first.
    """
    child = storage(parents[0])
    for path in common_paths(parents):
        like = parents[0][path]
        ranks = {parent[path].A.shape[0] for parent in parents}
        if len(ranks) > 1:
            raise ValueError(f"{name} mixes factors of equal rank, got ranks {sorted(ranks)} at {path}.")
        factors = [like, *(align(parent[path], like) for parent in parents[1:])]
        ratios = [w * factor.scaling / like.scaling for w, factor in zip(weights, factors)]
        _weighted_sum([factor.A for factor in factors], weights, out=child[path].A, drop=drop)
        _weighted_sum([factor.B for factor in factors], ratios, out=child[path].B, drop=drop)
    return child


def _weighted_sum(
    terms: Sequence[Tensor], weights: Sequence[float], *, out: Tensor, drop: Callable[[Tensor], Tensor] | None
) -> None:
    wide = torch.promote_types(out.dtype, torch.float32)
    total = out if out.dtype == wide else torch.empty_like(out, dtype=wide)
    for i, (X, weight) in enumerate(zip(terms, weights)):
        X = X.to(out.device, wide)
        X = X if drop is None else drop(X)
        torch.mul(X, weight, out=total) if i == 0 else total.add_(X, alpha=weight)
    if total is not out:
        out.copy_(total)
