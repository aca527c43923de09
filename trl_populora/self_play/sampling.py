"""Types for sampling: messages, completions, and the function that samples. The samplers are in `generation`."""

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


# `(prompts, members, *, seed) -> list[Completion]`: samples one completion per prompt, row `i` from member
# `members[i]`. Equal seeds give equal completions. Each row of a call has its own random numbers.
SampleFunc = Callable[..., list[Completion]]
