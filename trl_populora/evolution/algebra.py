"""Linear algebra of low-rank updates, always through their factors: `dW = scaling * B @ A` is never formed.

Everything here runs in float64, whatever the storage dtype: the matrices that need it are r x r, and singular vectors
then do not depend on whether the factors are kept in bfloat16 or float32. What is done with the pieces (variation) is
in `mutation` and `crossover`. A fresh adapter (`B = 0`) is legal input everywhere.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trl_populora.population.factors import Factor, Factors


class SVD(NamedTuple):
    """Thin singular value decomposition `U diag(s) V^T`, components in falling order.

    Attributes:
        U (`torch.Tensor` of shape `(..., d_out, k)`): Left singular vectors, orthonormal columns.
        s (`torch.Tensor` of shape `(..., k)`): Singular values; those that are rounding noise are exactly 0.
        V (`torch.Tensor` of shape `(..., d_in, k)`): Right singular vectors, orthonormal columns.
    """

    U: Tensor
    s: Tensor
    V: Tensor


def thin_svd(B: Tensor, A: Tensor, scaling: float = 1.0) -> SVD:
    """SVD of `scaling * B @ A` by QR of `B` and of `A^T` and an SVD of the small core between them.

    Args:
        B (`torch.Tensor` of shape `(..., d_out, r)`): Up projection; leading dimensions are batched.
        A (`torch.Tensor` of shape `(..., r, d_in)`): Down projection.
        scaling (`float`, *optional*, defaults to `1.0`): Factor in front.

    Returns:
        `SVD` with k = min(r, d_out, d_in), float64, on the device of the factors.

    Raises:
        ValueError: If a factor holds a value that is not finite.

    Each pair of singular vectors is free in its sign. It is fixed here by the projection of the left vector on one
    generic direction, so that the result depends on `dW` alone and not on the gauge (B R, R^-1 A); components with
    equal singular values stay free to mix.
    """
    if not (torch.isfinite(A).all() and torch.isfinite(B).all()):
        raise ValueError("Factors hold values that are not finite: the member has diverged. Do not let it breed.")
    Q_B, R_B = torch.linalg.qr(B.double())
    Q_A, R_A = torch.linalg.qr(A.double().mT)
    left, s, right = torch.linalg.svd(scaling * R_B @ R_A.mT, full_matrices=False)
    U, V = Q_B @ left, Q_A @ right.mT
    generic = torch.cos(torch.arange(1, U.shape[-2] + 1, dtype=torch.float64, device=U.device))
    sign = torch.where(generic @ U < 0, -1.0, 1.0).unsqueeze(-2)
    noise = torch.finfo(torch.float64).eps * max(R_B.shape[-1], A.shape[-2]) * s[..., :1]
    return SVD(U * sign, torch.where(s > noise, s, 0.0), V * sign)


def factor_svd(factor: Factor) -> SVD:
    """SVD of one adapted matrix's `dW`, scaling included."""
    return thin_svd(factor.B, factor.A, factor.scaling)


def weighted_sum(factors: Sequence[Factor], weights: Sequence[float]) -> SVD:
    """SVD of `sum_i weights_i dW_i` through the concatenated factors: rank up to the sum of the ranks.

    Cut to its first r components it is the nearest matrix of rank r (Eckart and Young, 1936). Parents may differ in
    rank and scaling.
    """
    B = torch.cat([weight * f.scaling * f.B.double() for f, weight in zip(factors, weights, strict=True)], dim=-1)
    A = torch.cat([f.A.double() for f in factors], dim=-2)
    return thin_svd(B, A)


def refactor(svd: SVD, *, like: Factor, spare: Tensor) -> Factor:
    """Balanced factors `B = U diag(sqrt s)`, `A = diag(sqrt s) V^T` of the first r components.

    Args:
        svd (`SVD`): Decomposition of the wanted `dW`, scaling included.
        like (`Factor`): Gives rank r, dtype, device and scaling of the result.
        spare (`torch.Tensor` of shape `(r, d_in)`):
            Rows of `A` for directions without a component (s = 0, or fewer than r): there `B` is 0, so that `dW`
            does not change, and the direction can learn again. With both halves 0 it never could.
    """
    rank = like.A.shape[-2]
    k = min(rank, svd.s.shape[-1])
    root = torch.sqrt(svd.s[:k] / like.scaling)
    A = spare.to(device=svd.V.device, dtype=torch.float64, copy=True)
    B = torch.zeros(like.B.shape, dtype=torch.float64, device=svd.U.device)
    B[:, :k] = svd.U[:, :k] * root
    A[:k] = torch.where((root > 0).unsqueeze(-1), root.unsqueeze(-1) * svd.V[:, :k].mT, A[:k])
    return Factor(A.to(like.A.dtype), B.to(like.B.dtype), like.scaling)


def cayley(skew: Tensor) -> Tensor:
    """Rotation `(I - K/2)^-1 (I + K/2)` of a skew-symmetric matrix K, equal to exp(K) up to third order.

    Exactly orthogonal with determinant 1 for every K, and the identity for K = 0.
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
        grams = (a.B.double().mT @ b.B.double()) * (a.A.double() @ b.A.double().mT)
        total += a.scaling * b.scaling * float(grams.sum())
    return total


def delta_norm(factors: Factors) -> float:
    """Frobenius norm of an adapter's whole update, `sqrt(sum over matrices of |dW|^2)`."""
    return math.sqrt(max(inner(factors, factors), 0.0))


def cosine(first: Factors, second: Factors) -> float:
    """Cosine between two adapters' updates, in [-1, 1]; 0 where one of them is zero."""
    scale = delta_norm(first) * delta_norm(second)
    return max(-1.0, min(1.0, inner(first, second) / scale)) if scale > 0 else 0.0


def singular_values(factor: Factor) -> Tensor:
    """Singular values of one matrix's `dW` from r x r Gram matrices, falling, of shape `(r,)`.

    Much cheaper than [`factor_svd`] where no singular vectors are needed, as in diagnostics; values below 1e-8 of the
    largest are not resolved.
    """
    A, B = factor.A.double(), factor.B.double()
    values, vectors = torch.linalg.eigh(A @ A.mT)
    half = vectors * values.clamp(min=0).sqrt()
    squares = torch.linalg.eigvalsh(half.mT @ (B.mT @ B) @ half)
    return factor.scaling * squares.clamp(min=0).sqrt().flip(-1)


def effective_rank(factor: Factor) -> float:
    """exp of the entropy of the normalised singular values (Roy and Vetterli, 2007): from 1 to r, 0 for `dW = 0`."""
    s = singular_values(factor)
    total = s.sum()
    return float(torch.exp(torch.special.entr(s / total).sum())) if total > 0 else 0.0
