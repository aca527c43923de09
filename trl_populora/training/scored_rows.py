"""`ScoredRows`: the record of a generation phase's rows. Learning, ratings and the compute counts read it."""

import json
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor

from ..run_files.round_table import COLUMNS


class MemberRows(NamedTuple):
    """One member's share of [`ScoredRows`], in their order; fields as there."""

    rewards: list[float]
    tokens: list[int]
    prompt_tokens: list[int]


@dataclass(frozen=True)
class ScoredRows:
    """The rows of one generation phase, of all processes, as TRL has scored them.

    Gradient scales, advantages, ratings and compute counts are computed from it.

    Attributes:
        round (`int`): Number of the round, from 0.
        step (`int`): Optimizer step at which it was generated.
        training (`bool`): Whether members learn from the rows; `False` in evaluation.
        members (`list[str]` of length N): Adapter of each row. Groups of completions of one prompt are contiguous.
        tokens, prompt_tokens (`list[int]` of length N): Length of each completion and of its prompt.
        loss_tokens (`list[int]` of length N): Tokens of each completion in the loss: 0 for a truncated one with
            `mask_truncated_completions`, else its length.
        rewards (`np.ndarray` of shape `(N,)`): Weighted sum of the reward functions; NaN if none scored the row.
        by_function (`dict[str, np.ndarray]` of shape `(N,)` each): Reward function -> its rewards; NaN if it did not
            score the row.
        advantages (`np.ndarray` of shape `(N,)`): Advantages in the update.
        prompts, completions (`list` of length N): Text or chat messages, as TRL has them.
        versions (`dict[str, int]`): Member -> its version when it wrote the rows.
    """

    round: int
    step: int
    training: bool
    members: list[str]
    tokens: list[int]
    prompt_tokens: list[int]
    loss_tokens: list[int]
    rewards: np.ndarray
    by_function: dict[str, np.ndarray]
    advantages: np.ndarray
    prompts: list[Any]
    completions: list[Any]
    versions: dict[str, int]

    @classmethod
    def gather(
        cls,
        output: dict[str, Tensor],
        rewards: Tensor,
        *,
        members: list[str],
        prompts: list,
        completions: list,
        lengths: list[int],
        names: list[str],
        weights: Tensor,
        **place: Any,
    ) -> "ScoredRows":
        """Gathers the rows of all processes.

        Args:
            output (`dict[str, torch.Tensor]`): This process' rows as TRL returns them.
            rewards (`torch.Tensor` of shape `(N, functions)`): Of the rows of all processes.
            members (`list[str]`), prompts, completions (`list`), lengths (`list[int]`): Of this process' rows.
            names (`list[str]`), weights (`torch.Tensor` of shape `(functions,)`): Of the reward functions.
            place: `round`, `step`, `training` and `versions`.
        """
        sums = [output[key].sum(1).tolist() for key in ("prompt_mask", "completion_mask")]
        own = [members, prompts, completions, output["advantages"].tolist(), lengths, *sums]
        rows = gather_object(list(zip(*own, strict=True)))
        members, prompts, completions, advantages, tokens, prompt_tokens, loss_tokens = map(
            list, zip(*rows, strict=True)
        )
        total = (rewards * weights.to(rewards.device)).nansum(dim=1)
        total[rewards.isnan().all(dim=1)] = torch.nan
        return cls(
            **place,
            members=members,
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            loss_tokens=loss_tokens,
            rewards=total.cpu().numpy(),
            by_function=dict(zip(names, rewards.cpu().numpy().T, strict=True)),
            advantages=np.array(advantages),
            prompts=prompts,
            completions=completions,
        )

    def by_member(self) -> Mapping[str, MemberRows]:
        """Each member's share; empty for one that has no rows."""
        shares = defaultdict(lambda: MemberRows([], [], []))
        for name, *values in zip(self.members, self.rewards.tolist(), self.tokens, self.prompt_tokens, strict=True):
            for column, value in zip(shares[name], values, strict=True):
                column.append(value)
        return shares

    def records(self, *, group_size: int) -> Iterator[dict[str, Any]]:
        """The rows with the keys of `COLUMNS` ([`run_files.round_table`]) that every source has."""
        for i, (name, used) in enumerate(zip(self.members, self.used(), strict=True)):
            known = {
                "round": self.round,
                "step": self.step,
                "kind": "learned",
                "member": name,
                "version": self.versions[name],
                "group": i // group_size,
                "reward": _number(self.rewards[i]),
                "learned": math.isfinite(self.rewards[i]),
                "prompt": _text(self.prompts[i]),
                "prompt_tokens": self.prompt_tokens[i],
                "tokens": self.tokens[i],
                "completion": _text(self.completions[i]),
            }
            yield dict.fromkeys(COLUMNS) | known | used

    def used(self) -> Iterator[dict[str, Any]]:
        """Columns `rewards` and `advantage` of each row."""
        for reward, advantage, *parts in zip(self.rewards, self.advantages, *self.by_function.values(), strict=True):
            by_function = dict(zip(self.by_function, map(_number, parts), strict=True))
            yield {
                "rewards": json.dumps(by_function) if len(parts) > 1 else None,
                "advantage": None if np.isnan(reward) else _number(advantage),
            }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _text(value: Any) -> str:
    """Text as it is, the text of a single answer without other parts, and other messages as JSON."""
    if isinstance(value, str):
        return value
    plain = len(value) == 1 and value[0].keys() == {"role", "content"} and value[0]["role"] == "assistant"
    if plain and isinstance(value[0]["content"], str):
        return value[0]["content"]
    return json.dumps(value, default=str)


def replace_advantages(output: dict[str, Tensor], advantages: np.ndarray, *, process: int, logged: deque) -> None:
    """Replaces the advantages that TRL has computed, also in its log of completions.

    Args:
        output (`dict[str, torch.Tensor]`): The rows of this process as TRL returns them; changed in place.
        advantages (`np.ndarray` of shape `(N,)`): Of the rows of all processes.
        process (`int`): Index of this process, whose rows are contiguous.
        logged (`deque`): The newest entries are TRL's for these rows.
    """
    for _ in range(min(len(advantages), len(logged))):
        logged.pop()
    logged.extend(advantages.tolist())
    own = len(output["advantages"])
    mine = torch.from_numpy(advantages)[process * own : (process + 1) * own]
    output["advantages"] = mine.to(output["advantages"])
