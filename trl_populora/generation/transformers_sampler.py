"""`TransformersSampler`: samples with `generate` of the training model, with rows of all members in one batch.

Nothing has to be synchronised: the sampled weights are the trained weights.
"""

from bisect import bisect_left
from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import Cache, GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin
from transformers.generation import (
    GenerateDecoderOnlyOutput,
    MinPLogitsWarper,
    StoppingCriteriaList,
    StopStringCriteria,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ..population import Population
from ..population.composition import schedule
from ..population.positions import has_learned_positions
from ..population.routing import member_order
from ..self_play.sampling import Completion
from .noise import gumbel
from .sampler import Sampler, evaluation_mode


if TYPE_CHECKING:
    from ..training import PopulationSelfPlayConfig


# what `generate` calls the cache: transformers 5.24 has renamed it
CACHE = "cache" if "cache" in signature(GenerateDecoderOnlyOutput).parameters else "past_key_values"
TOKENS_AT_ONCE = 16  # after so many tokens, rows that have ended leave the batch


class GumbelMax(LogitsProcessor):
    """Adds Gumbel noise, so that the greedy choice afterwards is a draw from the softmax (the Gumbel-max trick)."""

    def __init__(self, row_seeds: Tensor, prompt_length: int) -> None:
        self.row_seeds, self.prompt_length = row_seeds, prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores + gumbel(self.row_seeds, input_ids.shape[1] - self.prompt_length, scores.shape[1])


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
        # Made once: it reads the whole vocabulary.
        stops = [StopStringCriteria(tokenizer, [*self.stop_strings])] if self.stop_strings else []
        self.stopping = StoppingCriteriaList(stops)
        # Qwen-VL and others keep an offset of positions for each row of the last `generate`.
        self.offset: list[Any] = [one for one in population.base_model.modules() if hasattr(one, "rope_deltas")]

    @property
    def max_length(self) -> int | None:
        """Positions of a base with an embedding for each of them; `None` for others, which compute any."""
        base = self.population.base_model
        learned = has_learned_positions(base.base_model)
        return getattr(base.config.get_text_config(), "max_position_embeddings", None) if learned else None

    @classmethod
    def settings_of(cls, args: "PopulationSelfPlayConfig") -> dict[str, Any]:
        """Adds `batch_size`: the number of rows that are decoded at once, `generation_rows`."""
        return super().settings_of(args) | {"batch_size": args.generation_rows}

    def draw(
        self, prompt_ids: Sequence[list[int]], members: Sequence[str | None], row_seeds: Sequence[int]
    ) -> list[Completion]:
        """Draws completions for tokenised prompts with explicit 32-bit row seeds.

        Batches are made as in the update ([`schedule`]): of rows of similar lengths, where possible equally many of
        each member.
        """
        places, lengths = self._places(members), [len(ids) for ids in prompt_ids]
        completions: dict[int, list[int]] = {}
        batches = schedule(places, lengths, roles=[""] * (1 + max(places, default=0)), size=self.batch_size)
        with evaluation_mode(self.population.base_model):
            for rows in batches:
                batch = self._draw_batch(
                    [prompt_ids[i] for i in rows], [members[i] for i in rows], [row_seeds[i] for i in rows]
                )
                completions.update(zip(rows, batch, strict=True))
        return [self.completion(ids, completions[i]) for i, ids in enumerate(prompt_ids)]

    @property
    def _sharded(self) -> bool:
        """Whether each forward is a collective. `generate` then goes on until the last process has finished, but the
        number of its calls must not depend on a process' own rows.
        """
        return getattr(self.population.base_model, "_is_fsdp_managed_module", False)

    def _places(self, members: Sequence[str | None]) -> list[int]:
        """A number for each row's member, in the order in which routing has them."""
        places = {name: place for place, name in enumerate((None, *self.population, *self.population.guests))}
        return [places.get(member, 0) for member in members]

    def _draw_batch(
        self, prompt_ids: list[list[int]], members: list[str | None], row_seeds: list[int]
    ) -> list[list[int]]:
        """Draws a batch some tokens at a time. Rows that have ended leave it, so the longest rows run alone."""
        device, pad = self.population.base_model.device, self.tokenizer.pad_token_id
        width = max(map(len, prompt_ids))
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompt_ids], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompt_ids], device=device)
        seeds = torch.tensor(row_seeds, dtype=torch.int32, device=device)
        written: list[list[int]] = [[] for _ in prompt_ids]
        rows, before = list(range(len(prompt_ids))), self.progress.done
        at_once = self.max_completion_length if self._sharded else TOKENS_AT_ONCE
        cache = self._prompt_cache(prompt_ids, members, ids, mask)
        for drawn in range(0, self.max_completion_length, at_once):
            processors = self._warpers()
            if self.temperature:
                processors.append(GumbelMax(seeds[rows], width))
            output = self._generate(
                [members[row] for row in rows],
                input_ids=ids,
                attention_mask=mask,
                generation_config=self._config(min(at_once, self.max_completion_length - drawn)),
                logits_processor=processors,
                stopping_criteria=self.stopping,
                **{CACHE: cache},
            )
            ids = output.sequences
            for row, new in zip(rows, ids[:, width + drawn :].tolist(), strict=True):
                written[row] += new
            going = [place for place, row in enumerate(rows) if not self._ended(written[row])]
            share = min(1.0, (drawn + at_once) / self.max_completion_length)
            self.progress.reach(before + len(written) - len(going) * (1 - share))
            if not going:
                break
            # in this order, routing need not move rows at every layer and token
            keep = [going[i] for i in member_order(self._places([members[rows[place]] for place in going]))]
            cache = _select(getattr(output, CACHE), keep)
            rows, ids = [rows[place] for place in keep], ids[keep]
            mask = torch.cat([mask[keep], mask.new_ones(len(keep), ids.shape[1] - mask.shape[1])], dim=1)
        self.progress.reach(before + len(prompt_ids))
        return [self._trim(row) for row in written]

    def _prompt_cache(
        self, prompt_ids: list[list[int]], members: list[str | None], ids: Tensor, mask: Tensor
    ) -> Cache | None:
        """KV cache of the prompts without their last token. Rows with one prompt and member, as those of a group,
        compute it once. `None` if no rows share it: then it is made with the first token.
        """
        first: dict[tuple[str | None, tuple[int, ...]], int] = {}
        places = [
            first.setdefault((member, tuple(p)), len(first)) for member, p in zip(members, prompt_ids, strict=True)
        ]
        if len(first) == len(places) or min(map(len, prompt_ids)) < 2 or self._sharded:
            return None  # of a prompt of one token, nothing but padding would be left
        rows = [places.index(place) for place in range(len(first))]
        output = self._generate(  # the token that it adds is not used
            [members[row] for row in rows],
            input_ids=ids[rows, :-1],
            attention_mask=mask[rows, :-1],
            generation_config=self._config(1),
        )
        return _select(getattr(output, CACHE), places)

    def _generate(self, members: list[str | None], **settings: Any) -> GenerateDecoderOnlyOutput:
        for module in self.offset:
            module.rope_deltas = None
        with self.model_as(members) as model:
            return model.generate(**settings)  # pyright: ignore[reportCallIssue]  # transformers adds it

    def _config(self, tokens: int) -> GenerationConfig:
        return GenerationConfig(
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=self.eos_ids,
            pad_token_id=self.tokenizer.pad_token_id,
            bos_token_id=self.tokenizer.bos_token_id,
            return_dict_in_generate=True,
            disable_compile=True,
        )

    def _ended(self, ids: list[int]) -> bool:
        """Whether a row holds an end of sequence or a stop string."""
        if not set(self.eos_ids).isdisjoint(ids):
            return True
        return any(stop in self.tokenizer.decode(ids) for stop in self.stop_strings)

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
        """Cut after the first end of sequence; a row that ended on a stop string is padded from there. A pad token
        elsewhere is the model's own."""
        end = next((i for i, token in enumerate(ids) if token in self.eos_ids), len(ids))
        pad = self.tokenizer.pad_token_id
        places = [i for i, token in enumerate(ids[: end + 1]) if i and (token == pad or i == end)]

        def stopped(place: int) -> bool:
            text = self.tokenizer.decode(ids[:place])
            return any(stop in text for stop in self.stop_strings)

        if self.stop_strings and places:
            # The first place, as a rule; else bisected, as the model may write any number of pad tokens.
            first = 0 if stopped(places[0]) else bisect_left(places, True, lo=1, key=stopped)
            if first < len(places):
                return ids[: places[first]]
        return ids[: end + 1]


class RoomyLayer(DynamicLayer):
    """Keys and values of a layer, with room for the tokens to come. `DynamicLayer` copies all of them for each token.

    Args:
        layer ([`~transformers.cache_utils.DynamicLayer`]): The layer whose rows it takes; it is not changed.
        rows (`torch.Tensor` of shape `(batch,)`): Indices of these rows; one may be there several times.
        room (`int`): Number of tokens that can be added before all is copied.
    """

    def __init__(self, layer: DynamicLayer, rows: Tensor, room: int) -> None:
        super().__init__()
        held: Any = (layer.keys, layer.values)  # which are tensors once a token is in the layer
        self.lazy_initialization(*held)
        self.length = layer.get_seq_length()
        self.buffers = [self._filled(states, rows, room) for states in held]
        self.keys, self.values = (buffer[..., : self.length, :] for buffer in self.buffers)

    def _filled(self, states: Tensor, rows: Tensor, room: int) -> Tensor:
        buffer = states.new_empty((len(rows), states.shape[1], self.length + room, states.shape[3]))
        buffer[..., : self.length, :] = states[rows]
        return buffer

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        start, self.length = self.length, self.length + key_states.shape[-2]
        if self.length > self.buffers[0].shape[-2]:
            return super().update(key_states, value_states, *args, **kwargs)
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[..., start : self.length, :] = states
        self.keys, self.values = (buffer[..., : self.length, :] for buffer in self.buffers)
        return self.keys, self.values


def _select(cache: Cache, rows: list[int]) -> Cache | None:
    """The cache of these rows, with room for the next tokens; `None` if rows cannot be selected, as from the states of
    linear attention and of convolutions. Then a new cache is computed."""
    layers: list[Any] = getattr(cache, "layers", [])
    if not layers or not all(hasattr(layer, "batch_select_indices") for layer in layers):
        return None
    if any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers):
        return None
    indices = torch.tensor(rows)
    for place, layer in enumerate(layers):
        if type(layer) in (DynamicLayer, RoomyLayer) and layer.get_seq_length():
            layers[place] = RoomyLayer(layer, indices, TOKENS_AT_ONCE + 1)
        else:
            layer.batch_select_indices(indices)
    return cache
