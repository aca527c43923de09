"""Micro-batches with equally many rows of each member in them, of similar length, without padding nobody needs.

TRL pads a whole generation batch to its longest prompt and completion and shuffles it. All micro-batches of a round
belong to one optimizer step, so which rows share one means nothing to the update. It does to time and memory: rows of
similar length need little padding, and equal blocks of rows run through all members in one batched matmul.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from ..population.routing import member_order


PROMPT_KEYS = ("prompt_ids", "prompt_mask")


def deal(batches: list[dict[str, Tensor]], roles: Sequence[str]) -> list[dict[str, Tensor]]:
    """Re-divide micro-batches as [`schedule`] says, each trimmed to its own longest row.

    Args:
        batches (`list[dict[str, torch.Tensor]]`):
            Micro-batches of equal size as TRL buffers them: per-row tensors of shape `(rows, ...)`, `"member_ids"` of
            shape `(rows,)` among them; scalars are shared.
        roles (`Sequence[str]`): Role of each member, by id.

    Returns:
        `list[dict[str, torch.Tensor]]`: As many micro-batches of the same size, narrowest first.
    """
    first = batches[0]
    whole = {k: torch.cat([b[k] for b in batches]) if v.dim() else v for k, v in first.items()}
    lengths = (whole["prompt_mask"].sum(1) + whole["completion_mask"].sum(1)).tolist()
    chosen = schedule(whole["member_ids"].tolist(), lengths, roles=roles, size=len(first["prompt_ids"]))
    chosen.sort(key=lambda rows: max(lengths[row] for row in rows))
    return [trim({k: v[rows] if v.dim() else v for k, v in whole.items()}) for rows in chosen]


def schedule(members: Sequence[int], lengths: Sequence[int], *, roles: Sequence[str], size: int) -> list[list[int]]:
    """Which rows share a micro-batch.

    Each member's rows, sorted by length, are cut into hands of equally many. The hands of a role are laid out shortest
    first, one of every member before the second of any, and every micro-batch takes the next few: as many rows of each
    member in it, all of about the same rank in length, and roles (whose prompts differ severalfold in length) apart.
    Hands are as small as that allows, so lengths are as similar as they can be. Our choice.

    Where members have different numbers of rows, as in one rank's share of a round, the last micro-batches of a role
    may hold more rows of some members than of others.

    Args:
        members (`Sequence[int]`): Member of each row.
        lengths (`Sequence[int]`): Length of each row in tokens.
        roles (`Sequence[str]`): Role of each member.
        size (`int`): Rows of a micro-batch; divides the number of rows.

    Returns:
        `list[list[int]]`: Row indices of each micro-batch, in the order in which routing wants them.
    """
    own: dict[int, list[int]] = {}
    for row in sorted(range(len(members)), key=lambda row: (lengths[row], row)):
        own.setdefault(members[row], []).append(row)
    hand = _hand_size([len(rows) for rows in own.values()], Counter(roles[member] for member in own), size)
    hands = sorted(
        (roles[member], start, member) for member, rows in own.items() for start in range(0, len(rows), hand)
    )
    dealt = [row for _, start, member in hands for row in own[member][start : start + hand]]
    chosen = [dealt[start : start + size] for start in range(0, len(dealt), size)]
    return [[rows[i] for i in member_order([members[row] for row in rows])] for rows in chosen]


def _hand_size(counts: Sequence[int], role_sizes: Counter[str], size: int) -> int:
    """Fewest rows of one member so that a micro-batch can be filled from different members of one role."""
    smallest = min(role_sizes.values())
    fitting = [q for q in range(1, size + 1) if size % q == 0 and all(count % q == 0 for count in counts)]
    return next((q for q in fitting if size // q <= smallest), fitting[-1])


def trim(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Cut the columns that are padding in every row: prompts on the left, completions on the right."""
    prompt = max(1, int(batch["prompt_mask"].sum(1).max()))
    completion = max(1, int(batch["completion_mask"].sum(1).max()))
    width = batch["completion_ids"].shape[1]

    def cut(key: str, value: Tensor) -> Tensor:
        if key in PROMPT_KEYS:
            return value[:, -prompt:]
        if value.dim() == 2 and value.shape[1] == width:  # per-token tensors of the completion
            return value[:, :completion]
        return value

    return {key: cut(key, value) for key, value in batch.items()}
