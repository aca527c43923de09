"""Micro-batches with equally many rows of each of their members, with rows of similar length, and little padding.

TRL pads a generation batch to its longest prompt and completion and shuffles it. All micro-batches of a round belong
to one optimizer step, so the update does not depend on which rows share a micro-batch. Time and memory do: rows of
similar length need little padding, and equal blocks of rows run through all members in one batched matrix product.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from ..population.routing import member_order


PROMPT_KEYS = ("prompt_ids", "prompt_mask")


def deal(batches: list[dict[str, Tensor]], roles: Sequence[str]) -> list[dict[str, Tensor]]:
    """Divides rows into new micro-batches by [`schedule`], each trimmed to its own longest row.

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

    Each member's rows are sorted by length and cut into parts of equal size. The parts of a role are arranged in this
    order: the first (shortest) part of every member, then the second part of every member, and so on. Every
    micro-batch takes the next parts in this order. So it has equally many rows of each of its members, and these rows
    have a similar position in the order of length. Roles have separate micro-batches, because the lengths of their
    prompts differ several times. Parts are as small as possible, so that lengths are as similar as possible. Our
    choice.

    If members have different numbers of rows, as in one rank's share of a round, the last micro-batches of a role may
    have more rows of some members than of others.

    Args:
        members (`Sequence[int]`): Member of each row.
        lengths (`Sequence[int]`): Length of each row in tokens.
        roles (`Sequence[str]`): Role of each member.
        size (`int`): Rows of a micro-batch; divides the number of rows.

    Returns:
        `list[list[int]]`: Row indices of each micro-batch, in the order in which routing moves no row.
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
    """Smallest size of a part with which a micro-batch can be filled from different members of one role."""
    smallest = min(role_sizes.values())
    fitting = [q for q in range(1, size + 1) if size % q == 0 and all(count % q == 0 for count in counts)]
    return next((q for q in fitting if size // q <= smallest), fitting[-1])


def trim(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Removes columns that are padding in every row: on the left of prompts, on the right of completions."""
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
