"""Metrics of the members' weights: norm and rank of each update, and the similarity of members of a role.

Everything is computed from Gram matrices of the factors, once for all members of a role. `dW` itself is never
computed. This is the only module of diagnostics that needs torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..evolution.factors import decompose, effective_rank, gram
from ..population.factors import Factors, not_finite
from .summary import RoundSummary


def measure_weights(summary: RoundSummary, roles: Mapping[str, Mapping[str, Factors]]) -> RoundSummary:
    """The summary of a round with measures of the members' updates.

    Args:
        summary (`RoundSummary`): Its members get `delta_norm`, the Frobenius norm `sqrt(sum over matrices of |dW|^2)`,
            and `effective_rank`, the mean over adapted matrices of the effective rank (exp of the entropy of the
            normalised singular values), from 1 to r; 0 for a member whose `dW` is 0.
        roles (`Mapping[str, Mapping[str, Factors]]`): Role, as in `"teachers"` -> member -> factors; all of a role
            adapt the same matrices with the same rank. `summary.cosines` gets, for each role of several members, the
            mean, least and greatest cosine of two members' updates; 0 if one update is 0.

    Members whose factors are not finite are left out.
    """
    measured, cosines = {}, {}
    for role, members in roles.items():
        names = [name for name, factors in members.items() if not not_finite(factors)]
        if not names:
            continue
        inner, ranks = _inner_products([members[name] for name in names])
        norms = inner.diagonal().clamp(min=0.0).sqrt()
        for name, norm, rank in zip(names, norms.tolist(), ranks.tolist(), strict=True):
            measured[name] = {"delta_norm": norm, "effective_rank": rank}
        if len(names) > 1:
            scale = norms.outer(norms)
            pairs = torch.where(scale > 0, inner / scale, 0.0).clamp(-1.0, 1.0)
            pairs = pairs[*torch.triu_indices(len(names), len(names), 1)]
            cosines[role] = {"mean": float(pairs.mean()), "min": float(pairs.min()), "max": float(pairs.max())}
    members = tuple(replace(member, **measured.get(member.name, {})) for member in summary.members)
    return replace(summary, members=members, cosines=cosines)


def _inner_products(members: Sequence[Factors]) -> tuple[Tensor, Tensor]:
    """Frobenius inner products of all updates, shape `(N, N)`, and effective ranks, shape `(N,)`; float64, CPU."""
    count, grams = len(members), {}
    inner = torch.zeros(count, count, dtype=torch.float64)
    for path, first in members[0].items():
        own = [factors[path] for factors in members]
        rank, scaling = first.A.shape[0], torch.tensor([factor.scaling for factor in own], dtype=torch.float64)
        # (N, N, r, r): block [i, j] is B_i^T B_j
        G_B, G_A = (
            gram(list(sides)).cpu().unflatten(1, (count, rank)).unflatten(0, (count, rank)).transpose(1, 2)
            for sides in zip(*((factor.B, factor.A.mT) for factor in own), strict=True)
        )
        inner += scaling.outer(scaling) * (G_B * G_A).sum((-1, -2))
        each = torch.arange(count)
        weights = scaling[:, None].expand(count, rank)
        grams.setdefault(rank, []).append((G_B[each, each], G_A[each, each], weights))
    ranks = [
        effective_rank(decompose(*(torch.stack(parts) for parts in zip(*same, strict=True))).s)
        for same in grams.values()
    ]
    return inner, torch.cat(ranks).mean(0)
