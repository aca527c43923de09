"""Computes each prompt of a batch once for all completions to it (`share_prompts`).

The rows of a group have the same prompt and the same adapter, and TRL computes the prompt again for each of them. Here
a packed row has the prompt once, and after it the completions of all rows:

    p1 p2 | p3 a1 a2 a3 | p3 b1 b2

Before each completion stands the prompt's last token, which predicts its first. A token sees the prompt and its own
completion only, and positions go on from the prompt in each. So log-probabilities and gradients are those of separate
rows, up to rounding. The idea is that of Prefix Grouper (arXiv 2506.05433), which divides attention into two parts. A
mask does the same here, and the model stays as it is.
"""

import math
from collections.abc import Sequence
from inspect import signature
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ..population.routing import member_order


EXACT, ROUNDED = 1e-3, 0.05
"""How much log-probabilities may change in the mean: in float32, and in 16 bits. With a wrong mask or wrong positions
they change more. Our choice."""


def check_shareable(base: PreTrainedModel, *, aux_loss: bool) -> None:
    """Checks what can be known of a base before it runs.

    Raises:
        ValueError: If its attention takes no mask for each pair of tokens or has a window, if it takes no positions,
            or if its loss has a term over all tokens, in which a prompt would count once.
    """
    config: Any = base.config.get_text_config()
    attention, kinds = config._attn_implementation, {*(getattr(config, "layer_types", None) or ())}
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if window and window >= getattr(config, "max_position_embeddings", math.inf):
        window = None  # no row is as long
    for wrong, why in (
        (attention != "sdpa", f"attn_implementation={attention!r} (only 'sdpa' takes a mask for each pair of tokens)"),
        (kinds - {"full_attention"}, f"layers of the kinds {', '.join(sorted(kinds))}"),
        (window, f"an attention window of {window} tokens"),
        ("position_ids" not in signature(base.base_model.forward).parameters, "no position_ids"),
        (aux_loss, "an auxiliary loss over all tokens, in which prompts would count less"),
    ):
        if wrong:
            raise ValueError(f"share_prompts=true: {type(base).__name__} has {why}. Set share_prompts to false.")


def check_same(model: nn.Module, base: PreTrainedModel, *, rounded: bool) -> None:
    """Compares log-probabilities of a small batch with and without shared prompts, without dropout. All processes must
    call it.

    Args:
        model (`torch.nn.Module`): What the trainer calls.
        base ([`~transformers.PreTrainedModel`]): The base.
        rounded (`bool`): Whether it computes in 16 bits.

    Raises:
        ValueError: If their mean difference is above the limit, or the base takes no such mask.
    """
    ids = torch.arange(4 * 48, device=base.device).view(4, 48) * 7919 % base.config.get_text_config().vocab_size
    ids[1, :32], ids[3, :32] = ids[0, :32], ids[2, :32]
    mask = torch.ones_like(ids)
    mask[2:, :11], mask[1, 40:], mask[3, 44:] = 0, 0, 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :32] = -100
    packed = pack(ids, mask, 16, [0] * 4, hidden=1024)
    assert packed is not None  # two prompts, four completions
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        with torch.no_grad():
            plain = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True).log_probs[:, -16:]
            try:
                shared, _, _ = packed.score(model, entropy=False)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                raise ValueError(
                    f"share_prompts=true: {type(base).__name__} has no way to take a mask for each pair of tokens "
                    f"({type(error).__name__}: {error}). Set share_prompts to false."
                ) from error
    finally:
        for module in training:
            module.training = True
    gap, limit = (plain - shared)[mask[:, 32:] == 1].abs().mean().item(), ROUNDED if rounded else EXACT
    if not gap <= limit:
        raise ValueError(
            f"share_prompts=true changes log-probabilities of {type(base).__name__} by {gap:.2g} in the mean, and "
            f"rounding by less than {limit:g}: it does not compute tokens as a mask and positions say. Set "
            "share_prompts to false."
        )


def prompt_numbers(ids: Tensor, mask: Tensor, members: Sequence[int]) -> list[int]:
    """A number for each row, equal for rows with the same prompt and member.

    Args:
        ids, mask (`torch.Tensor` of shape `(rows, width)`): Prompts, padded on the left.
        members (`Sequence[int]`): Member of each row.
    """
    found: dict[tuple[int, ...], int] = {}
    prompts = ids.masked_fill(mask == 0, -1).tolist()
    return [found.setdefault((member, *prompt), len(found)) for member, prompt in zip(members, prompts, strict=True)]


class Packed(NamedTuple):
    """Rows with a prompt once each.

    Attributes:
        members (`list[int]`): Member of each packed row.
        inputs (`dict[str, torch.Tensor]`): `input_ids`, `position_ids` and `labels` of shape `(packed, width)`, and
            `attention_mask` of shape `(packed, 1, width, width)`.
        places (`tuple[torch.Tensor, torch.Tensor]`): Packed row, and column that predicts it, of each token of a
            completion.
        targets (`tuple[torch.Tensor, torch.Tensor]`): Row and column of the same tokens among the completions.
        shape (`tuple[int, int]`): Of the completions.
    """

    members: list[int]
    inputs: dict[str, Tensor]
    places: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]
    shape: tuple[int, int]

    def unpacked(self, values: Tensor) -> Tensor:
        """Values of predicted tokens, shape `(packed, width - 1)`, as `(rows, completion)`, with 0 for padding."""
        return values.new_zeros(self.shape).index_put(self.targets, values[self.places])

    def score(self, model: nn.Module, *, entropy: bool) -> tuple[Tensor, Tensor | None, None]:
        """What TRL's `_get_per_token_logps_and_entropies` returns for the rows."""
        outputs = model(**self.inputs, fused_lm_head=True)
        return self.unpacked(outputs.log_probs), self.unpacked(outputs.entropy) if entropy else None, None


def cost(rows: int, width: int, hidden: int) -> int:
    """Operations of a pass in each layer, up to a factor. A row of `n` tokens needs `24 h^2 n` in the layer's matrices
    (of `12 h^2` weights) and `4 h n^2` in its attention, which computes padding and masked pairs as well."""
    return rows * width * (6 * hidden + width)


def packs(
    prompts: Sequence[int], tokens: Sequence[int], completions: Sequence[int], *, hidden: int
) -> tuple[int, list[list[int]]]:
    """Which rows of a micro-batch to pack together, so that it costs least with its padding.

    Packed rows are filled up to a width: all widths are tried at which one can end. Our choice.

    Args:
        prompts (`Sequence[int]`): Number of the prompt of each row (see [`prompt_numbers`]).
        tokens (`Sequence[int]`), completions (`Sequence[int]`): Tokens of each row's prompt, and of its completion.
        hidden (`int`): Hidden size of the base.

    Returns:
        `tuple[int, list[list[int]]]`: The width, and the rows of each packed row: each alone if nothing costs less.
    """
    groups: dict[int, list[int]] = {}
    for row, number in enumerate(prompts):
        groups.setdefault(number, []).append(row)
    if not groups:
        return 0, []
    ends = {
        tokens[rows[0]] + end + k
        for rows in groups.values()
        for k, end in enumerate(accumulate(completions[row] for row in rows))
    }
    least = max(map(sum, zip(tokens, completions, strict=True)))
    best = max(tokens) + max(completions), [[row] for row in range(len(prompts))]
    for width in sorted(end for end in ends if end >= least):
        packed = []
        for rows in groups.values():
            used = width  # nothing fits
            for row in rows:
                if used + 1 + completions[row] > width:
                    packed.append([])
                    used = tokens[row] - 1
                packed[-1].append(row)
                used += 1 + completions[row]
        if cost(len(packed), width, hidden) < cost(len(best[1]), best[0], hidden) and len(packed) < len(prompts):
            best = width, packed
    return best


def pack(
    input_ids: Tensor, attention_mask: Tensor, completion: int, members: Sequence[int], *, hidden: int
) -> Packed | None:
    """Packs rows by prompt and member, as [`packs`] says.

    Args:
        input_ids, attention_mask (`torch.Tensor` of shape `(rows, width)`): Prompts, padded on the left, and
            completions.
        completion (`int`): Width of the completions.
        members (`Sequence[int]`): Member of each row.
        hidden (`int`): Hidden size of the base.

    Returns:
        [`Packed`], or `None` if no rows are packed together, or a prompt is empty.
    """
    device, ids, used = input_ids.device, input_ids.cpu(), attention_mask.bool().cpu()
    start, width = ids.shape[1] - completion, ids.shape[1]
    tokens, written = (part.sum(1).tolist() for part in (used[:, :start], used[:, start:]))
    _, packed = packs(prompt_numbers(ids[:, :start], used[:, :start], members), tokens, written, hidden=hidden)
    if len(packed) == len(members) or not used[:, :start].any(1).all():
        return None
    packed = [packed[i] for i in member_order([members[rows[0]] for rows in packed])]
    cells, parts = [], []  # which cell of `input_ids` each packed one is, and of which completion; 0 is the prompt
    for rows in packed:
        *before, last = used[rows[0], :start].nonzero().flatten().tolist()
        own = [[rows[0] * width + column for column in before]]
        for row in rows:
            columns = used[row, start:].nonzero().flatten().tolist()
            own.append([row * width + column for column in (last, *(start + one for one in columns))])
        cells.append(torch.tensor([one for part in own for one in part]))
        parts.append(torch.repeat_interleave(torch.arange(len(own)), torch.tensor([len(part) for part in own])))
    source, part = (pad_sequence(rows, batch_first=True, padding_value=-1) for rows in (cells, parts))
    scored, source = source % width >= start, source.clamp(min=0)
    scored &= part > 0
    own = ids.flatten()[source]
    inputs = {
        "input_ids": own,
        "position_ids": (used.cumsum(1) - 1).clamp(min=0).flatten()[source],
        "labels": own.masked_fill(~scored, -100),
    }
    inputs = {name: values.to(device) for name, values in inputs.items()}
    targets = (source // width)[scored], (source % width - start)[scored]
    return Packed(
        members=[members[rows[0]] for rows in packed],
        inputs=inputs | {"attention_mask": sees(part.to(device))},
        places=tuple(one.to(device) for one in scored[:, 1:].nonzero(as_tuple=True)),
        targets=tuple(one.to(device) for one in targets),
        shape=(len(members), completion),
    )


def sees(part: Tensor) -> Tensor:
    """Which tokens each token sees: those before it of the prompt and of its own completion, and itself.

    Args:
        part (`torch.Tensor` of shape `(packed, width)`): 0 for the prompt, a number for each completion, -1 for
            padding (which sees padding, as a token must see something).

    Returns:
        `torch.Tensor` of shape `(packed, 1, width, width)`: `True` where a row (of the last two) sees a column.
    """
    common = (part[:, :, None] == part[:, None, :]) | (part == 0)[:, None, :]
    return common.tril()[:, None]
