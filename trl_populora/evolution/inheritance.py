"""What all operators share: which parents fit together, in what order matrices are visited, and LoRA's init scale.

The operators themselves are in `mutation` and `crossover`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trl_populora.population.factors import Factor, Factors

from .algebra import factor_svd, refactor


def common_paths(parents: Sequence[Factors], *, at_least: int = 1) -> list[str]:
    """Module paths in sorted order: random numbers are drawn in it, so that no dict's order matters.

    Raises:
        ValueError: If there are too few parents, or they adapt different matrices.
    """
    if len(parents) < at_least:
        raise ValueError(f"The operator needs {at_least} parents, got {len(parents)}.")
    for parent in parents[1:]:
        if parent.keys() != parents[0].keys():
            raise ValueError(f"Parents adapt different matrices: {sorted(parent.keys() ^ parents[0].keys())[:4]}.")
        for path, factor in parent.items():
            sizes, expected = _sizes(factor), _sizes(parents[0][path])
            if sizes != expected:
                raise ValueError(f"Parents adapt matrices of other sizes at {path}: {sizes} and {expected}.")
    return sorted(parents[0])


def layer_of(path: str) -> str:
    """Layer that an adapted matrix belongs to: the path up to its first number, or the whole path if it has none.

    All matrices of one transformer block are one layer (our choice): they were trained to work together.
    """
    parts = path.split(".")
    for end, part in enumerate(parts, start=1):
        if part.isdigit():
            return ".".join(parts[:end])
    return path


def initial_bound(factor: Factor) -> float:
    """LoRA's init scale: PEFT draws `A` from U(-b, b) with b = 1 / sqrt(d_in) (Kaiming uniform with a = sqrt 5)."""
    return 1 / math.sqrt(factor.A.shape[1])


def initial_A(factor: Factor, rng: torch.Generator) -> Tensor:
    """A fresh draw of `A`, float32 on CPU."""
    return (2 * torch.rand(factor.A.shape, generator=rng) - 1) * initial_bound(factor)


def in_order_of(parent: Factors, child: Factors) -> Factors:
    """The child with the parent's order of matrices."""
    return {path: child[path] for path in parent}


def adopt(factor: Factor, *, like: Factor, rng: torch.Generator) -> Factor:
    """A copy with the same `dW` and the rank, scaling, dtype and device of `like`.

    Exact where only dtype and device change; where scalings differ, `B` takes up their ratio; where ranks differ, the
    update is refactored, and truncated if it has to be.
    """
    if factor.A.shape[0] != like.A.shape[0]:
        moved = Factor(factor.A.to(like.A.device), factor.B.to(like.B.device), factor.scaling)
        return refactor(factor_svd(moved), like=like, spare=initial_A(like, rng))
    B = factor.B
    if factor.scaling != like.scaling:
        B = B.double() * (factor.scaling / like.scaling)
    return Factor(factor.A.to(like.A, copy=True), B.to(like.B, copy=True), like.scaling)


def _sizes(factor: Factor) -> tuple[int, int]:
    return factor.B.shape[0], factor.A.shape[1]
