"""Positions of tokens, for a base with an embedding for each position, such as GPT-2.

Such a base counts columns unless it is told otherwise, and so a prompt that is padded on the left would have other
positions in another batch. `generate` counts by the attention mask. With the hook of this module, the base does so in
every forward. A base with rotary positions needs no hook, because it sees only their differences.
"""

from inspect import signature
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


def count_positions(backbone: nn.Module) -> list[RemovableHandle]:
    """Lets a base with an embedding for each position count tokens by the attention mask.

    Args:
        backbone (`torch.nn.Module`): The base without its head. One without such an embedding is left as it is. (One
            for the positions in images counts, too; then rotary positions are given, and only their origin moves.)

    Returns:
        `list[RemovableHandle]`: The hook, if one is needed.
    """
    if not has_learned_positions(backbone) or "position_ids" not in signature(backbone.forward).parameters:
        return []
    return [backbone.register_forward_pre_hook(_count, with_kwargs=True)]


def has_learned_positions(backbone: nn.Module) -> bool:
    """Whether there is an embedding for each position, and so no row can be longer than these are many."""
    return any("wpe" in path or "position" in path for path in _embeddings(backbone))


def _embeddings(backbone: nn.Module) -> list[str]:
    return [path for path, module in backbone.named_modules() if isinstance(module, nn.Embedding)]


def _count(backbone: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    mask, ids = kwargs.get("attention_mask"), args[0] if args else kwargs.get("input_ids")
    if kwargs.get("position_ids") is None and ids is not None and mask is not None and mask.dim() == 2:
        newest = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]  # those before may be in a cache
        kwargs = kwargs | {"position_ids": newest}
    return args, kwargs
