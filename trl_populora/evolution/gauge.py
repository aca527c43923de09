"""The gauge of a child: of all factors (B R, R^-1 A) of one update, those closest to its first parent's.

Many pairs of factors give the same update `dW = scaling * B @ A`. The choice among them is the gauge. It matters for
training, because Adam scales every entry of B and A by its own gradients. Balanced factors, `|b_i| = |a_i|`, would
make A much smaller than LoRA's init scale, and the first steps of a child would be smaller, too. So a child is written
in the frame of its first parent's A. With an unchanged `dW`, it gets that parent's factors and takes the same Adam
steps.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from trl_populora.population.factors import Factor

from .factors import RESOLUTION, Spectrum, multiply, root


def initial_bound(factor: Factor) -> float:
    """LoRA's init scale: PEFT draws `A` from U(-b, b) with b = 1 / sqrt(d_in) (Kaiming uniform with a = sqrt 5)."""
    return 1 / math.sqrt(factor.A.shape[1])


def compose(
    terms: Sequence[Factor], spectrum: Spectrum, *, out: Factor, seed: int, dropped: Tensor | None = None
) -> None:
    """Writes the first r components of a spectrum into `out`, in the frame of the first term's A (our choice).

    With `dW = C V^T` and the frame `A_1` of mean squared row norm rho^2, the child's factors are

        A' = N N^T A_1 + Q T^T V^T,    scaling B' = C T^-T Q^T,    Q = polar((T^T W)^T),    T T^T = H^-1,
        W = V^T A_1^+,    H = W W^T + V^T (I - P) V / rho^2,    P the projection onto the rows of A_1,

    where N completes Q to an orthogonal basis of the r latent directions. If V lies within the rows of `A_1`, as after
    every mutation, then `A' = A_1` and only B changes. Directions outside get rows of norm rho that are orthogonal to
    each other.

    Along the directions in N, B is 0 and A is that of the first parent, so they can learn again. Directions of dropped
    components, and those in which `A_1` is 0, get a fresh A at LoRA's init scale: the projection of a random A, which
    rounding cannot turn around. It is drawn from a separate generator, so that other random numbers do not change.

    Accuracy: `dW` loses what is below resolution (`factors`), and the rounding of A' and B', about 6e-8 |A'| |B'| in
    Frobenius norms for float32. The frame makes B' long if V needs directions in which `A_1` is almost 0: if the rows
    of `A_1` are nearly collinear, and those of another parent are not.

    Args:
        terms (`Sequence[Factor]`): Factors on which the spectrum's maps act, side by side. The first one is the frame.
        spectrum (`Spectrum`): Decomposition of the required `dW`, including scaling; `s` in any order.
        out (`Factor`): Storage for the result, with its rank r and scaling.
        seed (`int`): Seeds fresh rows of A.
        dropped (`torch.Tensor`, *optional*): Indices of components to leave out.
    """
    r, d_in = out.A.shape
    left, s, right, G = spectrum.left[:, :r], spectrum.s[:r], spectrum.right[:r], spectrum.G_A
    kept, lost = s > 0, torch.zeros_like(s, dtype=torch.bool)
    if dropped is not None:
        lost[dropped] = kept[dropped]
        kept = kept & ~lost
    n = min(r, terms[0].A.shape[0])  # rows of the frame: all, where parents are of one rank
    frame = pad(G[:n, :n], (0, r - n, 0, r - n))
    rho2 = float(frame.trace()) / n or d_in * initial_bound(out) ** 2 / 3
    _, inverse = root(G[:n, :n])
    Y = right @ G[:, :n]
    W = pad(Y @ inverse @ inverse.mT, (0, r - n))

    V = right[kept]
    H = W[kept] @ W[kept].mT + (V @ G @ V.mT - W[kept, :n] @ Y[kept].mT) / rho2
    values, E = torch.linalg.eigh((H + H.mT) / 2)
    solid = values > RESOLUTION**2 * values[-1:]  # of components that coincide, one is enough
    values, E = values[solid], E[:, solid]
    T = E * values.rsqrt()
    L, _, Rt = torch.linalg.svd(T.mT @ W[kept], full_matrices=True)
    Q, N = Rt[: len(values)].mT @ L.mT, Rt[len(values) :].mT
    fresh, N = _divide(N, W[lost], frame, 1e-12 * rho2)

    onto_A = Q @ (T.mT @ V)
    onto_A[:, :n] += (N @ N.mT)[:, :n]
    A = torch.empty_like(out.A, dtype=torch.float64)  # float32 would err in the direction that rows share
    multiply([factor.A.mT for factor in terms], onto_A.mT, out=A.mT)
    out.A.copy_(A)
    onto_B = (left[:, kept] * (s[kept] / out.scaling)) @ (E * values.sqrt()) @ Q.mT
    multiply([factor.B for factor in terms], onto_B, out=out.B)
    if fresh.shape[1]:
        bound = initial_bound(out)
        rows = torch.empty(r, d_in).uniform_(-bound, bound, generator=torch.Generator().manual_seed(seed))
        out.A.add_((fresh @ (fresh.mT @ rows.double())).to(out.A))


def align(factor: Factor, like: Factor) -> Factor:
    """The same update in the orthogonal gauge `(B Q, Q^T A)` closest to other factors (orthogonal Procrustes).

    Q maximises `<B Q, B'> / (|B| |B'|) + <Q^T A, A'> / (|A| |A'|)`, so neither factor's scale outweighs the other.

    Raises:
        ValueError: If a factor holds a value that is not finite.
    """
    wide = torch.promote_types(factor.A.dtype, torch.float32)
    A, B = factor.A.to(wide), factor.B.to(wide)
    cross = torch.zeros(A.shape[0], like.A.shape[0], dtype=torch.float64)
    for X, Y in ((B, like.B.to(B)), (A.mT, like.A.to(A).mT)):
        scale = float(X.norm()) * float(Y.norm())
        if scale > 0:
            cross += (X.mT @ Y).cpu().double() / scale
    if not torch.isfinite(cross).all():
        raise ValueError("Factors hold values that are not finite: the member has diverged. Do not let it breed.")
    U, _, Vt = torch.linalg.svd(cross)
    Q = (U @ Vt).to(A)
    return Factor(Q.mT @ A, B @ Q, factor.scaling)


def _divide(N: Tensor, lost: Tensor, frame: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Divides latent directions without a component into those that need a fresh A, and those that keep the A of the
    frame.

    Args:
        N (`torch.Tensor` of shape `(r, m)`): Directions, orthonormal. lost (`torch.Tensor` of shape `(f, r)`): Rows
            of W of dropped components. frame (`torch.Tensor` of shape `(r, r)`): Gram matrix of the frame.
        threshold (`float`): Squared norm below which a row of A counts as 0.
    """
    if N.shape[1] == 0:
        return N, N
    count = min(len(lost), N.shape[1])
    _, _, Rt = torch.linalg.svd(lost @ N, full_matrices=True)
    free, rest = N @ Rt[:count].mT, N @ Rt[count:].mT
    norms, E = torch.linalg.eigh(rest.mT @ frame @ rest)
    return torch.cat([free, rest @ E[:, norms <= threshold]], dim=1), rest @ E[:, norms > threshold]
