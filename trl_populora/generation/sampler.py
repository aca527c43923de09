"""`Sampler`: samples the members' completions. A new sampler is a class with one method, `draw` (docs/samplers.md).

This module has the parts that all samplers share: tokenizing prompts, seeds of rows, and the end of completions.
"""

import json
import math
import random
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from operator import index
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..population import Population
from ..progress import Progress
from ..self_play.sampling import Completion, Message
from ..tasks import BASE_STOP, read_back, tokenize_prompt


if TYPE_CHECKING:
    from accelerate import Accelerator

    from ..training import PopulationSelfPlayConfig

# What `sampler=` takes besides a class: `(population, tokenizer, accelerator, args) -> Sampler`.
SamplerFactory = Callable[[Population, PreTrainedTokenizerBase, "Accelerator", "PopulationSelfPlayConfig"], "Sampler"]


class Sampler(ABC):
    """Base class of samplers. A subclass implements `draw` and, if needed, the methods after it.

    Args:
        population ([`Population`]): Members and their model.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]): Tokenizer of the base.
        max_completion_length (`int`): Maximum tokens of a completion.
        temperature (`float`, *optional*, defaults to `1.0`): Sampling temperature; 0 is greedy decoding.
        top_p (`float`), top_k (`int`), min_p (`float`, *optional*): As in `generate`; off by default.
        template (`str`, *optional*, defaults to `"chat"`): `"chat"` or `"base"`.
        chat_template_kwargs (`Mapping[str, Any]`, *optional*): Variables of the chat template.
        accelerator ([`~accelerate.Accelerator`], *optional*): The trainer's; `None` for a single process.

    Attributes:
        reports_logprobs (`bool`): Whether every completion has the log-probabilities of the policy that sampled it.
            Then the trainer corrects the difference to its own (`vllm_importance_sampling_*`).
        stop_strings (`list[str]`): Texts that end a completion, besides the tokens in `eos_ids` (`list[int]`).
        progress ([`Progress`]): Progress of the current work. `draw` may count its rows there.
    """

    reports_logprobs: bool = False

    def __init__(
        self,
        population: Population,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_completion_length: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float | None = None,
        template: str = "chat",
        chat_template_kwargs: Mapping[str, Any] | None = None,
        accelerator: "Accelerator | None" = None,
    ) -> None:
        self.population, self.tokenizer, self.accelerator = population, tokenizer, accelerator
        self.progress = Progress()
        self.max_completion_length, self.temperature = max_completion_length, temperature
        self.top_p, self.top_k, self.min_p, self.template = top_p, top_k, min_p, template
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        # A base model knows no end of turn: it is stopped where it starts the next turn by itself.
        self.stop_strings = list(BASE_STOP) if template == "base" else []
        declared = population.base_model.generation_config.eos_token_id  # which may be 0
        declared = [declared] if isinstance(declared, int) else list(declared or [])
        end: Any = tokenizer.eos_token_id  # transformers' hints allow more
        if end is None:
            raise ValueError(
                "The tokenizer has no eos_token, so no completion could end. Set one that the base writes at the end "
                "of a turn: tokenizer.eos_token = '...', and save it with the base."
            )
        self.eos_ids: list[int] = sorted({end, *declared})
        # Whatever else the model's own file asks for (a repetition penalty, say) would make sampling off-policy.
        population.base_model.generation_config = GenerationConfig(
            eos_token_id=declared or None, pad_token_id=tokenizer.pad_token_id
        )

    @classmethod
    def from_args(
        cls,
        population: Population,
        tokenizer: PreTrainedTokenizerBase,
        accelerator: "Accelerator | None",
        args: "PopulationSelfPlayConfig",
        **kwargs: Any,
    ) -> Self:
        """The sampler of a trainer with these settings; `kwargs` are additional arguments of the class.

        Raises:
            ValueError: If the class does not take these arguments.
        """
        given: dict[str, Any] = {"accelerator": accelerator} | cls.settings_of(args) | kwargs
        try:
            return cls(population, tokenizer, **given)
        except TypeError as error:
            if "__init__() " not in str(error):  # it is about another call
                raise
            raise ValueError(
                f"{cls.__name__} cannot be made with {sorted(given)}: {error}. Write __init__(self, population, "
                "tokenizer, *, ..., **settings), and pass **settings to super().__init__."
            ) from error

    @classmethod
    def settings_of(cls, args: "PopulationSelfPlayConfig") -> dict[str, Any]:
        """Arguments of the class that come from the trainer's settings."""
        shared = ["max_completion_length", "temperature", "top_p", "top_k", "min_p"]
        shared += ["chat_template_kwargs"] * bool(args.chat_template_kwargs)
        return {name: getattr(args, name) for name in shared} | {"template": args.prompt_template}

    def __call__(
        self,
        prompts: Sequence[list[Message]],
        members: Sequence[str | None],
        *,
        seed: int,
        streams: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Samples one completion per prompt. Member `None` is the frozen base, which needs a separate call.

        Row `i` uses the random stream `(seed, streams[i])`, by default `(seed, i)`, in any batch. So a rank that
        samples a share of the rows passes their indices, and gets the same completions as a single process.
        """
        prompt_ids = self._tokenize(prompts)
        streams = range(len(prompts)) if streams is None else streams
        seeds = [zlib.crc32(f"{seed}:{i}".encode()) - (1 << 31) for i in streams]
        return self.checked_draw(prompt_ids, members, seeds)

    def checked_draw(
        self, prompt_ids: Sequence[list[int]], members: Sequence[str | None], row_seeds: Sequence[int]
    ) -> list[Completion]:
        """What `draw` returns.

        Raises:
            ValueError: If there is not one completion per row, or one is empty, too long, of another prompt, or
                without the log-probabilities of its tokens.
        """
        before = self.progress.done
        self.progress.expect(len(prompt_ids), "rows")
        copies = [list(ids) for ids in prompt_ids], list(members), list(row_seeds)  # `draw` may change its own
        drawn = self.draw(*copies)
        self.progress.reach(before + len(prompt_ids))
        completions = isinstance(drawn, list) and all(type(one) is Completion for one in drawn)
        if not completions or len(drawn) != len(prompt_ids):
            raise ValueError(
                f"{type(self).__name__}.draw must return a list of {len(prompt_ids)} Completions, one per row, got "
                f"{len(drawn) if completions else repr(drawn)[:200]}."
            )
        for row, (one, ids) in enumerate(zip(drawn, prompt_ids, strict=True)):
            if list(one.prompt_ids) != list(ids):
                raise ValueError(
                    f"{type(self).__name__}.draw returned for row {row} a completion of another prompt. Keep the "
                    "order of the rows, and all tokens of their prompts."
                )
            if len(one.ids) == 0:
                raise ValueError(f"{type(self).__name__}.draw returned no token for row {row}; give at least one.")
            self._check_logprobs(one.ids, one.logprobs)
        longest = max((len(one.ids) for one in drawn), default=0)
        if longest > self.max_completion_length:
            raise ValueError(
                f"{type(self).__name__}.draw returned {longest} tokens where max_completion_length is "
                f"{self.max_completion_length}. Read the limit and the temperature each time draw is called, because "
                f"they change."
            )
        return drawn

    @contextmanager
    def decoding(self, *, temperature: float, max_completion_length: int | None = None) -> Iterator[Self]:
        """Context with another temperature, without `top_p`, `top_k` and `min_p`, for completions that nobody learns
        from.

        Args:
            temperature (`float`): 0 chooses the likeliest token.
            max_completion_length (`int`, *optional*): Maximum tokens of a completion; unchanged if unset.
        """
        names = ("temperature", "top_p", "top_k", "min_p", "max_completion_length")
        before = {name: getattr(self, name) for name in names}
        length = self.max_completion_length if max_completion_length is None else max_completion_length
        vars(self).update(zip(names, (temperature, 1.0, 0, None, length), strict=True))
        try:
            yield self
        finally:
            vars(self).update(before)

    @abstractmethod
    def draw(
        self, prompt_ids: Sequence[list[int]], members: Sequence[str | None], row_seeds: Sequence[int]
    ) -> list[Completion]:
        """Samples one completion per row, with the sampler's settings at the time of the call.

        Args:
            prompt_ids (`Sequence[list[int]]`): Tokens of each rendered prompt. There may be no rows.
            members (`Sequence[str | None]`): Adapter of each row. `None` is the frozen base; it is never in the same
                call as members.
            row_seeds (`Sequence[int]`): Seed of each row, a signed 32-bit integer. A row's tokens must depend only on
                its prompt, member and seed, so that batches and the number of processes do not change a run.

        Returns:
            `list[Completion]`: In the order of the rows, made by `completion`.
        """

    def sync(self) -> None:  # noqa: B027 (most samplers have nothing to do)
        """Sends changed weights to the engine, if there is one. Called on every rank before each round."""

    def rest(self) -> None:  # noqa: B027
        """Gives back memory that learning can use; called when a round's rows are drawn."""

    def close(self) -> None:  # noqa: B027
        """Frees what the sampler holds besides the population."""

    @property
    def max_length(self) -> int | None:
        """Maximum tokens of prompt and completion together; `None` for no limit."""
        return None

    def count_tokens(self, text: str | list[Message]) -> int:
        """Tokens of a text, or of a conversation as it is rendered for a member."""
        if isinstance(text, str):
            return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return len(self._tokenize([text])[0])

    def read(self, text: str) -> str:
        """A text as members read and write it: some tokenizers change it."""
        return read_back(self.tokenizer, text)

    def completion(
        self, prompt_ids: Sequence[int], ids: Sequence[int], logprobs: Sequence[float] | None = None
    ) -> Completion:
        """Makes the completion of one row from its tokens.

        Args:
            prompt_ids (`Sequence[int]`): Tokens of the row's prompt.
            ids (`Sequence[int]`): Sampled tokens. The last one is in `eos_ids`, unless the row was cut at the limit or
                at a stop string.
            logprobs (`Sequence[float]`, *optional*): Log-probability of each token under the sampling policy.

        Raises:
            ValueError: If `ids` are no tokens, or the sampler reports log-probabilities and there is not one per
                token, or one is none.
        """
        try:
            ids = [index(one) for one in ids]
            text: Any = self.tokenizer.decode(ids, skip_special_tokens=True)
        except (TypeError, OverflowError):
            raise ValueError(
                f"{type(self).__name__} gave {ids!r:.200} as the tokens of a row; give a list of their ids."
            ) from None
        try:
            logprobs = None if logprobs is None else [float(one) for one in logprobs]
        except (TypeError, ValueError):
            raise ValueError(
                f"{type(self).__name__} gave {logprobs!r:.200} as the log-probabilities of a row; give a list of "
                "numbers."
            ) from None
        self._check_logprobs(ids, logprobs)
        return Completion(text, list(prompt_ids), ids, logprobs)

    def _check_logprobs(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        count = 0 if logprobs is None else len(logprobs)
        if self.reports_logprobs and count != len(ids):
            raise ValueError(
                f"{type(self).__name__} says reports_logprobs=True, but gave {count} log-probabilities "
                f"for {len(ids)} tokens. Give one for each, or set reports_logprobs=False."
            )
        if logprobs is not None and not all(-math.inf < one < 0.01 for one in logprobs):  # 0 but for rounding
            wrong = next(one for one in logprobs if not -math.inf < one < 0.01)
            raise ValueError(f"{type(self).__name__} gave {wrong} as a log-probability; it is a number up to 0.")

    @contextmanager
    def model_as(self, members: Sequence[str | None]) -> Iterator[PreTrainedModel]:
        """Context with the training model, routed to these members row by row, without gradients and in evaluation
        mode. With the trainer's mixed precision, so that the policies that sample are those that learn.

        For samplers that use the training model. `members` has only names, or only `None`.
        """
        model, routing = self.population.base_model, self.population.routing
        names = [name for name in members if name is not None]
        rows = self.population.route(names) if names or not members else routing.base()
        autocast = self.accelerator.autocast() if self.accelerator else nullcontext()
        with evaluation_mode(model), torch.no_grad(), autocast, rows:
            yield model

    def _tokenize(self, prompts: Sequence[list[Message]]) -> list[list[int]]:
        how = {"template": self.template, "chat_template_kwargs": self.chat_template_kwargs}
        keys = [json.dumps(prompt, default=id) for prompt in prompts]
        unique = dict(zip(keys, prompts, strict=True))  # all rows of a group have the same
        ids = {key: tokenize_prompt(prompt, self.tokenizer, **how) for key, prompt in unique.items()}
        return [ids[key] for key in keys]


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """Context with the model in evaluation mode. Entered around all batches of a call, it is cheap inside: a change of
    mode visits every module of the base.
    """
    training = model.training
    if training:
        model.eval()
    try:
        yield
    finally:
        if training:
            model.train()


@contextmanager
def unchanged_random_states() -> Iterator[None]:
    """Context that restores the random states at its end."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
