"""Micro-batches of similar length, without the padding that nobody in them needs.

TRL pads a whole generation batch to its longest prompt and completion and shuffles it. All micro-batches of a round
belong to one optimizer step, so their order means nothing to the update, and padding costs time: proposal prompts,
solver prompts and completions differ severalfold in length.
"""

import torch
from torch import Tensor


PROMPT_KEYS = ("prompt_ids", "prompt_mask")


def by_length(batches: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Re-divide micro-batches so that rows of similar length share one, each trimmed to its own longest row.

    Args:
        batches (`list[dict[str, torch.Tensor]]`):
            Micro-batches of equal size as TRL buffers them: per-row tensors of shape `(rows, ...)`, scalars shared.

    Returns:
        `list[dict[str, torch.Tensor]]`: As many micro-batches of the same size, shortest rows first.
    """
    first = batches[0]
    rows = len(first["prompt_ids"])
    whole = {k: torch.cat([b[k] for b in batches]) if v.dim() else v for k, v in first.items()}
    length = whole["prompt_mask"].sum(1) + whole["completion_mask"].sum(1)
    order = torch.argsort(length, stable=True)
    chosen = [order[start : start + rows] for start in range(0, len(order), rows)]
    return [trim({k: v[index] if v.dim() else v for k, v in whole.items()}) for index in chosen]


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
