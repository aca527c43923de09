"""Linear algebra of low-rank updates, always through their factors: `dW = scaling * B @ A` is never formed.

All decompositions use r x r matrices: the Gram matrices of the factors. They are summed in float64 while the factors
are read once, and decomposed on the CPU, all adapted matrices in one batch. The factors themselves are only multiplied
by such small matrices, in float32 or in their own dtype if that is wider. `mutation` and `crossover` use these
functions. A fresh adapter (`B = 0`) is allowed everywhere.

Accuracy: Gram matrices hold squares, so the relative error of a singular value s_i is at most about 1e-15 (c / s_i)^2,
where c is the sum of |b_j| |a_j| over the columns b_j of B and rows a_j of A. This equals float32's own precision for
s_i down to c / 1e4. Values below 1.2e-7 c count as 0, because factors in float32 have no information there.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trl_populora.population.factors import Factor, Factors


RESOLUTION = 2**-23  # smallest singular value that counts, relative to the sum of |b_j| |a_j|; float32's spacing
GROUP = 1024  # rows that one product of a Gram matrix sums up


class Spectrum(NamedTuple):
    """Singular value decomposition of `dW` as maps on its factors: `U = B @ left`, `V^T = right @ A`.

    Attributes:
        left (`torch.Tensor` of shape `(..., r, r)`): Columns in falling order of s; 0 where s is 0.
        s (`torch.Tensor` of shape `(..., r)`): Singular values, scaling included; those below resolution are 0.
        right (`torch.Tensor` of shape `(..., r, r)`): Rows in falling order of s; 0 where s is 0.
        G_A (`torch.Tensor` of shape `(..., r, r)`): Gram matrix `A A^T` of the rows that `right` acts on.
    """

    left: Tensor
    s: Tensor
    right: Tensor
    G_A: Tensor


def gram(blocks: Sequence[Tensor], *, workspace: Tensor | None = None) -> Tensor:
    """Gram matrix `X^T X` in float64 of `X = [X_1 X_2 ...]`, tall blocks of shapes `(d, r_i)` side by side.

    It is summed in groups of rows, as one batched product, so that such a thin matrix uses several cores.

    Args:
        workspace (`torch.Tensor` of shape `(at least d * sum of r_i,)`, *optional*):
            Float64 memory for X. Allocating new memory for every matrix would take as long as the product.
    """
    d, ranks = blocks[0].shape[0], [block.shape[1] for block in blocks]
    if workspace is None:
        workspace = torch.empty(d * sum(ranks), dtype=torch.float64, device=blocks[0].device)
    flat = workspace[: d * sum(ranks)]
    X = flat.view(d, -1) if blocks[0].stride(-1) == 1 else flat.view(-1, d).mT  # as the blocks lie in memory
    for part, block in zip(X.split(ranks, dim=1), blocks):
        part.copy_(block)
    groups = max(d // GROUP, 1)
    rows = d // groups * groups
    X_G = X[:rows].unflatten(0, (groups, -1))
    return torch.bmm(X_G.mT, X_G).sum(0) + X[rows:].mT @ X[rows:]


def decompose(G_B: Tensor, G_A: Tensor, weights: Tensor) -> Spectrum:
    """Decomposes `B diag(weights) A` from the Gram matrices `B^T B` and `A A^T`.

    Args:
        G_B, G_A (`torch.Tensor` of shape `(..., r, r)`): Gram matrices, float64; leading dimensions are batched.
        weights (`torch.Tensor` of shape `(..., r)`): Weight of each pair of column and row, such as the scaling.

    Each pair of a column of B and a row of A is first scaled to equal length, which loses the least precision. With `G
    = R^T R`, B is `Q R_B` for an orthonormal Q, and the same for A; what remains is the SVD of an r x r matrix.
    """
    b, a = G_B.diagonal(dim1=-2, dim2=-1).sqrt(), G_A.diagonal(dim1=-2, dim2=-1).sqrt()
    length = torch.sqrt(b * a * weights.abs())
    stretch_B, stretch_A = (torch.where(length > 0, length / x, 0.0) for x in (b, a))
    R_B, inverse_B = root(stretch_B.unsqueeze(-1) * G_B * stretch_B.unsqueeze(-2))
    R_A, inverse_A = root(stretch_A.unsqueeze(-1) * G_A * stretch_A.unsqueeze(-2))
    L, s, Rt = torch.linalg.svd(R_B * weights.sign().unsqueeze(-2) @ R_A.mT)
    s = torch.where(s > RESOLUTION * length.square().sum(-1, keepdim=True), s, 0.0)
    alive = (s > 0).double()
    left = stretch_B.unsqueeze(-1) * (inverse_B @ L) * alive.unsqueeze(-2)
    right = (Rt @ inverse_A.mT) * stretch_A.unsqueeze(-2) * alive.unsqueeze(-1)
    return Spectrum(left, s, right, G_A)


def spectra(parents: Sequence[Factors], weights: Sequence[float] | None = None) -> dict[str, Spectrum]:
    """Spectrum of `sum_i weights_i dW_i` for every adapted matrix, through the concatenated factors.

    Args:
        parents (`Sequence[Factors]`): Adapters of the same matrices; ranks and scalings may differ.
        weights (`Sequence[float]`, *optional*): One per parent, 1 by default.

    Returns:
        `dict[str, Spectrum]`: By module path, on the CPU. Its maps act on `[B_1 B_2 ...]` and `[A_1; A_2; ...]`. Cut
        to its first r components a spectrum is the nearest matrix of rank r (Eckart and Young, 1936).

    Raises:
        ValueError: If a factor holds a value that is not finite.
    """
    weights = [1.0] * len(parents) if weights is None else weights
    by_rank: dict[int, list[str]] = {}
    for path in parents[0]:
        by_rank.setdefault(sum(parent[path].A.shape[0] for parent in parents), []).append(path)
    result: dict[str, Spectrum] = {}
    for paths in by_rank.values():
        terms = [[parent[path] for parent in parents] for path in paths]
        G_B = _grams([[factor.B for factor in factors] for factors in terms])
        G_A = _grams([[factor.A.mT for factor in factors] for factors in terms])
        for path, finite in zip(paths, (torch.isfinite(G_B) & torch.isfinite(G_A)).flatten(1).all(1).tolist()):
            if not finite:
                raise ValueError(
                    f"Factors at {path} hold values that are not finite: the member has diverged. Do not let it breed."
                )
        rows = [[w * f.scaling for w, f in zip(weights, fs) for _ in range(f.A.shape[0])] for fs in terms]
        batch = decompose(G_B, G_A, torch.tensor(rows, dtype=torch.float64))
        result |= {path: Spectrum(*parts) for path, parts in zip(paths, zip(*batch))}
    return {path: result[path] for path in parents[0]}


def multiply(blocks: Sequence[Tensor], X: Tensor, *, out: Tensor) -> None:
    """`out = [X_1 X_2 ...] @ X` for tall blocks of shapes `(d, r_i)` and a small X of shape `(sum of r_i, k)`.

    Computed in float32, or in the dtype of `out` if that is wider.
    """
    wide = torch.promote_types(out.dtype, torch.float32)
    parts = X.to(out.device, wide).split([block.shape[1] for block in blocks])
    total = out if out.dtype == wide else torch.empty_like(out, dtype=wide)
    for i, (block, part) in enumerate(zip(blocks, parts)):
        torch.addmm(total, block.to(out.device, wide), part, beta=float(i > 0), out=total)
    if total is not out:
        out.copy_(total)


def orientation(factor: Factor, spectrum: Spectrum) -> Tensor:
    """Signs, of shape `(r,)`, with which singular vectors depend only on `dW` and not on the gauge (B R, R^-1 A).

    They turn every left vector towards one fixed direction, given by its first 512 entries. Components with equal
    singular values may still mix.
    """
    rows = factor.B[:512]
    generic = torch.cos(torch.arange(1, rows.shape[0] + 1, dtype=torch.float64)).to(rows.device)
    return torch.where((generic @ rows.double()).cpu() @ spectrum.left < 0, -1.0, 1.0).double()


def cayley(skew: Tensor) -> Tensor:
    """Rotation `(I - K/2)^-1 (I + K/2)` of a skew-symmetric matrix K, equal to exp(K) up to third order.

    Exactly orthogonal with determinant 1 for every K, and the identity for K = 0. Leading dimensions are batched.
    """
    identity = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    return torch.linalg.solve(identity - skew / 2, identity + skew / 2)


def inner(first: Factors, second: Factors) -> float:
    """Frobenius inner product of two adapters' updates, summed over all adapted matrices.

    Raises:
        ValueError: If the adapters do not cover the same matrices.
    """
    if first.keys() != second.keys():
        raise ValueError(f"The adapters cover different matrices: {sorted(first.keys() ^ second.keys())[:4]}.")
    total = 0.0
    for path, a in first.items():
        b = second[path]
        r = a.A.shape[0]
        G_B, G_A = gram([a.B, b.B.to(a.B.device)]), gram([a.A.mT, b.A.mT.to(a.A.device)])
        total += a.scaling * b.scaling * float((G_B * G_A)[:r, r:].sum())
    return total


def delta_norm(factors: Factors) -> float:
    """Frobenius norm of an adapter's whole update, `sqrt(sum over matrices of |dW|^2)`."""
    return math.sqrt(max(inner(factors, factors), 0.0))


def cosine(first: Factors, second: Factors) -> float:
    """Cosine between two adapters' updates, in [-1, 1]; 0 if one of them is zero."""
    scale = delta_norm(first) * delta_norm(second)
    return max(-1.0, min(1.0, inner(first, second) / scale)) if scale > 0 else 0.0


def effective_rank(s: Tensor) -> Tensor:
    """exp of the entropy of the normalised singular values (Roy and Vetterli, 2007): from 1 to r, 0 for `dW = 0`.

    Args:
        s (`torch.Tensor` of shape `(..., r)`): Singular values; leading dimensions are batched.
    """
    total = s.sum(-1, keepdim=True)
    entropy = torch.special.entr(s / total.clamp(min=torch.finfo(s.dtype).tiny)).sum(-1)
    return torch.where(total.squeeze(-1) > 0, torch.exp(entropy), 0.0)


def _grams(matrices: Sequence[Sequence[Tensor]]) -> Tensor:
    """Gram matrices of several matrices, stacked, on the CPU; all go through one workspace."""
    largest = max(blocks[0].shape[0] * sum(block.shape[1] for block in blocks) for blocks in matrices)
    workspace = torch.empty(largest, dtype=torch.float64, device=matrices[0][0].device)
    return torch.stack([gram(blocks, workspace=workspace.to(blocks[0].device)) for blocks in matrices]).cpu()


def root(G: Tensor) -> tuple[Tensor, Tensor]:
    """R with `G = R^T R`, and its inverse: by Cholesky or, if a matrix is close to singular, by eigenvalues.

    In the second case, it is the pseudo-inverse, without directions that are only rounding noise.
    """
    L, _ = torch.linalg.cholesky_ex(G)
    pivots = L.diagonal(dim1=-2, dim2=-1)
    if (pivots.amin(-1) > 1e-4 * pivots.amax(-1)).all():  # false for the NaN of a failed factorisation, too
        identity = torch.eye(G.shape[-1], dtype=G.dtype).expand_as(G)
        return L.mT, torch.linalg.solve_triangular(L.mT, identity, upper=True)
    values, vectors = torch.linalg.eigh(G)
    root = values.clamp(min=0).sqrt().unsqueeze(-1)
    inverse = torch.where(root > RESOLUTION * root[..., -1:, :], 1 / root, 0.0)
    return root * vectors.mT, vectors * inverse.mT
