"""The interface of an engine, as `EngineSampler` uses it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .adapters import AdapterVersion


if TYPE_CHECKING:
    from accelerate import Accelerator


class EngineRow(NamedTuple):
    """One prompt with its adapter, seed and temperature.

    Attributes:
        prompt_ids (`Sequence[int]`): Its tokens.
        adapter (`AdapterVersion` or `None`): Adapter that answers; `None` is the base.
        seed (`int`): Seed of the row, not negative.
        temperature (`float`): Sampling temperature; 0 is greedy decoding.
    """

    prompt_ids: Sequence[int]
    adapter: AdapterVersion | None
    seed: int
    temperature: float


class Drawn(NamedTuple):
    """Result of an engine for one row.

    Attributes:
        ids (`list[int]`): Tokens, with the end-of-sequence token if there was one.
        logprobs (`list[float]`): Log-probability of each token under the sampling policy.
        likeliest (`list[dict[int, float]]`): For each position, log-probabilities of the requested number of most
            likely tokens and of the sampled one.
    """

    ids: list[int]
    logprobs: list[float]
    likeliest: list[dict[int, float]]


class EngineSpec(NamedTuple):
    """Base and adapters that an engine must serve.

    Attributes:
        model (`str`): Folder or Hub id of the base; empty if it was created in memory.
        tokenizer (`str`): Folder or Hub id of its tokenizer.
        dtype (`torch.dtype`): Dtype of the weights.
        max_rank (`int`): Largest rank of an adapter.
        num_adapters (`int`): Number of adapters of the population, including guests.
        accelerator ([`~accelerate.Accelerator`] or `None`): The trainer's; `None` for a single process.
        targets (`tuple[str, ...]`): Last parts of the names of adapted layers (`"q_proj"`).
        packed (`bool`): Whether the trainer's base has 4 or 8 bits (bitsandbytes).
        weights (`Mapping[str, Mapping[str, Tensor]]`): For an engine that is `in_memory`, the weights of each version
            by its name: the matrices under PEFT's names, on the host, with B times the scaling.
    """

    model: str
    tokenizer: str
    dtype: torch.dtype
    max_rank: int
    num_adapters: int
    accelerator: "Accelerator | None" = None
    targets: tuple[str, ...] = ()
    packed: bool = False
    weights: Mapping[str, Mapping[str, Tensor]] = MappingProxyType({})


class EngineError(RuntimeError):
    """An engine refused or failed. The message has its answer and what to do."""


class ServerLost(EngineError):
    """A server stopped, or restarted without the adapters."""


class Engine(ABC):
    """An engine that has the base model loaded and answers each row with its adapter.

    A new engine is a class with `start`, `load`, `unload` and `generate`. Its constructor only stores settings.
    `start` does the slow work. [`EngineSampler`] does the rest: files, versions, the canary, ranks and restarts.

    Attributes:
        where (`str`): Its description in messages, such as "the server at http://localhost:8000".
        block_size (`int`): Tokens per block of the prefix cache, or more.
        max_model_length (`int`): Maximum tokens of prompt and completion together.
        everywhere (`bool`): Whether every rank has its own engine and must load adapters into it.
        in_memory (`bool`): Whether it takes weights from `EngineSpec.weights`, and only configurations from folders.
            Only for engines that are `everywhere`.
        filtered_logprobs (`bool`): Whether reported log-probabilities are those after `top_p`, `top_k` and `min_p`.
        repeats (`bool`): Whether it answered the same row alike, bit for bit. The canary finds it out at the start.
    """

    where: str
    block_size: int
    max_model_length: int
    everywhere: bool = False
    in_memory: bool = False
    filtered_logprobs: bool = True
    repeats: bool = True

    @abstractmethod
    def start(self, spec: EngineSpec) -> None:
        """Starts the engine, and sets `where`, `block_size` and `max_model_length`. Called once on every rank."""

    @abstractmethod
    def load(self, version: AdapterVersion) -> None:
        """Load an adapter from its folder, or from memory.

        Raises:
            EngineError: If it cannot be loaded.
        """

    @abstractmethod
    def unload(self, version: AdapterVersion) -> None:
        """Forget an adapter. Raises `EngineError` if the engine cannot be reached."""

    @abstractmethod
    def generate(self, rows: Sequence[EngineRow], sampling: Mapping[str, Any]) -> list[Drawn]:
        """Samples all rows, each with its own adapter, seed and temperature.

        Args:
            rows (`Sequence[EngineRow]`): Rows, either all with adapters or all of the base.
            sampling (`Mapping[str, Any]`): Settings of all rows: `max_tokens`, `top_p`, `top_k` (-1 is off), `min_p`,
                `stop`, `stop_token_ids`, `ignore_eos`, and `logprobs`, the number of most likely tokens to report. The
                names are those of the completions interface of vLLM and SGLang.

        Raises:
            ServerLost: If the server stopped, or restarted without an adapter.
            EngineError: If it refuses a row.
        """

    def held(self, versions: Sequence[AdapterVersion]) -> list[list[int] | None]:
        """What the engine's memory has for each version: [`bit_sums`] of its matrices A, and of its matrices B times
        the scaling, in the engine's dtype. `None` if this engine, or its memory of this version, cannot be read."""
        return [None] * len(versions)

    def missing(self, versions: Iterable[AdapterVersion]) -> list[AdapterVersion]:
        """The versions that the engine has lost, for engines that can lose any."""
        return []

    @property
    def parts(self) -> Sequence["Engine"]:
        """The separate engines of which this one consists. The canary checks each of them."""
        return (self,)

    def leave_out(self, part: "Engine", error: ServerLost) -> None:
        """Goes on without a part that was lost. Raises an error if there is no other."""
        raise error

    def wake(self) -> bool:
        """Allocates the memory that `sleep` has freed. Returns whether the engine had slept."""
        return False

    def sleep(self) -> None:  # noqa: B027 (most engines never sleep)
        """Frees memory until the next `wake`."""

    def close(self) -> None:  # noqa: B027
        """Ends the engine, or the connection to it."""


class LivenessError(EngineError):
    """An engine answers with weights other than the trainer's. The message names the member and the difference."""


def check_unmixed(rows: Sequence[EngineRow]) -> None:
    """Refuses base rows together with adapter rows, because vLLM's CPU backend answers them with its last adapter.

    Raises:
        ValueError: If there are both kinds of rows.
    """
    if len({row.adapter is None for row in rows}) == 2:
        raise ValueError("The base and members cannot be sampled in one call; sample the base in a separate call.")


def check_drawn(drawn: Any, engine: Engine, rows: Sequence[EngineRow]) -> list[Drawn]:
    """What an engine has generated.

    Raises:
        ValueError: If it is not one [`Drawn`] for each row.
    """
    right = isinstance(drawn, Sequence) and all(isinstance(one, Drawn) for one in drawn)
    if not right or len(drawn) != len(rows):
        raise ValueError(
            f"{type(engine).__name__}.generate must return a list of {len(rows)} Drawn, one per row, got "
            f"{len(drawn) if right else repr(drawn)[:200]}."
        )
    return list(drawn)
