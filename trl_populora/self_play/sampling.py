"""The nouns of sampling: what the round asks of whoever generates text. Samplers live in `generation`."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


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


# What a round plays with: `(prompts, members, *, seed) -> list[Completion]`, one completion per prompt, row `i` from
# member `members[i]`. The same seed gives the same completions; two rows of one call never share noise.
SampleFunc = Callable[..., list[Completion]]
