"""`TransformersSampler`: all members in one `generate` call on the training model itself.

Nothing has to be synchronised: the sampled weights are the trained weights.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase
from transformers.generation import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from ..population import Population
from ..population.routing import member_order
from ..progress import Progress
from ..self_play.sampling import Completion
from .noise import gumbel
from .sampler import Sampler


if TYPE_CHECKING:
    from ..training import PopulationSelfPlayConfig


COUNT_EVERY = 0.5  # seconds


class GumbelMax(LogitsProcessor):
    """Adds Gumbel noise, so that the greedy choice afterwards is a draw from the softmax (the Gumbel-max trick)."""

    def __init__(self, row_seeds: Tensor, prompt_length: int) -> None:
        self.row_seeds, self.prompt_length = row_seeds, prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores + gumbel(self.row_seeds, input_ids.shape[1] - self.prompt_length, scores.shape[1])


class Watched(LogitsProcessor):
    """Counts the rows of a batch while it is written, and changes no score.

    Args:
        progress ([`Progress`]): Where to. prompt_length (`int`): Tokens that are there already.
        limit (`int`): Most tokens of a row. eos_ids (`Tensor`): What ends one.
    """

    def __init__(self, progress: Progress, prompt_length: int, limit: int, eos_ids: Tensor) -> None:
        self.progress, self.prompt_length, self.limit, self.eos_ids = progress, prompt_length, limit, eos_ids
        self.before, self._next = progress.done, 0.0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if (now := time.monotonic()) >= self._next:
            self._next = now + COUNT_EVERY
            written = input_ids[:, self.prompt_length :]
            ended = int(torch.isin(written, self.eos_ids).any(dim=1).sum())
            share = written.shape[1] / self.limit
            self.progress.reach(self.before + ended + (len(written) - ended) * share)
        return scores


class TransformersSampler(Sampler):
    """Samples from members with `transformers`, rows of all members in one batch with one KV cache.

    Args:
        population ([`Population`]): Members and their model.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]): Tokenizer with a pad token; padded on the left here.
        batch_size (`int`, *optional*, defaults to `64`): Rows decoded at once; bounds the KV cache.
        settings: The other arguments of [`Sampler`].
    """

    def __init__(
        self, population: Population, tokenizer: PreTrainedTokenizerBase, *, batch_size: int = 64, **settings: Any
    ) -> None:
        super().__init__(population, tokenizer, **settings)
        self.batch_size = batch_size
        self.stop = {"stop_strings": self.stop_strings, "tokenizer": tokenizer} if self.stop_strings else {}

    @classmethod
    def settings_of(cls, args: "PopulationSelfPlayConfig") -> dict[str, Any]:
        return super().settings_of(args) | {"batch_size": args.generation_rows}

    def draw(
        self, prompt_ids: Sequence[list[int]], members: Sequence[str | None], row_seeds: Sequence[int]
    ) -> list[Completion]:
        """Draws completions for tokenised prompts with explicit 32-bit row seeds, in batches of similar length."""
        by_length = sorted(range(len(prompt_ids)), key=lambda i: len(prompt_ids[i]))
        completions: dict[int, list[int]] = {}
        for start in range(0, len(by_length), self.batch_size):
            rows = self._by_member(by_length[start : start + self.batch_size], members)
            batch = self._draw_batch(
                [prompt_ids[i] for i in rows], [members[i] for i in rows], [row_seeds[i] for i in rows]
            )
            completions.update(zip(rows, batch, strict=True))
        return [self.completion(ids, completions[i]) for i, ids in enumerate(prompt_ids)]

    def _by_member(self, rows: list[int], members: Sequence[str | None]) -> list[int]:
        """The rows in the order in which routing need not move them: it would at every layer of every token."""
        places = {name: place for place, name in enumerate((None, *self.population, *self.population.guests))}
        return [rows[i] for i in member_order([places.get(members[row], 0) for row in rows])]

    def _draw_batch(
        self, prompt_ids: list[list[int]], members: list[str | None], row_seeds: list[int]
    ) -> list[list[int]]:
        device = self.population.base_model.device
        width = max(map(len, prompt_ids))
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompt_ids], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompt_ids], device=device)
        config = GenerationConfig(
            max_new_tokens=self.max_completion_length,
            do_sample=False,
            eos_token_id=self.eos_ids,
            pad_token_id=pad,
            bos_token_id=self.tokenizer.bos_token_id,
            disable_compile=True,
        )
        processors = self._warpers()
        if self.temperature:
            processors.append(GumbelMax(torch.tensor(row_seeds, dtype=torch.int32, device=device), width))
        before = self.progress.done
        if self.progress.watched:
            ends = torch.tensor(self.eos_ids, device=device)
            processors.append(Watched(self.progress, width, self.max_completion_length, ends))
        with self.model_as(members) as model:
            output = model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=processors,
                **self.stop,
            )
        self.progress.reach(before + len(prompt_ids))
        return [self._trim(row) for row in output[:, width:].tolist()]

    def _warpers(self) -> LogitsProcessorList:
        warpers = LogitsProcessorList()
        if self.temperature not in (0.0, 1.0):
            warpers.append(TemperatureLogitsWarper(self.temperature))
        if self.top_k:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1.0:
            warpers.append(TopPLogitsWarper(self.top_p))
        if self.min_p is not None:
            warpers.append(MinPLogitsWarper(self.min_p))
        return warpers

    def _trim(self, ids: list[int]) -> list[int]:
        """Cut after the first end of sequence; a row that ended on a stop string is padded from there."""
        for i, token in enumerate(ids):
            if token in self.eos_ids:
                stopped = self.stop and any(stop in self.tokenizer.decode(ids[:i]) for stop in self.stop_strings)
                return ids[:i] if i and stopped else ids[: i + 1]
            if i and token == self.tokenizer.pad_token_id:
                return ids[:i]
        return ids
