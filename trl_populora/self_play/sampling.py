"""The nouns of sampling: what the round asks of whoever generates text. Implementations live in `generation`."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


Message = dict[str, str]


class Completion(NamedTuple):
    """What a member wrote.

    Attributes:
        text (`str`): Decoded completion without special tokens.
        prompt_ids (`Sequence[int]`): Tokens of the rendered prompt.
        ids (`Sequence[int]`): Tokens of the completion, ending with an end-of-sequence token unless truncated.
        logprobs (`Sequence[float]` or `None`): Log-probability of each token under the sampling policy, if known.
    """

    text: str
    prompt_ids: Sequence[int] = ()
    ids: Sequence[int] = ()
    logprobs: Sequence[float] | None = None


class Sampler(Protocol):
    """Draws one completion per prompt, row `i` from member `members[i]`.

    The same `seed` gives the same completions; two rows of one call never share noise.
    """

    def __call__(
        self, prompts: Sequence[list[Message]], members: Sequence[str | None], *, seed: int
    ) -> list[Completion]: ...
