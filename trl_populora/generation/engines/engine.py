"""What `EngineSampler` asks of an engine, wherever it runs and whoever made it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .adapters import AdapterVersion


if TYPE_CHECKING:
    from accelerate import Accelerator


class EngineRow(NamedTuple):
    """One prompt and how it is answered.

    Attributes:
        prompt_ids (`Sequence[int]`): Its tokens.
        adapter (`AdapterVersion` or `None`): Who answers; `None` is the base.
        seed (`int`): Of the row's noise, not negative.
        temperature (`float`): By which its logits are divided; 0 chooses the likeliest token.
    """

    prompt_ids: Sequence[int]
    adapter: AdapterVersion | None
    seed: int
    temperature: float


class Drawn(NamedTuple):
    """What an engine drew for one row.

    Attributes:
        ids (`list[int]`): Tokens, with the end-of-sequence token if there was one.
        logprobs (`list[float]`): Log-probability of each under the sampling policy.
        likeliest (`list[dict[int, float]]`): At each position the asked number of likeliest tokens, and the drawn one.
    """

    ids: list[int]
    logprobs: list[float]
    likeliest: list[dict[int, float]]


class EngineSpec(NamedTuple):
    """What an engine is to serve.

    Attributes:
        model (`str`): Folder or Hub id of the base; empty if it was made in memory.
        tokenizer (`str`): Folder or Hub id of its tokenizer.
        dtype (`torch.dtype`): Type of the weights.
        max_rank (`int`): Largest rank of an adapter.
        num_adapters (`int`): Adapters of the population, guests included.
        accelerator ([`~accelerate.Accelerator`] or `None`): The trainer's; `None` for a single process.
    """

    model: str
    tokenizer: str
    dtype: torch.dtype
    max_rank: int
    num_adapters: int
    accelerator: "Accelerator | None" = None


class Engine(ABC):
    """An engine that has the base model loaded and answers each row with its adapter.

    A new one is a class with `start`, `load`, `unload` and `generate`. Its constructor keeps settings; `start` does
    what takes time. [`EngineSampler`] does the rest: files, versions, the canary, ranks and restarts.

    Attributes:
        where (`str`): For messages, such as "the server at http://localhost:8000".
        block_size (`int`): Tokens per block of the prefix cache, or more.
        max_model_length (`int`): Most tokens of prompt and completion together.
        everywhere (`bool`): Whether every rank has an engine of its own, which it must feed.
        filtered_logprobs (`bool`): Whether reported log-probabilities are those after `top_p`, `top_k` and `min_p`.
    """

    where: str
    block_size: int
    max_model_length: int
    everywhere: bool = False
    filtered_logprobs: bool = True

    @abstractmethod
    def start(self, spec: EngineSpec) -> None:
        """Make ready to serve, and set `where`, `block_size` and `max_model_length`; called once on every rank."""

    @abstractmethod
    def load(self, version: AdapterVersion) -> None:
        """Load an adapter from its folder.

        Raises:
            EngineError: If it cannot be loaded.
        """

    @abstractmethod
    def unload(self, version: AdapterVersion) -> None:
        """Forget an adapter."""

    @abstractmethod
    def generate(self, rows: Sequence[EngineRow], sampling: Mapping[str, Any]) -> list[Drawn]:
        """Draw all rows, each with its own adapter, seed and temperature.

        Args:
            rows (`Sequence[EngineRow]`): Rows; all of adapters, or all of the base.
            sampling (`Mapping[str, Any]`): What all rows share: `max_tokens`, `top_p`, `top_k` (-1 is off), `min_p`,
                `stop`, `stop_token_ids`, `ignore_eos`, and `logprobs`, the number of likeliest tokens to report. Names
                as in the completions interface of vLLM and SGLang.

        Raises:
            ServerLost: If the engine went away, or came back without an adapter.
            EngineError: If it refuses a row.
        """

    def missing(self, versions: Iterable[AdapterVersion]) -> list[AdapterVersion]:
        """Those of `versions` that the engine has lost, if it may lose any."""
        return []

    def wake(self) -> bool:
        """Take the memory that `sleep` gave back; returns whether it had slept."""
        return False

    def sleep(self) -> None:  # noqa: B027 (most engines never sleep)
        """Give memory back until the next `wake`."""

    def close(self) -> None:  # noqa: B027
        """End, or hang up."""


class EngineError(RuntimeError):
    """An engine did not do what it was asked; the text names what it said and what to do."""


class ServerLost(EngineError):
    """A server went away, or came back without the adapters."""


class LivenessError(EngineError):
    """An engine answers with other weights than the trainer's; the text names the member and what was seen."""


def check_unmixed(rows: Sequence[EngineRow]) -> None:
    """Refuse base rows beside adapter rows: vLLM's CPU backend answers them with the adapter in the last slot.

    Raises:
        ValueError: If there are both.
    """
    if len({row.adapter is None for row in rows}) == 2:
        raise ValueError("The base and members cannot be sampled in one call; ask the base in a call of its own.")
