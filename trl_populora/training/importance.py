"""How many of each member's tokens TRL's importance sampling correction masks or clips."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor


if TYPE_CHECKING:
    from .config import PopulationSelfPlayConfig


def cut_shares(
    output: dict[str, Tensor], args: "PopulationSelfPlayConfig", reduce: Callable[[Tensor], Any], members: int
) -> dict[int, float]:
    """Share of each member's tokens whose importance ratio was masked, or cut off at a bound.

    Args:
        output (`dict[str, torch.Tensor]`): Rows as TRL returns them: `"importance_sampling_ratio"` of shape
            `(rows, width)`, or `(rows, 1)` where a row has one ratio, `"completion_mask"` and `"member_ids"`.
        args ([`PopulationSelfPlayConfig`]): Has the mode and the bounds.
        reduce (`Callable`): Sums a tensor over all processes.
        members (`int`): Members of the population.

    Returns:
        `dict[int, float]`: Member -> share, of members with tokens.
    """
    ratio, tokens = output["importance_sampling_ratio"], output["completion_mask"].bool()
    if args.vllm_importance_sampling_mode.endswith("_mask"):
        cut = ratio == 0
    else:
        low, high = args.vllm_importance_sampling_clip_min, args.vllm_importance_sampling_clip_max
        cut = (ratio <= (-torch.inf if low is None else low)) | (ratio >= (torch.inf if high is None else high))
    counts = torch.stack([(cut & tokens).sum(1), tokens.sum(1)], dim=1)
    sums = torch.zeros(members, 2, dtype=counts.dtype, device=counts.device)
    totals = reduce(sums.index_add_(0, output["member_ids"], counts)).tolist()
    return {member: own / total for member, (own, total) in enumerate(totals) if total}
