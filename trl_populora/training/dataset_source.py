"""`DatasetSource`: a population of students trained on the user's own prompts and reward functions.

There are no teachers, no executor and no games: members are compared by the reward they earn.
"""

import math
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import Sampler as IndexSampler

from ..diagnostics import RoundSummary
from ..diagnostics.dynamics import MemberSummary, mean
from ..generation import Sampler
from ..population import Population
from .config import PopulationSelfPlayConfig
from .ranks import Ranks
from .reward_ratings import RewardRatings


class DatasetSource:
    """Where the rows come from when the user brings a dataset.

    Rows arrive in groups of `num_generations` completions of one prompt. Group `g` of a generation batch belongs to
    member `g mod N`: a batch of shared prompts repeats each for every member, one of split prompts does not.

    Args:
        args ([`PopulationSelfPlayConfig`]): Settings.
        population ([`Population`]): Members, students only.
        sampler ([`Sampler`]): Draws completions.
        ranks ([`Ranks`]): Processes that share the work.
    """

    columns: dict[str, type] = {}
    hall = None  # of champions: nobody plays here

    def __init__(self, args: PopulationSelfPlayConfig, population: Population, sampler: Sampler, ranks: Ranks):
        self.args, self.population, self.sampler, self.ranks = args, population, sampler, ranks
        self.ratings = RewardRatings(list(population), window=args.evolution_interval or 20)
        self._members: list[str] = []
        self._seeds: list[int] = []
        self._table: dict[str, tuple[list[float], list[int], list[int]]] = {}
        self._round = self._step = self._evaluated = 0
        self._ready_at = self._sample_seconds = 0.0

    def begin(self, inputs: list[dict[str, Any]], *, round: int, step: int) -> tuple[list[dict[str, Any]], list[str]]:
        """Says which member answers which of this rank's rows."""
        start, names, G = self.ranks.index * len(inputs), list(self.population), self.args.num_generations
        if "player" in inputs[0]:  # evaluation: every member answers every prompt
            members, purpose = [row["player"] for row in inputs], "evaluate"
            start += self._evaluated
            self._evaluated += len(inputs) * self.ranks.accelerator.num_processes
        else:
            members, purpose = [names[(start + i) // G % len(names)] for i in range(len(inputs))], "train"
            self._round, self._step, self._evaluated = round, step, 0
        self._members = members
        self._seeds = [
            zlib.crc32(f"{self.args.seed}:{step}:{purpose}:{start + i}".encode()) - (1 << 31)
            for i in range(len(inputs))
        ]
        return [{**row, "player": name} for row, name in zip(inputs, members, strict=True)], members

    def rollout(self, prompts: list, trainer) -> dict[str, list | None]:
        """TRL's rollout function: samples this rank's rows from their members."""
        start = time.perf_counter()
        self.sampler.sync()
        prompt_ids, images, _ = trainer._tokenize_prompts(prompts)
        if images is not None:
            raise ValueError("The prompts hold images: a population trains on text only.")
        completions = self.sampler.draw(prompt_ids, self._members, self._seeds)
        self._ready_at = time.perf_counter()
        self._sample_seconds = self._ready_at - start
        logprobs = [c.logprobs for c in completions]
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [list(c.ids) for c in completions],
            "logprobs": None if None in logprobs else [list(values) for values in logprobs],
        }

    def learn(
        self,
        *,
        members: Sequence[str],
        rewards: Sequence[float],
        tokens: Sequence[int],
        prompt_tokens: Sequence[int],
    ) -> None:
        """Takes the round's outcome over all ranks: each row's author, reward, length and length of its prompt."""
        self._table = {name: ([], [], []) for name in self.population}
        for name, *values in zip(members, rewards, tokens, prompt_tokens, strict=True):
            for column, value in zip(self._table[name], values, strict=True):
                column.append(value)
        self.ratings.update({name: own for name, (own, _, _) in self._table.items()})

    def observe(self, *, grad_norms: dict[str, float]) -> RoundSummary:
        """Sums up the newest round, members as they played; learning ends with the call."""
        members = []
        for member in self.population.values():
            rewards, tokens, prompts = self._table[member.id]
            rating = self.ratings[member.id]
            members.append(
                MemberSummary(
                    name=member.id,
                    role=member.role,
                    version=member.version,
                    reward=mean(reward for reward in rewards if math.isfinite(reward)),
                    validity=None,
                    solve_rate=None,
                    mu=0.0 if math.isnan(rating.mu) else rating.mu,  # JSON has no NaN; `reward` is null then
                    sigma=rating.sigma,
                    length=sum(tokens) / max(len(tokens), 1),
                    rows=len(rewards),
                    tokens=sum(tokens),
                    prompt_tokens=sum(prompts),
                    grad_norm=grad_norms.get(member.id),
                )
            )
        return RoundSummary(
            round=self._round,
            step=self._step,
            members=tuple(members),
            teachers=(),
            students=self.population.students,
            games=(),
            wins=(),
            seconds={"sample": self._sample_seconds, "learn": time.perf_counter() - self._ready_at},
        )

    def fitness(self, name: str) -> float:
        """What selection goes by."""
        return self.ratings.fitness(name)

    def rows(self) -> list[dict[str, Any]]:
        """Nothing: completions of a dataset are TRL's to log (`log_completions`)."""
        return []

    def state_dict(self) -> dict[str, Any]:
        return {"ratings": self.ratings.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ratings.load_state_dict(state["ratings"])

    def close(self) -> None:
        """Nothing to end."""


class PromptSampler(IndexSampler[int]):
    """TRL's order of prompts, but a function of (seed, epoch): a resumed run sees what it would have seen.

    Args:
        num_prompts (`int`): Rows of the dataset.
        prompts (`int`): Different prompts in a generation batch; an incomplete batch at an epoch's end is left out.
        repeats (`int`): Times that a prompt stands in the batch, side by side.
        batches (`int`): Times that a batch is handed over: `steps_per_generation * num_iterations`.
        shuffle (`bool`): Whether each epoch has an order of its own.
        seed (`int`): Seed of the order.
        epoch (`Callable[[], int]`): The epoch that begins.
    """

    def __init__(
        self,
        num_prompts: int,
        *,
        prompts: int,
        repeats: int,
        batches: int,
        shuffle: bool,
        seed: int,
        epoch: Callable[[], int],
    ):
        self.num_prompts, self.prompts, self.repeats, self.batches = num_prompts, prompts, repeats, batches
        self.shuffle, self.seed, self.epoch = shuffle, seed, epoch

    def __iter__(self):
        order = list(range(self.num_prompts))
        if self.shuffle:
            generator = torch.Generator().manual_seed(zlib.crc32(f"{self.seed}:{self.epoch()}".encode()))
            order = torch.randperm(self.num_prompts, generator=generator).tolist()
        for start in range(0, self.num_prompts - self.prompts + 1, self.prompts):
            for _ in range(self.batches):
                for index in order[start : start + self.prompts]:
                    for _ in range(self.repeats):
                        yield index

    def __len__(self) -> int:
        return self.num_prompts // self.prompts * self.prompts * self.repeats * self.batches
