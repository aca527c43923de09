"""Supervised rows for causal language models: a prompt and the completion to learn, as tokens, batches and losses.

Other modules provide the rows and train on them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ...tasks import tokenize_prompt


IGNORED = -100  # label of a token that carries no loss


@dataclass(frozen=True)
class Example:
    """One supervised row.

    Attributes:
        messages (`tuple[dict, ...]`): The prompt, as chat messages.
        completion (`str`): The text to be learnt; the end-of-turn token is added to it.
    """

    messages: tuple[dict, ...]
    completion: str


@dataclass(frozen=True)
class Row:
    """An `Example` in tokens: the first `prompt` of its `ids` are the prompt, the others the completion."""

    ids: tuple[int, ...]
    prompt: int


def encode(tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], **template: Any) -> list[Row]:
    """Tokenises each rendered prompt and its completion separately, as in generation. `template` are the arguments of
    [`render_prompt`]."""
    prompts = [tokenize_prompt(example.messages, tokenizer, **template) for example in examples]
    completions = [example.completion for example in examples]
    completion_ids: Any = tokenizer(completions, add_special_tokens=False)["input_ids"]
    end: Any = tokenizer.eos_token_id
    return [Row((*p, *c, end), len(p)) for p, c in zip(prompts, completion_ids, strict=True)]


def collate(rows: Sequence[Row], pad_token_id: int) -> dict[str, Tensor | int]:
    """Left-pad rows to one width.

    Every row ends in the last column. So all completions are in the last columns, and logits are needed only there.

    Returns:
        `dict`: `input_ids`, `attention_mask` and `labels` of shape `(rows, width)` (labels are -100 on prompts and
        padding), and `logits_to_keep`, the length of the longest completion and one more.
    """
    width = max(len(row.ids) for row in rows)
    input_ids = torch.full((len(rows), width), pad_token_id)
    attention_mask = torch.zeros_like(input_ids)
    labels = torch.full_like(input_ids, IGNORED)
    for index, row in enumerate(rows):
        input_ids[index, width - len(row.ids) :] = torch.tensor(row.ids)
        attention_mask[index, width - len(row.ids) :] = 1
        completion = row.ids[row.prompt :]
        labels[index, width - len(completion) :] = torch.tensor(completion)
    kept = max(len(row.ids) - row.prompt for row in rows) + 1
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels, "logits_to_keep": kept}


def causal_lm_loss(model: nn.Module, batch: Mapping) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood of each row's completion, and its number of tokens.

    Args:
        model (`torch.nn.Module`): A causal language model of transformers. Rows are routed by the caller, if at all.
        batch (`Mapping`): What [`collate`] makes.

    Returns:
        `tuple[torch.Tensor, torch.Tensor]`: Both of shape `(rows,)`: the sum over completion tokens, in nats, and how
        many these are.
    """
    mask = batch["attention_mask"]
    logits = model(
        input_ids=batch["input_ids"],
        attention_mask=mask,
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),  # as `generate` counts them under left padding
        logits_to_keep=batch["logits_to_keep"],
        use_cache=False,
    ).logits
    targets = batch["labels"][:, mask.size(1) - logits.size(1) + 1 :]
    losses = F.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return losses.view_as(targets).sum(dim=1), (targets != IGNORED).sum(dim=1)
