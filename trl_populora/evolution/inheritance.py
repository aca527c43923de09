"""Functions that all operators share: checking parents, and memory for the child.

The operators themselves are in `mutation` and `crossover`, the gauge in which a child is written in `gauge`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trl_populora.population.factors import Factor, Factors

from .factors import spectra
from .gauge import compose


def common_paths(parents: Sequence[Factors], *, at_least: int = 1) -> list[str]:
    """Module paths in sorted order. Random numbers are drawn in this order, so the order of a dict does not matter.

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


def storage(like: Factors) -> Factors:
    """Memory for a child with the shapes of `like`, its first parent."""
    return {path: Factor(torch.empty_like(A), torch.empty_like(B), scaling) for path, (A, B, scaling) in like.items()}


def layer_of(path: str) -> str:
    """Layer that an adapted matrix belongs to: the path up to its first number, or the whole path if it has none.

    All matrices of one transformer block are one layer (our choice): they were trained to work together.
    """
    parts = path.split(".")
    for end, part in enumerate(parts, start=1):
        if part.isdigit():
            return ".".join(parts[:end])
    return path


def draw_seed(rng: torch.Generator) -> int:
    return int(torch.randint(2**48, (), generator=rng))


def copy_update(factor: Factor, *, out: Factor, seed: int) -> None:
    """Writes the same `dW` into `out`, which may have another rank, scaling, dtype and device.

    It is exact if only dtype and device change. If scalings differ, `B` is multiplied by their ratio. If ranks differ,
    the update is refactored, and truncated if necessary.
    """
    if factor.A.shape != out.A.shape:
        compose([factor], spectra([{"": factor}])[""], out=out, seed=seed)
    else:
        out.A.copy_(factor.A)
        out.B.copy_(factor.B if factor.scaling == out.scaling else factor.B.double() * (factor.scaling / out.scaling))


def scratch_for(X: Tensor) -> Tensor:
    """Contiguous float32 memory on the CPU, for random numbers: X itself if it fits, otherwise new memory."""
    direct = X.dtype == torch.float32 and X.device.type == "cpu" and X.is_contiguous()
    return X if direct else torch.empty(X.shape)


def add_noise(X: Tensor, noise: Tensor, *, scale: float, out: Tensor) -> None:
    """`out = X + scale * noise` in at least float32; `noise` may be `out` itself."""
    if noise is out:
        torch.add(X, noise, alpha=scale, out=out)
    else:
        wide = torch.promote_types(X.dtype, torch.float32)
        out.copy_(X.to(wide) + scale * noise.to(X.device, wide))


def _sizes(factor: Factor) -> tuple[int, int]:
    return factor.B.shape[0], factor.A.shape[1]
