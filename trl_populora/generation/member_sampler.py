"""What every sampler of members does alike: prompts become tokens, rows get seeds, completions end the same way."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from ..population import Population
from ..self_play.sampling import Completion, Message
from ..tasks import BASE_STOP, render_prompt


class MemberSampler(ABC):
    """Base of the samplers; a subclass draws in `draw`.

    Args:
        population ([`Population`]): Members and their model.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]): Tokenizer of the base.
        template (`str`): `"chat"` or `"base"`.
    """

    def __init__(self, population: Population, tokenizer: PreTrainedTokenizerBase, *, template: str):
        self.population, self.tokenizer, self.template = population, tokenizer, template
        # A base model knows no end of turn: it is stopped where it starts the next turn by itself.
        self.stop_strings = list(BASE_STOP) if template == "base" else []
        declared = population.base_model.generation_config.eos_token_id or []
        self.declared_eos = [declared] if isinstance(declared, int) else list(declared)
        self.eos_ids = sorted({tokenizer.eos_token_id, *self.declared_eos})

    def __call__(
        self,
        prompts: Sequence[list[Message]],
        members: Sequence[str | None],
        *,
        seed: int,
        streams: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Draws one completion per prompt; member `None` is the frozen base (alone in its call).

        Row `i` uses noise stream `(seed, streams[i])`, by default `(seed, i)`, whatever the batch around it: a rank
        that draws a share of the rows passes their indices and gets what one process would have drawn.
        """
        prompt_ids = self._tokenize(prompts)
        streams = range(len(prompts)) if streams is None else streams
        return self.draw(prompt_ids, members, [zlib.crc32(f"{seed}:{i}".encode()) - (1 << 31) for i in streams])

    @abstractmethod
    def draw(
        self, prompt_ids: Sequence[list[int]], members: Sequence[str | None], row_seeds: Sequence[int]
    ) -> list[Completion]:
        """Draws completions for tokenised prompts with explicit 32-bit row seeds."""

    def sync(self) -> None:  # noqa: B027 (most samplers have nothing to do)
        """Brings changed weights to where they are sampled from: nothing to do where the model itself is sampled."""

    def close(self) -> None:  # noqa: B027
        """Frees what the sampler holds besides the population."""

    @property
    def max_length(self) -> int | None:
        """Most tokens of prompt and completion together; `None` where nothing refuses longer ones."""
        return None

    def count_tokens(self, text: str | list[Message]) -> int:
        """Tokens of a text, or of a conversation as it is rendered for a member."""
        if isinstance(text, str):
            return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return len(self._tokenize([text])[0])

    def _tokenize(self, prompts: Sequence[list[Message]]) -> list[list[int]]:
        unique: dict[str, list[int]] = {}
        texts = [render_prompt(prompt, self.tokenizer, template=self.template) for prompt in prompts]
        for text in texts:
            if text not in unique:
                unique[text] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [unique[text] for text in texts]

    def _completion(
        self, prompt_ids: Sequence[int], ids: Sequence[int], logprobs: Sequence[float] | None = None
    ) -> Completion:
        return Completion(self.tokenizer.decode(ids, skip_special_tokens=True), list(prompt_ids), ids, logprobs)
