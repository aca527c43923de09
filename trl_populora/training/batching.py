"""Micro-batches with equally many rows of each of their members, with rows of similar length, and little padding.

TRL pads a generation batch to its longest prompt and completion and shuffles it. All micro-batches of a round belong
to one optimizer step, so the update does not depend on which rows share a micro-batch. Time and memory do: rows of
similar length need little padding, and equal blocks of rows run through all members in one batched matrix product.

A row without an advantage teaches nothing: all attempts of its group were right, or all were wrong. Such rows are left
out where the loss allows it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..population.composition import schedule
from .shared_prompts import cost, packs, prompt_numbers


PROMPT_KEYS = ("prompt_ids", "prompt_mask")


def deal(
    batches: list[dict[str, Any]],
    roles: Sequence[str],
    *,
    leave_out_idle: bool = False,
    share_prompts: bool = False,
    hidden: int = 1024,
    agree: Callable[[int], int] = int,
) -> list[dict[str, Any]]:
    """Divides rows into new micro-batches by [`schedule`], each trimmed to its own longest row.

    Args:
        batches (`list[dict[str, Any]]`):
            Micro-batches of equal size as TRL buffers them: per-row tensors of shape `(rows, ...)`, `"member_ids"` of
            shape `(rows,)` among them, and lists with one entry for each row; scalars and `None` are shared.
        roles (`Sequence[str]`): Role of each member, by id.
        leave_out_idle (`bool`, *optional*, defaults to `False`):
            Whether to leave out rows whose `"advantages"` are 0 (see [`needed`]). Only for losses in which such a row
            changes neither the gradient nor the number that the loss is divided by.
        share_prompts (`bool`, *optional*, defaults to `False`):
            Whether rows of one prompt and member come into the same micro-batch where sizes allow and it costs less.
        hidden (`int`, *optional*, defaults to 1024):
            Hidden size of the base, for that cost.
        agree (`Callable[[int], int]`, *optional*):
            With several processes, returns the largest of their numbers of rows. Their micro-batches must have equal
            size, because TRL gathers values of rows.

    Returns:
        `list[dict[str, Any]]`: As many micro-batches, of equal size. The widest batch comes first. So a lack
            of memory shows at once, and later batches fit into the memory blocks of the first.
    """
    first = batches[0]
    whole = {key: _joined([batch[key] for batch in batches]) for key in first}
    tokens, completions = (whole[f"{kind}_mask"].sum(1).tolist() for kind in ("prompt", "completion"))
    lengths = [prompt + completion for prompt, completion in zip(tokens, completions, strict=True)]
    members, rows = whole["member_ids"].tolist(), list(range(len(lengths)))
    if leave_out_idle:
        rows = needed(whole["advantages"].tolist(), members, lengths, multiple=len(batches), agree=agree)
    prompts = prompt_numbers(whole["prompt_ids"], whole["prompt_mask"], members) if share_prompts else None
    places = arrange(
        [members[row] for row in rows],
        [tokens[row] for row in rows],
        [completions[row] for row in rows],
        roles=roles,
        size=len(rows) // len(batches),
        prompts=None if prompts is None else [prompts[row] for row in rows],
        hidden=hidden,
    )
    chosen = [[rows[place] for place in batch] for batch in places]

    def cells(rows: list[int]) -> int:
        """Tokens of a micro-batch with its padding."""
        if prompts is None:
            return len(rows) * max(lengths[row] for row in rows)
        width, packed = packs(*([one[row] for row in rows] for one in (prompts, tokens, completions)), hidden=hidden)
        return len(packed) * width

    chosen.sort(key=cells, reverse=True)
    return [trim({key: _taken(value, rows) for key, value in whole.items()}) for rows in chosen]


def arrange(
    members: Sequence[int],
    tokens: Sequence[int],
    completions: Sequence[int],
    *,
    roles: Sequence[str],
    size: int,
    prompts: Sequence[int] | None = None,
    hidden: int = 1024,
) -> list[list[int]]:
    """[`schedule`] by length, or by prompt where the packed rows then cost less (see [`packs`]).

    Args:
        members (`Sequence[int]`), tokens (`Sequence[int]`), completions (`Sequence[int]`):
            Member of each row, and tokens of its prompt and of its completion.
        roles, size, prompts: As of [`schedule`].
        hidden (`int`, *optional*, defaults to 1024): Hidden size of the base.

    Returns:
        `list[list[int]]`: Row indices of each batch.
    """
    lengths = [prompt + completion for prompt, completion in zip(tokens, completions, strict=True)]
    by_length = schedule(members, lengths, roles=roles, size=size)
    if prompts is None:
        return by_length

    def total(batches: list[list[int]]) -> int:
        taken = [[[one[row] for row in rows] for one in (prompts, tokens, completions)] for rows in batches]
        packed = [packs(*one, hidden=hidden) for one in taken]
        return sum(cost(len(rows), width, hidden) for width, rows in packed)

    return min(schedule(members, lengths, roles=roles, size=size, prompts=prompts), by_length, key=total)


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], list):
        return [one for part in parts for one in part]
    return torch.cat(parts) if isinstance(parts[0], Tensor) and parts[0].dim() else parts[0]


def _taken(value: Any, rows: list[int]) -> Any:
    if isinstance(value, list):
        return [value[row] for row in rows]
    return value[rows] if isinstance(value, Tensor) and value.dim() else value


def needed(
    advantages: Sequence[float],
    members: Sequence[int],
    lengths: Sequence[int],
    *,
    multiple: int,
    agree: Callable[[int], int] = int,
) -> list[int]:
    """Rows that the update needs: those with an advantage, and some of the others, the shortest.

    The others are needed for two reasons. Every member keeps at least one row: with a gradient of 0 it still takes its
    optimizer step, because the moments of Adam move its weights. And micro-batches must have equal size.

    Args:
        advantages (`Sequence[float]`), members (`Sequence[int]`), lengths (`Sequence[int]`): Of each row.
        multiple (`int`): The number of rows is a multiple of this; it divides the number of all rows.
        agree (`Callable[[int], int]`, *optional*): Returns the largest number of rows of all processes.

    Returns:
        `list[int]`: Row indices, ascending.
    """
    kept = {row for row, advantage in enumerate(advantages) if advantage != 0}
    idle = sorted(set(range(len(members))) - kept, key=lambda row: (lengths[row], row))
    present = {members[row] for row in kept}
    for row in idle:
        if members[row] not in present:
            kept.add(row)
            present.add(members[row])
    spare = [row for row in idle if row not in kept]
    kept.update(spare[: agree(len(kept) + -len(kept) % multiple) - len(kept)])
    return sorted(kept)


def trim(batch: dict[str, Any]) -> dict[str, Any]:
    """Cut the columns that are padding in every row: prompts on the left, completions on the right."""
    prompt = max(1, int(batch["prompt_mask"].sum(1).max()))
    completion = max(2, int(batch["completion_mask"].sum(1).max()))  # TRL takes one column for one number per row
    width = batch["completion_ids"].shape[1]

    def cut(key: str, value: Any) -> Any:
        if key in PROMPT_KEYS:
            return value[:, -prompt:]
        by_token = isinstance(value, Tensor) and value.dim() == 2 and value.shape[1] == width  # of the completion
        return value[:, :completion] if by_token else value

    return {key: cut(key, value) for key, value in batch.items()}


def used_columns(mask: Tensor, completion: int) -> tuple[slice, int]:
    """The columns that not all rows pad, and how many are cut from the completions.

    Args:
        mask (`torch.Tensor` of shape `(rows, width)`): Attention mask of prompts, padded on the left, and completions.
        completion (`int`): Width of the completions, of which one column stays.
    """
    used = mask.any(0).nonzero().flatten().tolist()
    spare = min(mask.shape[1] - 1 - used[-1], completion - 1)
    return slice(used[0], mask.shape[1] - spare), spare
