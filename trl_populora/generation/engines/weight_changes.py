"""What the canary has to know of the weight changes of adapters, without their products `B A`."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor

from ...population.factors import Factor, Factors


PIECE = 1 << 24  # numbers whose squares are held at a time
SAME = 0.01
"""Relative difference of two updates that count as the same (our choice). Float32 sums leave about 5e-4."""


def spread(layer: LoraLayer) -> float:
    """Standard deviation of the weight that an adapter changes."""
    weight: Tensor = layer.get_base_layer().get_parameter("weight")  # pyright: ignore
    return weight.float().std().item() if weight.is_floating_point() else 0.02  # 0.02: packed, quantised


def frobenius(ups: Tensor, downs: Tensor) -> float:
    """Frobenius norm of `ups @ downs`, shapes `(out, k)` and `(k, in)`, without the product."""
    ups, downs = ups.detach().float(), downs.detach().float()
    return ((ups.T @ ups) * (downs @ downs.T)).sum().clamp_min(0).sqrt().item()


def alike(one: Factors, other: Factors) -> bool:
    """Whether two adapters have the same update, up to rounding (as members after a recombination)."""
    apart = whole = 0.0
    for path, (A, B, scaling) in one.items():
        C, D, factor = other[path]
        whole += frobenius(scaling * B, A) ** 2
        apart += frobenius(torch.cat([scaling * B, -factor * D], dim=1), torch.cat([A, C])) ** 2
    return apart <= SAME**2 * whole


def changed_outputs(before: Factors, now: Factors, spreads: Mapping[str, float]) -> float:
    """Sum over all outputs of the adapted layers of their relative change between two versions of an adapter.

    The relative change of all outputs of a layer is taken as that of its weight, in the Frobenius norm.

    Args:
        before, now (`Factors`): The two versions.
        spreads (`Mapping[str, float]`): Standard deviation of the base's weight, by layer.
    """
    total = 0.0
    for path, (A, B, scaling) in now.items():
        # (B - B₀) A + B₀ (A - A₀), the change of B A, as one product without cancellation
        downs = torch.cat([A, A - before[path].A]).float()
        ups = torch.cat([B - before[path].B, before[path].B], dim=1).float()
        outputs, inputs = len(B), A.shape[1]
        total += outputs * scaling * frobenius(ups, downs) / (spreads[path] * math.sqrt(outputs * inputs))
    return total


def bit_sums(matrices: Iterable[Tensor]) -> list[int]:
    """Sum of the bits of all numbers, read as integers, and of their squares, modulo 2^64.

    Order, zeros beside the numbers, and the division into matrices do not matter. In these, an engine's copy of an
    adapter differs from PEFT's.
    """
    parts = [matrix.detach().reshape(-1) for matrix in matrices]
    if len(parts) > 1 and parts[0].is_cuda:  # a few kernels for an adapter, and not a few for each of its matrices
        parts = [torch.cat(parts)]
    sums = []
    for part in parts:
        # The square of an `int16` fits into an `int32`.
        bits, squares = (torch.int16, torch.int32) if part.element_size() == 2 else (torch.int32, torch.int64)
        for piece in part.view(bits).split(PIECE):
            wide = piece.to(squares)
            sums.append(torch.stack([wide.sum(), wide.square().sum()]))
    return torch.stack(sums).sum(0).tolist() if sums else [0, 0]  # one transfer for the whole adapter


def random_like(factors: Factors, sizes: Mapping[str, float], *, seed: int) -> Factors:
    """Random factors of the same shapes, whose weight change has the standard deviation `sizes`, by layer."""
    generator, drawn = torch.Generator().manual_seed(seed), {}
    for path, (A, B, scaling) in factors.items():
        a = torch.randn(A.shape, generator=generator)
        b = torch.randn(B.shape, generator=generator) * sizes[path] / (scaling * math.sqrt(A.shape[0]))
        drawn[path] = Factor(a.to(A.device), b.to(B.device), scaling)
    return drawn


@contextmanager
def added(model: torch.nn.Module, factors: Factors) -> Iterator[None]:
    """Context in which the contribution of `factors` is added to the forward of their modules."""

    def hook(factor: Factor) -> Callable[..., Tensor]:
        def add(module: torch.nn.Module, args: tuple, output: Tensor) -> Tensor:
            x = args[0].to(factor.A.dtype)
            return output + (factor.scaling * (x @ factor.A.T) @ factor.B.T).to(output.dtype)

        return add

    handles = [model.get_submodule(path).register_forward_hook(hook(factor)) for path, factor in factors.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
