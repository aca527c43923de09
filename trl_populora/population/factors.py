"""The genotype of a member: its LoRA factors, one pair per adapted matrix.

This module has the type, its form in files, and a check. Algebra and variation are in `evolution`.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Factor(NamedTuple):
    """LoRA factors of one adapted matrix, with `dW = scaling * B @ A`.

    Attributes:
        A (`torch.Tensor` of shape `(rank, d_in)`): Down projection.
        B (`torch.Tensor` of shape `(d_out, rank)`): Up projection; zero for a fresh adapter.
        scaling (`float`): `alpha / rank`, or `alpha / sqrt(rank)` with rank-stabilised LoRA.
    """

    A: Tensor
    B: Tensor
    scaling: float


Factors = dict[str, Factor]
"""Module path of the adapted matrix -> its factors, in the model's module order."""


def to_tensors(factors: Factors) -> dict[str, Tensor]:
    """Factors under the names that PEFT gives them in files: every A, then every B."""
    return {f"{path}.lora_{side}.weight": getattr(one, side) for side in "AB" for path, one in factors.items()}


def from_tensors(tensors: Mapping[str, Tensor], scalings: Mapping[str, float]) -> Factors:
    """Inverse of [`to_tensors`], with `scalings` by module path. Raises `KeyError` if a tensor is missing."""
    return {
        path: Factor(tensors[f"{path}.lora_A.weight"], tensors[f"{path}.lora_B.weight"], scaling)
        for path, scaling in scalings.items()
    }


def on_cpu(factors: Factors) -> Factors:
    """A copy on the CPU."""
    return {path: Factor(A.detach().cpu().clone(), B.detach().cpu().clone(), s) for path, (A, B, s) in factors.items()}


def not_finite(factors: Factors) -> list[str]:
    """Module paths at which a factor holds NaN or an infinite value, found in one transfer from the device."""
    if not factors:
        return []
    tensors = [X.detach() for factor in factors.values() for X in factor[:2]]
    norms = torch.stack(torch._foreach_norm(tensors, ord=math.inf)).view(-1, 2)
    return [path for path, finite in zip(factors, norms.isfinite().all(1).tolist(), strict=True) if not finite]


def check_fit(name: str, factors: Factors, own: Factors) -> None:
    """Refuses weights that cannot take the place of a member's.

    Raises:
        ValueError: If a module is missing, a shape differs, the scaling differs or a value is not finite.
    """
    if own.keys() != factors.keys():
        raise ValueError(f"Factors for {name!r} cover different modules: {sorted(own.keys() ^ factors.keys())[:4]}.")
    for path, (A, B, scaling) in factors.items():
        target = own[path]
        if A.shape != target.A.shape or B.shape != target.B.shape or scaling != target.scaling:
            raise ValueError(
                f"Factors for {name!r} at {path} have shapes {tuple(A.shape)}, {tuple(B.shape)} and scaling "
                f"{scaling}; the adapter has {tuple(target.A.shape)}, {tuple(target.B.shape)}, {target.scaling}."
            )
    if paths := not_finite(factors):
        raise ValueError(f"Factors for {name!r} at {paths[0]} are not finite; the member is left unchanged.")
