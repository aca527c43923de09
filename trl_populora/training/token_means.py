"""TRL's metrics that are means over tokens, for micro-batches of rows of similar length.

TRL logs the mean over micro-batches of a mean over tokens. In the micro-batches of `batching.py` that would count
tokens of short completions too much. Each micro-batch has a weight here, so that it is the mean over tokens.
"""

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


TOKEN_MEANS = ("kl", "entropy")
CLIP_MEANS = ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "cispo_clip_ratio")
EXTREMES = ("clip_ratio/low_min", "clip_ratio/high_max")


def weigh(batches: list[dict[str, Tensor]], total: Callable[[Tensor], Any]) -> None:
    """Gives each micro-batch its `"weight"`: its completion tokens, divided by their mean over the micro-batches.

    Args:
        batches (`list[dict[str, torch.Tensor]]`): Of one round and process.
        total (`Callable[[torch.Tensor], torch.Tensor]`): Returns the sum of a tensor over all processes.
    """
    tokens = total(torch.stack([batch["completion_mask"].sum() for batch in batches]).float())
    for batch, weight in zip(batches, tokens / tokens.mean().clamp(min=1e-9), strict=True):
        batch["weight"] = weight


@contextmanager
def weighed(
    metrics: MutableMapping[str, list[float]], batch: Callable[[], Mapping[str, Any]], *, by_row: bool
) -> Iterator[None]:
    """Multiplies what TRL adds to these metrics inside by the weight of the micro-batch, if it has one, and removes
    extremes over rows of which none has a token: TRL would log `None`.

    Args:
        metrics (`MutableMapping[str, list[float]]`): Name -> one value for each micro-batch so far.
        batch (`Callable[[], Mapping[str, Any]]`): Returns the micro-batch, which may be known at the end only.
        by_row (`bool`): Whether ratios are those of rows. Then clip ratios are means over rows, of which all
            micro-batches have equally many.
    """
    before = {name: len(values) for name, values in metrics.items()}
    yield
    weight = batch().get("weight", torch.ones(())).item()
    for name in TOKEN_MEANS if by_row else TOKEN_MEANS + CLIP_MEANS:
        if len(metrics.get(name, ())) > before.get(name, 0):
            metrics[name][-1] *= weight
    for name in EXTREMES:
        if metrics.get(name) and math.isnan(metrics[name][-1]):
            metrics[name].pop()
            if not metrics[name]:
                del metrics[name]
